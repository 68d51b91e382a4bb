#include "daemon/probe/call_waiters.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/kernel/proc_fs.h"
#include "common/kernel/seccomp_listener.h"

namespace agentmon {
namespace {

constexpr absl::Duration kIdle = absl::Seconds(3);
constexpr int kCallBack = SIGUSR1;  // daemon/probe/notify_pool.cc

// Whether a signal that the thread does not block waits for it. Of those that are sent to the whole process
// only for its first thread, which the kernel prefers: another one may get them.
bool SignalWaits(pid_t tid, pid_t tgid) {
  const auto status = ReadWholeFile(absl::StrCat("/proc/", tid, "/status"));
  if (!status.ok()) return false;
  uint64_t own = 0, shared = 0, blocked = 0;
  for (absl::string_view line : absl::StrSplit(*status, '\n')) {
    for (const auto& [name, into] : {std::pair("SigPnd:", &own), {"ShdPnd:", &shared}, {"SigBlk:", &blocked}})
      if (absl::ConsumePrefix(&line, name) && !absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line), into))
        return false;
  }
  return ((own | (tid == tgid ? shared : 0)) & ~blocked) != 0;
}

enum class Cancel { kNo, kSignal, kGone };

}  // namespace

struct CallWaiters::State {
  // One thread.
  struct Waiter {
    NotifySlot* slot = nullptr;
    std::optional<Call> call;
    pthread_t handle{};
    bool performs = false;
    Cancel cancel = Cancel::kNo;
  };

  NotifyShared* shared = nullptr;
  std::unique_ptr<NotifyShared> own_shared;
  absl::Mutex mutex;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool monitored ABSL_GUARDED_BY(mutex) = false;
  std::vector<std::shared_ptr<Waiter>> waiters ABSL_GUARDED_BY(mutex);

  NotifySlot* FreeSlot() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  static void Run(const std::shared_ptr<State>& state, const std::shared_ptr<Waiter>& waiter);
  void Work(Waiter& waiter);
  static void Monitor(const std::shared_ptr<State>& state);
  void LookAtAll();
};

// The lower ones are the pool's.
NotifySlot* CallWaiters::State::FreeSlot() const {
  for (int i = kNotifySlots - kMost; i < kNotifySlots; ++i) {
    NotifySlot* slot = &shared->slots[i];
    const bool used =
        std::any_of(waiters.begin(), waiters.end(), [&](const auto& waiter) { return waiter->slot == slot; });
    if (!used) return slot;
  }
  return nullptr;
}

CallWaiters::CallWaiters(NotifyShared* shared) : state_(std::make_shared<State>()) {
  if (shared == nullptr) {
    state_->own_shared = std::make_unique<NotifyShared>();
    shared = state_->own_shared.get();
  }
  state_->shared = shared;
}

CallWaiters::~CallWaiters() {
  absl::MutexLock lock(&state_->mutex);
  state_->stopping = true;
}

bool CallWaiters::Start(Call call) {
  absl::MutexLock lock(&state_->mutex);
  auto& waiters = state_->waiters;
  const auto of_session = std::count_if(waiters.begin(), waiters.end(), [&](const auto& waiter) {
    return waiter->call.has_value() && waiter->call->listener == call.listener;
  });
  if (of_session >= kMostOfOne) return false;
  const auto idle = std::find_if(waiters.begin(), waiters.end(),
                                 [](const auto& waiter) { return !waiter->call.has_value(); });
  std::shared_ptr<State::Waiter> waiter;
  if (idle != waiters.end()) {
    waiter = *idle;
  } else {
    waiter = std::make_shared<State::Waiter>();
    waiter->slot = state_->FreeSlot();
    if (waiter->slot == nullptr) return false;
  }
  // What has its slot is answered by the holder when we are no more.
  waiter->slot->request = call.request;
  waiter->slot->cgroup_id.store(call.listener->cgroup_id, std::memory_order_release);
  waiter->cancel = Cancel::kNo;
  waiter->performs = false;
  waiter->call = std::move(call);
  if (idle == waiters.end()) {
    waiters.push_back(waiter);
    std::thread([state = state_, waiter] { State::Run(state, waiter); }).detach();
  }
  if (!state_->monitored) {
    state_->monitored = true;
    std::thread([state = state_] { State::Monitor(state); }).detach();
  }
  return true;
}

