// Performs calls that may wait for long, each on a thread of its own: a connect to who does not answer must
// hold up nobody else. The caller's blocking, and its timeouts, are the kernel's own then.
//
// A caller that is killed, or to whom a signal comes, is noticed within kLook: its call ends then as the
// kernel would have ended it, also so that it begins anew after a handler with SA_RESTART.
#pragma once

#include <linux/seccomp.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "daemon/probe/notify_pool.h"

namespace agentmon {

// Thread-safe. Threads are made as they are needed and go when they had nothing to do for some seconds.
class CallWaiters {
 public:
  static constexpr int kMost = 64;       // calls at once, of all sessions
  static constexpr int kMostOfOne = 48;  // of one, so that others have room
  // Of perform, in place of a value: the kernel may make the call.
  static constexpr int64_t kGoesOn = INT64_MAX;
  static constexpr absl::Duration kLook = absl::Milliseconds(20);

  struct Call {
    std::shared_ptr<const Listener> listener;
    seccomp_notif request{};
    pid_t tgid = 0;  // of the caller
    // No signal ends it but one that kills, as is so with calls on files.
    bool until_killed = false;
    // Makes the call: -errno, or its value. -EINTR when the thread is called back.
    std::function<int64_t()> perform;
    // What the program sees of a call that a signal has ended.
    std::function<int()> interrupted;
    // After the answer, -errno or the value; not when the caller was killed.
    std::function<void(int64_t result)> finish;
  };

  // shared: with the holder, or null; outlives the process's threads. After NotifyPool::Start, which prepares
  // the signal.
  explicit CallWaiters(NotifyShared* shared);
  ~CallWaiters();  // what still waits is left to the holder

  // False: too many wait already, and nothing was done.
  bool Start(Call call);

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the threads
};

}  // namespace agentmon
