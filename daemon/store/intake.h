// The bounded queue between the core thread and the writer. Events wait serialized, in chunks, so that
// 200,000 of them take some 30 MB and handing over is a pointer's move.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "agentmon/v1/sessions.pb.h"
#include "daemon/event/event.h"

namespace agentmon {

class Intake {
 public:
  struct Limits {
    size_t events = 200'000;
    size_t bytes = 64 << 20;
  };
  enum class ItemType : uint8_t { kEvent, kSession };
  struct Item {
    ItemType type;
    uint32_t size;
  };
  struct Chunk {
    std::string bytes;  // the serialized messages, one behind the other
    std::vector<Item> items;
    size_t events = 0;
    bool published = false;  // the writer's: its events went to the subscribers without a number
  };
  // Lost events by session and source. More than kMaxLossKeys pairs are counted for session "".
  using Losses = std::map<std::pair<std::string, v1::Source>, uint64_t>;
  static constexpr size_t kMaxLossKeys = 1024;

  explicit Intake(Limits limits) : limits_(limits) {}

  // Any thread; never blocks for longer than the lock. The last tenth of the queue is for kept events
  // (row.h) only. What finds no room is counted.
  void PushEvent(const Event& event);
  // Sessions always find room: there are few.
  void PushSession(const v1::Session& session);

  // Writer thread. Waits until something is there, `timeout` passed, or Close.
  void AwaitFirst(absl::Duration timeout);
  // Goes on waiting for more, at most `window`, not at all when many wait, a Flush waits or after Close.
  void Gather(absl::Duration window);
  // Moves at most `events` events, in whole chunks, to the end of *out. What was taken counts as waiting
  // until it is Done or given up.
  void Take(size_t events, std::deque<Chunk>* out);
  void Done(Chunk chunk);
  void GiveUp(Chunk chunk);
  void CountLost(const std::string& session, v1::Source source, uint64_t lost);
  // The losses that no LOSS event tells of yet; PutBack when it could not be written.
  Losses TakeLosses();
  void PutBack(const Losses& losses);

  // Any thread. True once all that was accepted before the call is written; false after `timeout`.
  bool Flush(absl::Duration timeout);
  void Close();

  // Gives back memory that nothing waits in.
  void ReleaseSpares();

  bool closed() const;
  bool has_losses() const;
  uint64_t lost() const;     // ever
  uint64_t waiting() const;  // events

 private:
  // Chunks have room for this from the start and are used again: growing or mapping memory takes a lock of
  // the kernel's that the writer's disk accesses can hold for long.
  static constexpr size_t kChunkItems = 1024;
  static constexpr size_t kChunkBytes = 64 << 10;
  static constexpr size_t kMostSpares = 64;
  static constexpr size_t kGatheredEvents = 8192;

  Chunk& RoomFor(size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddLost(const std::string& session, v1::Source source, uint64_t lost)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(Chunk chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Limits limits_;
  mutable absl::Mutex mutex_;
  std::deque<Chunk> chunks_ ABSL_GUARDED_BY(mutex_);
  std::vector<Chunk> spares_ ABSL_GUARDED_BY(mutex_);  // empty ones
  size_t queued_events_ ABSL_GUARDED_BY(mutex_) = 0;   // in chunks_
  size_t waiting_events_ ABSL_GUARDED_BY(mutex_) = 0;  // these and what the writer has in hand
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t accepted_ ABSL_GUARDED_BY(mutex_) = 0;  // items ever
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t flush_to_ ABSL_GUARDED_BY(mutex_) = 0;  // a Flush waits for done_ to reach this
  Losses losses_ ABSL_GUARDED_BY(mutex_);
  uint64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace agentmon