void CallWaiters::State::Run(const std::shared_ptr<State>& state, const std::shared_ptr<Waiter>& waiter) {
  absl::MutexLock lock(&state->mutex);
  waiter->handle = pthread_self();
  for (;;) {
    state->mutex.AwaitWithTimeout(absl::Condition(
                                      +[](Waiter* w) { return w->call.has_value(); }, waiter.get()),
                                  kIdle);
    if (!waiter->call.has_value() || state->stopping) break;
    state->mutex.Unlock();
    try {
      state->Work(*waiter);
    } catch (...) {  // memory is short: the holder's word, and ours
      AnswerNotify(waiter->call->listener->fd.get(), waiter->call->request.id, EPERM);
    }
    state->mutex.Lock();
    waiter->performs = false;
    waiter->slot->cgroup_id.store(0, std::memory_order_release);
    waiter->call.reset();
  }
  auto& waiters = state->waiters;
  waiters.erase(std::find(waiters.begin(), waiters.end(), waiter));
}

void CallWaiters::State::Work(Waiter& waiter) {
  const Call& call = *waiter.call;
  const auto set_performs = [&](bool performs) {
    absl::MutexLock lock(&mutex);
    waiter.performs = performs;
    return stopping ? Cancel::kGone : waiter.cancel;
  };
  set_performs(true);
  int64_t result = call.perform();
  Cancel cancel = set_performs(false);
  while (result == -EINTR && cancel == Cancel::kNo) {
    set_performs(true);
    result = call.perform();
    cancel = set_performs(false);
  }
  if (cancel == Cancel::kGone) return;
  if (result == -EINTR) result = -call.interrupted();
  const int error = result < 0 ? static_cast<int>(-result) : 0;
  if (result == kGoesOn) {
    ContinueNotify(call.listener->fd.get(), call.request.id);
    return call.finish(result);
  }
  AnswerNotify(call.listener->fd.get(), call.request.id, error, error == 0 ? result : 0);
  call.finish(result);
}

// Ends with the last thread.
void CallWaiters::State::Monitor(const std::shared_ptr<State>& state) {
  absl::MutexLock lock(&state->mutex);
  const auto nobody = [](State* s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(s->mutex) {
    return s->waiters.empty() || s->stopping;
  };
  while (!state->mutex.AwaitWithTimeout(absl::Condition(+nobody, state.get()), kLook)) {
    state->mutex.Unlock();
    state->LookAtAll();
    state->mutex.Lock();
  }
  state->monitored = false;
}

void CallWaiters::State::LookAtAll() {
  struct Look {
    std::shared_ptr<Waiter> waiter;
    std::shared_ptr<const Listener> listener;
    uint64_t id;
    pid_t tid, tgid;
    bool until_killed;
    Cancel cancel = Cancel::kNo;
  };
  std::vector<Look> looks;
  {
    absl::MutexLock lock(&mutex);
    for (const auto& waiter : waiters) {
      if (!waiter->performs) continue;
      const Call& call = *waiter->call;
      looks.push_back({waiter, call.listener, call.request.id, static_cast<pid_t>(call.request.pid),
                       call.tgid, call.until_killed});
    }
  }
  for (Look& look : looks) {
    // Who waits for a server is busy with it: the holder must not answer it meanwhile.
    shared->TurnsOf(look.listener->cgroup_id).fetch_add(1, std::memory_order_relaxed);
    if (!look.until_killed && SignalWaits(look.tid, look.tgid)) look.cancel = Cancel::kSignal;
    if (!NotifyIdValid(look.listener->fd.get(), look.id)) look.cancel = Cancel::kGone;
  }
  absl::MutexLock lock(&mutex);
  for (const Look& look : looks) {
    Waiter& waiter = *look.waiter;
    if (look.cancel == Cancel::kNo || !waiter.performs || waiter.call->request.id != look.id) continue;
    // Again at the next look, when it was not in the kernel yet.
    waiter.cancel = look.cancel;
    pthread_kill(waiter.handle, kCallBack);
  }
}

}  // namespace agentmon
