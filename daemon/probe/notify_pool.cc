#include "daemon/probe/notify_pool.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/kernel/seccomp_listener.h"
#include "daemon/probe/call_waiters.h"

namespace agentmon {
namespace {

constexpr int kThreadsMax = 64;  // hung ones included
static_assert(kThreadsMax + CallWaiters::kMost <= kNotifySlots);
constexpr absl::Duration kGuardTick = absl::Milliseconds(25);
constexpr absl::Duration kStopWait = absl::Milliseconds(500);
constexpr int kQuietTicks = 40;   // then the guard sleeps until there is traffic
constexpr uint64_t kWakeKey = 0;  // no cgroup has this id
constexpr int kCallBack = SIGUSR1;
constexpr int64_t kIdle = 0;
constexpr int64_t kReplaced = -1;
constexpr int64_t kReceive_ns = 10'000'000;  // longer in the receiving call: somebody else got the request

// An agent waits for this thread: on a busy machine it must not queue for a processor. Not a real-time class:
// its threads do not take the caller's processor over on a synchronous wake-up, which costs more than it
// wins.
void RunAtOnce() { setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), -20); }

int64_t NowNs() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

// The kernel writes it meanwhile, and its thread clears it for the next request: whoever acts on it makes
// sure afterwards that the thread has not gone on.
__attribute__((no_sanitize("thread"))) uint64_t IdOfRequest(const NotifySlot& slot) {
  return *static_cast<const volatile decltype(slot.request.id)*>(&slot.request.id);
}

}  // namespace

// One thread of the pool, hung or not.
struct ServingThread {
  int lane = 0;
  NotifySlot* slot = nullptr;
  std::unique_ptr<NotifyServer> server;
  std::thread thread;
  // When it went to take the request that it is busy with; kIdle, or kReplaced once the guard has given its
  // lane away.
  std::atomic<int64_t> since_ns{0};
  std::atomic<uint64_t> cgroup_id{0};  // of that request, until it is recorded
  bool ended = false;                  // guarded by the pool's mutex
};

struct NotifyPool::State {
  Options options;
  std::unique_ptr<NotifyShared> own_shared;
  std::vector<UniqueFd> lanes;  // epoll descriptors
  UniqueFd wake;                // readable once the pool stops
  std::atomic<bool> stopping{false};
  std::atomic<uint64_t> requests{0};
  std::atomic<bool> guard_sleeps{false};

  mutable absl::Mutex mutex;
  bool guard_wanted ABSL_GUARDED_BY(mutex) = false;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Listener>> listeners ABSL_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<ServingThread>> threads ABSL_GUARDED_BY(mutex);
  int next_lane ABSL_GUARDED_BY(mutex) = 0;

  absl::Status OpenLanes();
  bool CanStartThread() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void StartThread(std::shared_ptr<State> self, int lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  NotifySlot* FreeSlot() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  std::shared_ptr<Listener> Find(uint64_t cgroup_id) const;
  void Drop(uint64_t cgroup_id);

  void Serve(ServingThread& thread);
  // False once the thread's lane belongs to another.
  bool ServeOne(ServingThread& thread, Listener& listener);
  void Work(ServingThread& thread, Listener& listener);
  void WakeGuard();

  void Guard(std::shared_ptr<State> self);
  bool SleepWhileQuiet(uint64_t seen);
  bool LookAfterAll(std::shared_ptr<State> self);
  void LookAfter(std::shared_ptr<State> self, ServingThread& thread, int64_t now);
  void ReapEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
};

absl::Status NotifyPool::State::OpenLanes() {
  wake = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  for (int i = 0; i < options.lanes; ++i) {
    UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll.valid()) return ErrnoStatus(errno, "epoll_create1");
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeKey}};
    if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0)
      return ErrnoStatus(errno, "epoll_ctl");
    lanes.push_back(std::move(epoll));
  }
  return absl::OkStatus();
}

NotifySlot* NotifyPool::State::FreeSlot() const {
  for (NotifySlot& slot : options.shared->slots) {
    bool used = false;
    for (const auto& thread : threads) used = used || thread->slot == &slot;
    if (!used) return &slot;
  }
  return nullptr;
}

bool NotifyPool::State::CanStartThread() const {
  return threads.size() < kThreadsMax && FreeSlot() != nullptr;
}

void NotifyPool::State::StartThread(std::shared_ptr<State> self, int lane) {
  auto thread = std::make_shared<ServingThread>();
  thread->lane = lane;
  thread->slot = FreeSlot();
  thread->server = options.make_server();
  threads.push_back(thread);
  thread->thread = std::thread([self = std::move(self), thread] {
    RunAtOnce();
    self->Serve(*thread);
    absl::MutexLock lock(&self->mutex);
    thread->ended = true;
  });
}

std::shared_ptr<Listener> NotifyPool::State::Find(uint64_t cgroup_id) const {
  absl::MutexLock lock(&mutex);
  const auto found = listeners.find(cgroup_id);
  return found == listeners.end() ? nullptr : found->second;
}

