// The threads that serve seccomp listeners.
//
// Each listener belongs to one lane, each lane to one thread at a time: requests of a session are answered
// and recorded in order, and a reader never blocks, since it alone reads. A guard thread looks after them
// while there is traffic: looking at a caller's memory or files can hang (a FUSE server that is stopped, or
// that waits for us), and then the guard answers, and another thread takes the lane over. From then on less
// is looked at for that session. Where calls may be stopped the guard does not answer: what a thread performs
// for a caller may take its time, and its end is the answer. A session whose calls keep too many threads
// fails with EAGAIN until one of them is through.
//
// A daemon that stands still as a whole is looked after by the holder, which then answers in its place. When
// both read for a moment, the one that gets nothing hangs in the receiving call: the guard calls threads back
// from it by SIGUSR1, which the pool takes for itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/unique_fd.h"
#include "daemon/policy/gate.h"
#include "daemon/probe/notify_slot.h"

namespace agentmon {

struct Listener : std::enable_shared_from_this<Listener> {
  uint64_t cgroup_id = 0;
  UniqueFd fd;
  size_t lane = 0;
  std::atomic<int> stuck{0};   // threads that hung while looking at this session
  std::atomic<int> hung{0};    // of them, where calls may be stopped, those that hang now
  std::shared_ptr<Gate> gate;  // null: its calls are recorded and never stopped

  // Whether calls may be stopped: then nothing goes on unjudged.
  bool closed() const { return gate != nullptr && gate->enforces(); }
};

struct NotifyAnswer {
  bool goes_on = true;  // the kernel makes the call
  int error = 0;        // else: what the program sees; 0 = success
  int64_t value = 0;    // what a successful call returns
  bool later = false;   // none of these: somebody else answers
};

// What a pool does with a request. One object per thread, so it may keep caches.
class NotifyServer {
 public:
  virtual ~NotifyServer() = default;
  // The caller waits. Reads what vanishes with the answer, which the pool sends. May throw.
  virtual NotifyAnswer Capture(const Listener& listener, const seccomp_notif& request) = 0;
  // The caller goes on. Never called when Capture threw.
  virtual void Finish(const Listener& listener) = 0;
  // Capture threw, or was not tried because the session has made threads hang.
  virtual void Lost() = 0;
};

// Thread-safe. Threads that hang are left behind when the pool goes; they end by themselves.
class NotifyPool {
 public:
  struct Options {
    int lanes = 2;
    // Outlives the process's threads; shared with the holder, or the pool's own when null.
    NotifyShared* shared = nullptr;
    std::function<std::unique_ptr<NotifyServer>()> make_server;
    int64_t hang_ns = 100'000'000;
    // No process is left behind the listener, which is dropped. Any thread; may be null.
    std::function<void(uint64_t cgroup_id)> on_gone = nullptr;
  };
  static constexpr int kStuckNoFiles = 1;  // Listener::stuck at which files are not looked at any more
  static constexpr int kStuckNothing = 4;  // and at which requests are answered unread
  static constexpr int kHungMost = 16;     // Listener::hung at which they fail

  static absl::StatusOr<std::unique_ptr<NotifyPool>> Start(Options options);
  ~NotifyPool();  // stops; what comes to the listeners afterwards waits for the holder

  absl::Status Add(uint64_t cgroup_id, UniqueFd listener, std::shared_ptr<Gate> gate = nullptr);
  void Remove(uint64_t cgroup_id);
  size_t listeners() const;
  // Calls back with each listener, under the pool's lock.
  void Each(const std::function<void(uint64_t cgroup_id, int fd, bool closed)>& callback) const;

 private:
  struct State;
  explicit NotifyPool(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Shared with the threads, because those that hang outlive the pool.
  std::shared_ptr<State> state_;
  std::thread guard_;
};

}  // namespace agentmon
