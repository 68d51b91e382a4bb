// Gives events to those who follow the timeline. Thread-safe throughout: OnStored comes from the store's
// thread, subscribers are read by gRPC's threads.
//
// The hub is fed by the store after each commit, so that events carry their number, and the numbers rise.
// While nothing can be stored they come with seq 0. A subscriber that does not read in time loses what its
// queue has no room for and is told how many: nobody ever waits for it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "agentmon/v1/timeline.pb.h"
#include "daemon/event/event.h"
#include "daemon/event/filter.h"

namespace agentmon {

// One follower's bounded queue.
class Subscriber {
 public:
  enum class Result { kEvents, kTimeout, kEnded };

  ~Subscriber();  // the hub forgets it
  Subscriber(const Subscriber&) = delete;
  Subscriber& operator=(const Subscriber&) = delete;

  // Waits until there are events or a gap, the deadline, or the end. Moves at most `most` events to *events
  // (emptied first); *gap is how many were missed just before these.
  Result Next(absl::Time deadline, size_t most, std::vector<Event>* events, uint64_t* gap);
  // From any thread: Next returns kEnded from now on.
  void Cancel();
  // Events up to this number were stored before the subscription; all later ones come through it.
  uint64_t joined_at() const { return joined_at_; }

 private:
  friend class StreamHub;
  class Entry;
  Subscriber(std::shared_ptr<Entry> entry, uint64_t joined_at)
      : entry_(std::move(entry)), joined_at_(joined_at) {}

  std::shared_ptr<Entry> entry_;  // shared with the hub, which may be giving it an event just now
  const uint64_t joined_at_;
};

class StreamHub {
 public:
  struct Options {
    size_t max_events = 10'000;  // per subscriber
    size_t max_bytes = 8 << 20;
    size_t max_subscribers = 256;
    uint64_t last_seq = 0;  // of the store when it was opened
    // Who owns a session; asked on the thread of OnStored. Needed for subscribers with a uid.
    std::function<std::optional<uint32_t>(absl::string_view session)> owner_of;
  };

  explicit StreamHub(Options options) : options_(std::move(options)), last_seq_(options_.last_seq) {}
  ~StreamHub() { End(); }

  // An event that was just stored, or cannot be stored now (seq 0). `repeated`: it was given before, without
  // its number.
  void OnStored(const Event& event, bool repeated);

  // filter.session must be an id, "*" or empty (both: all that the viewer sees). viewer: only sessions of
  // that uid; nullopt = all. ResourceExhausted when there are too many subscribers.
  absl::StatusOr<std::unique_ptr<Subscriber>> Subscribe(const v1::EventFilter& filter,
                                                        std::optional<uint32_t> viewer);
  // All subscriptions end; later ones end at once.
  void End();
  size_t subscribers() const;

 private:
  const Options options_;
  mutable absl::Mutex mutex_;
  std::vector<std::weak_ptr<Subscriber::Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_seq_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace agentmon