void NotifyPool::State::Drop(uint64_t cgroup_id) {
  absl::MutexLock lock(&mutex);
  const auto listener = listeners.find(cgroup_id);
  if (listener == listeners.end()) return;
  // By hand: the holder's descriptor keeps the same open file, and with it the entry in the epoll set, alive.
  epoll_ctl(lanes[listener->second->lane].get(), EPOLL_CTL_DEL, listener->second->fd.get(), nullptr);
  listeners.erase(listener);
}

void NotifyPool::State::Serve(ServingThread& thread) {
  while (!stopping) {
    epoll_event event;
    if (epoll_wait(lanes[static_cast<size_t>(thread.lane)].get(), &event, 1, -1) != 1) continue;
    if (event.data.u64 == kWakeKey) return;
    const std::shared_ptr<Listener> listener = Find(event.data.u64);
    if (listener == nullptr) continue;
    if ((event.events & EPOLLIN) != 0) {
      if (!ServeOne(thread, *listener)) return;
    } else if ((event.events & (EPOLLHUP | EPOLLERR)) != 0) {
      Drop(listener->cgroup_id);  // no process is left behind the filter
      if (options.on_gone) options.on_gone(listener->cgroup_id);
    }
  }
}

bool NotifyPool::State::ServeOne(ServingThread& thread, Listener& listener) {
  NotifySlot& slot = *thread.slot;
  slot.request.id = 0;
  slot.cgroup_id.store(listener.cgroup_id, std::memory_order_relaxed);
  thread.cgroup_id = listener.cgroup_id;
  thread.since_ns.store(NowNs(), std::memory_order_release);
  options.shared->TurnsOf(listener.cgroup_id).fetch_add(1, std::memory_order_relaxed);
  requests.fetch_add(1);
  if (guard_sleeps) WakeGuard();
  if (ReceiveNotify(listener.fd.get(), &slot.request) == ReceiveResult::kRequest) {
    Work(thread, listener);
  } else {
    slot.cgroup_id.store(0, std::memory_order_relaxed);
  }
  if (thread.since_ns.exchange(kIdle) != kReplaced) return true;
  if (listener.closed()) --listener.hung;
  return false;
}

// Exceptions mean that memory is short: the record is lost, and the agent goes on where nothing is stopped.
void NotifyPool::State::Work(ServingThread& thread, Listener& listener) {
  NotifySlot& slot = *thread.slot;
  bool captured = false;
  NotifyAnswer answer;
  if (listener.closed()) answer = {false, EACCES};
  try {
    if (listener.closed() && listener.hung >= kHungMost) {
      answer.error = EAGAIN;
    } else if (listener.stuck < kStuckNothing) {
      answer = thread.server->Capture(listener, slot.request);
      captured = true;
    }
  } catch (...) {
  }
  if (answer.later) {
    // And has its own slot.
  } else if (answer.goes_on) {
    ContinueNotify(listener.fd.get(), slot.request.id);
  } else {
    AnswerNotify(listener.fd.get(), slot.request.id, answer.error, answer.value);
  }
  slot.cgroup_id.store(0, std::memory_order_release);
  try {
    if (captured) thread.server->Finish(listener);
  } catch (...) {
    captured = false;
  }
  if (!captured) thread.server->Lost();
}

void NotifyPool::State::WakeGuard() {
  absl::MutexLock lock(&mutex);
  guard_wanted = true;
}

void NotifyPool::State::Guard(std::shared_ptr<State> self) {
  uint64_t seen = 0;
  int quiet = 0;
  while (!stopping) {
    if (quiet >= kQuietTicks && SleepWhileQuiet(seen)) quiet = 0;
    {
      absl::MutexLock lock(&mutex);
      mutex.AwaitWithTimeout(absl::Condition(
                                 +[](std::atomic<bool>* stop) { return stop->load(); }, &stopping),
                             kGuardTick);
    }
    const bool busy = LookAfterAll(self);
    quiet = busy || requests != seen ? 0 : quiet + 1;
    seen = requests;
  }
}

bool NotifyPool::State::SleepWhileQuiet(uint64_t seen) {
  absl::MutexLock lock(&mutex);
  guard_wanted = stopping;
  guard_sleeps = true;
  // A thread that did not see guard_sleeps yet has counted its request before.
  if (requests == seen) mutex.Await(absl::Condition(&guard_wanted));
  guard_sleeps = false;
  return true;
}

bool NotifyPool::State::LookAfterAll(std::shared_ptr<State> self) {
  std::vector<std::shared_ptr<ServingThread>> all;
  {
    absl::MutexLock lock(&mutex);
    ReapEnded();
    all = threads;
  }
  bool busy = false;
  const int64_t now = NowNs();
  for (const auto& thread : all) {
    busy = busy || thread->since_ns != kIdle;
    if (!stopping) LookAfter(self, *thread, now);
  }
  return busy;
}

void NotifyPool::State::LookAfter(std::shared_ptr<State> self, ServingThread& thread, int64_t now) {
  int64_t since = thread.since_ns;
  if (since <= kIdle || now - since < kReceive_ns) return;
  const std::shared_ptr<Listener> listener = Find(thread.cgroup_id);
  const bool answered = thread.slot->cgroup_id == 0;
  const uint64_t id = IdOfRequest(*thread.slot);
  if (!answered && id == 0) {  // it comes back with nothing; again at the next tick when it was not there yet
    pthread_kill(thread.thread.native_handle(), kCallBack);
    return;
  }
  // Who performs a call is busy with it, not gone: the holder must not answer it meanwhile.
  if (!answered && listener != nullptr && listener->closed())
    options.shared->TurnsOf(listener->cgroup_id).fetch_add(1, std::memory_order_relaxed);
  if (now - since < options.hang_ns) return;
  absl::MutexLock lock(&mutex);
  // The exchange fails when the thread has gone on meanwhile, and with it what was read above.
  const bool replace = CanStartThread();
  if (!thread.since_ns.compare_exchange_strong(since, replace ? kReplaced : since)) return;
  if (listener != nullptr && !listener->closed()) {
    if (!answered) ContinueNotify(listener->fd.get(), id);
    if (replace) ++listener->stuck;
  } else if (listener != nullptr && replace) {
    ++listener->hung;
  }
  if (replace) StartThread(self, thread.lane);
}

void NotifyPool::State::ReapEnded() {
  for (auto it = threads.begin(); it != threads.end();) {
    if (!(*it)->ended) {
      ++it;
      continue;
    }
    (*it)->thread.join();  // it holds the mutex no more: `ended` is set under it, last
    it = threads.erase(it);
  }
}

absl::StatusOr<std::unique_ptr<NotifyPool>> NotifyPool::Start(Options options) {
  auto state = std::make_shared<State>();
  state->options = std::move(options);
  if (state->options.shared == nullptr) {
    state->own_shared = std::make_unique<NotifyShared>();
    state->options.shared = state->own_shared.get();
  }
  RETURN_IF_ERROR(state->OpenLanes());
  struct sigaction nothing {};
  nothing.sa_handler = +[](int) {};  // and no SA_RESTART: it is there to interrupt
  sigaction(kCallBack, &nothing, nullptr);
  {
    absl::MutexLock lock(&state->mutex);
    for (int lane = 0; lane < state->options.lanes; ++lane) {
      if (!state->CanStartThread()) return absl::InternalError("too few slots for the notify threads");
      state->StartThread(state, lane);
    }
  }
  std::unique_ptr<NotifyPool> pool(new NotifyPool(state));
  pool->guard_ = std::thread([state] { state->Guard(state); });
  return pool;
}

NotifyPool::~NotifyPool() {
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopping = true;
    state_->guard_wanted = true;
  }
  [[maybe_unused]] const int r = eventfd_write(state_->wake.get(), 1);
  guard_.join();
  absl::MutexLock lock(&state_->mutex);
  for (const auto& thread : state_->threads) {
    // One that hangs in the kernel is left behind; it holds what it needs by itself.
    if (state_->mutex.AwaitWithTimeout(absl::Condition(&thread->ended), kStopWait)) {
      thread->thread.join();
    } else {
      thread->thread.detach();
    }
  }
}

absl::Status NotifyPool::Add(uint64_t cgroup_id, UniqueFd fd, std::shared_ptr<Gate> gate) {
  // Without it (before Linux 6.6) the reader may be woken on another processor: slower, not wrong.
  SetSyncWakeUp(fd.get()).IgnoreError();
  auto listener = std::make_shared<Listener>();
  listener->cgroup_id = cgroup_id;
  listener->fd = std::move(fd);
  listener->gate = std::move(gate);
  absl::MutexLock lock(&state_->mutex);
  if (cgroup_id == kWakeKey || !state_->listeners.emplace(cgroup_id, listener).second) {
    return absl::AlreadyExistsError(absl::StrCat("cgroup ", cgroup_id, " has a notify listener already"));
  }
  listener->lane = static_cast<size_t>(state_->next_lane++ % state_->options.lanes);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = cgroup_id}};
  if (epoll_ctl(state_->lanes[listener->lane].get(), EPOLL_CTL_ADD, listener->fd.get(), &event) != 0) {
    const absl::Status status = ErrnoStatus(errno, "watch the notify listener");
    state_->listeners.erase(cgroup_id);
    return status;
  }
  return absl::OkStatus();
}

void NotifyPool::Remove(uint64_t cgroup_id) { state_->Drop(cgroup_id); }

void NotifyPool::Each(const std::function<void(uint64_t, int, bool)>& callback) const {
  absl::MutexLock lock(&state_->mutex);
  for (const auto& [cgroup_id, listener] : state_->listeners)
    callback(cgroup_id, listener->fd.get(), listener->gate != nullptr && listener->gate->armed());
}

size_t NotifyPool::listeners() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->listeners.size();
}

}  // namespace agentmon
