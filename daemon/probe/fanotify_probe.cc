#include "daemon/probe/fanotify_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "absl/strings/str_cat.h"
#include "bpf/event_abi.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "daemon/probe/caller.h"
#include "daemon/probe/file_record.h"

namespace agentmon {
namespace {

// Between an event and its reading: the kernel merges what comes meanwhile (open and close of one file become
// one event), and the notify source has time to say which opens were for writing.
constexpr int kGather_ms = 5;
constexpr uint64_t kWakeKey = 0;
// A server that has not let a mount be marked by then is told of, and its session begins without.
constexpr absl::Duration kLongestMark = absl::Milliseconds(700);

// Questions that come one after another are waited for awake: a thread that sleeps is woken in 20 us and
// more.
constexpr int64_t kOneAfterAnother_ns = 200'000;
constexpr int64_t kAwake_ns = 60'000;
// Then other sessions have their turn.
constexpr int64_t kLongestTurn_ns = 1'000'000;

// Two descriptors per session in the epoll set: its events and its mounts.
uint64_t EventsKey(uint64_t number) { return number << 1; }
uint64_t MountsKey(uint64_t number) { return number << 1 | 1; }

absl::Status Watch(int epoll, int fd, uint32_t events, uint64_t key) {
  epoll_event event{.events = events, .data = {.u64 = key}};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) return ErrnoStatus(errno, "epoll_ctl");
  return absl::OkStatus();
}

}  // namespace

FanotifyProbe::FanotifyProbe(TaskRunner& core, Options options) : core_(core), options_(std::move(options)) {}

absl::Status FanotifyProbe::Attach(RecordSink& sink) {
  RETURN_IF_ERROR(FanotifyGroup::CheckSupport());
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return ErrnoStatus(errno, "epoll_create1");
  wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return ErrnoStatus(errno, "eventfd");
  RETURN_IF_ERROR(Watch(epoll_.get(), wake_.get(), EPOLLIN, kWakeKey));
  asked_epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!asked_epoll_.valid()) return ErrnoStatus(errno, "epoll_create1");
  RETURN_IF_ERROR(Watch(asked_epoll_.get(), wake_.get(), EPOLLIN, kWakeKey));
  queue_ = RecordQueue::Create(core_, sink, options_.queue_bytes);
  served_ = std::make_unique<ServedMounts>(OpenRecords{queue_, options_.dedupe, options_.permits},
                                           options_.on_keeper);
  reader_ = std::thread([this] { Run(); });
  closer_ = std::thread([this] { RunCloser(); });
  for (int i = 0; i < options_.verdict_threads; ++i) verdict_threads_.emplace_back([this] { RunVerdicts(); });
  return absl::OkStatus();
}

FanotifyProbe::~FanotifyProbe() {
  if (!reader_.joinable()) return;
  stopping_ = true;
  [[maybe_unused]] const int r = eventfd_write(wake_.get(), 1);
  reader_.join();
  for (std::thread& thread : verdict_threads_) thread.join();
  served_.reset();
  {
    absl::MutexLock lock(&mutex_);
    sessions_.clear();
  }
  {
    absl::MutexLock lock(&closer_mutex_);
    closer_stops_ = true;
  }
  closer_.join();
}

std::shared_ptr<FanotifyProbe::Session> FanotifyProbe::MakeSession() {
  return std::shared_ptr<Session>(new Session, [this](Session* session) {
    absl::MutexLock lock(&closer_mutex_);
    to_close_.push_back(session);
  });
}

void FanotifyProbe::RunCloser() {
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(closer_mutex_) {
    return closer_stops_ || !to_close_.empty();
  };
  for (;;) {
    std::vector<Session*> taken;
    {
      absl::MutexLock lock(&closer_mutex_);
      closer_mutex_.Await(absl::Condition(&has_work));
      if (to_close_.empty()) return;
      taken.swap(to_close_);
    }
    for (Session* session : taken) delete session;
  }
}

ProbeStats FanotifyProbe::Stats() const { return queue_ != nullptr ? queue_->Stats() : ProbeStats{}; }

absl::Status FanotifyProbe::AddSession(uint64_t cgroup_id, pid_t pid, std::shared_ptr<Gate> gate,
                                       UniqueFd group, UniqueFd keeper) {
  {
    absl::MutexLock lock(&mutex_);
    if (numbers_.contains(cgroup_id)) return absl::AlreadyExistsError("the session is watched already");
    if (sessions_.size() >= options_.max_sessions) {
      return absl::ResourceExhaustedError(
          absl::StrCat(options_.max_sessions, " sessions are watched already (fs.fanotify.max_user_groups)"));
    }
  }
  const std::shared_ptr<Session> session = MakeSession();
  session->cgroup_id = cgroup_id;
  const FanotifyMode mode = gate == nullptr ? FanotifyMode::kHear : FanotifyMode::kAsk;
  const bool adopted = group.valid() && gate != nullptr;
  ASSIGN_OR_RETURN(session->group,
                   adopted ? FanotifyGroup::Adopt(pid, std::move(group)) : FanotifyGroup::Create(pid, mode));
  if (gate != nullptr) {
    ASSIGN_OR_RETURN(session->user, ReadCallerCredentials(pid));
    session->gate = gate;
    session->judge = std::make_unique<OpenJudge>(cgroup_id, std::move(gate),
                                                 OpenRecords{queue_, options_.dedupe, options_.permits});
  }
  uint64_t number;
  {
    absl::MutexLock lock(&mutex_);
    number = next_number_++;
    sessions_[number] = session;
    numbers_[cgroup_id] = number;
  }
  // Served before it is marked: the first question may come at once.
  absl::Status status = WatchSession(*session, number);
  if (status.ok()) status = session->group->MarkMounts().status();
  const bool kept = keeper.valid();  // with its marks
  if (status.ok()) status = FollowServed(*session, std::move(keeper)).status();
  if (status.ok() && !kept) served_->AwaitMarks(cgroup_id, kLongestMark);
  if (!status.ok()) RemoveSession(cgroup_id);
  return status;
}

absl::StatusOr<bool> FanotifyProbe::FollowServed(const Session& session, UniqueFd keeper) {
  if (session.judge == nullptr) return false;
  ASSIGN_OR_RETURN(std::vector<Mount> mounts, session.group->ServedMounts());
  std::set<uint64_t> numbers;
  for (const Mount& mount : mounts) numbers.insert(static_cast<uint64_t>(mount.id));
  if (options_.served != nullptr) options_.served->Set(session.cgroup_id, std::move(numbers));
  // Another user's mount, of a server that hangs, is no matter of this session's.
  mounts.erase(std::remove_if(mounts.begin(), mounts.end(),
                              [&](const Mount& mount) { return !MayEnter(mount, session.user.fsuid); }),
               mounts.end());
  const bool first = !served_->Has(session.cgroup_id) && (!mounts.empty() || keeper.valid());
  if (first) {
    ServedSession served;
    served.cgroup_id = session.cgroup_id;
    served.root = UniqueFd(fcntl(session.group->root(), F_DUPFD_CLOEXEC, 0));
    served.reader = session.user;
    served.gate = session.gate;
    served.keeper = std::move(keeper);
    RETURN_IF_ERROR(served_->Add(std::move(served)));
  }
  served_->Follow(session.cgroup_id, mounts);
  return first;
}

void FanotifyProbe::ForgetServed(uint64_t cgroup_id) {
  served_->Remove(cgroup_id);
  if (options_.served != nullptr) options_.served->Forget(cgroup_id);
}

UniqueFd FanotifyProbe::KeeperOf(uint64_t cgroup_id) const {
  return served_ == nullptr ? UniqueFd() : served_->KeeperOf(cgroup_id);
}

std::vector<uint64_t> FanotifyProbe::SessionsWithKeepers() const {
  return served_ == nullptr ? std::vector<uint64_t>() : served_->Sessions();
}

std::vector<UnmarkedMount> FanotifyProbe::Unmarked(uint64_t cgroup_id) const {
  if (served_ == nullptr) return {};
  std::vector<UnmarkedMount> unmarked = served_->Unmarked(cgroup_id);
  absl::MutexLock lock(&mutex_);
  const auto number = numbers_.find(cgroup_id);
  if (number == numbers_.end()) return unmarked;
  const std::vector<UnmarkedMount>& unkept = sessions_.at(number->second)->unkept;
  unmarked.insert(unmarked.end(), unkept.begin(), unkept.end());
  return unmarked;
}

void FanotifyProbe::NoteUnkept(Session& session, const absl::Status& status) {
  std::vector<UnmarkedMount> unkept;
  if (!status.ok()) {
    const auto mounts = session.group->ServedMounts();
    if (!mounts.ok())
      unkept.push_back({"/", "which ones is not known", std::string(mounts.status().message())});
    for (const Mount& mount : mounts.ok() ? *mounts : std::vector<Mount>()) {
      if (MayEnter(mount, session.user.fsuid))
        unkept.push_back({mount.mount_point, mount.fs_type, std::string(status.message())});
    }
  }
  absl::MutexLock lock(&mutex_);
  session.unkept = std::move(unkept);
}

absl::Status FanotifyProbe::WatchSession(const Session& session, uint64_t number) {
  if (session.judge == nullptr) {
    RETURN_IF_ERROR(Watch(epoll_.get(), session.group->fd(), EPOLLIN, EventsKey(number)));
  } else {
    RETURN_IF_ERROR(
        Watch(asked_epoll_.get(), session.group->fd(), EPOLLIN | EPOLLONESHOT, EventsKey(number)));
  }
  return Watch(epoll_.get(), session.group->mounts_fd(), EPOLLPRI, MountsKey(number));
}

void FanotifyProbe::EachAsked(
    const std::function<void(uint64_t cgroup_id, int group, uint64_t turns)>& callback) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [number, session] : sessions_) {
    if (session->judge != nullptr) callback(session->cgroup_id, session->group->fd(), session->turns);
  }
}

int FanotifyProbe::GroupOf(uint64_t cgroup_id) {
  absl::MutexLock lock(&mutex_);
  const auto number = numbers_.find(cgroup_id);
  if (number == numbers_.end()) return -1;
  const Session& session = *sessions_.at(number->second);
  return session.judge == nullptr ? -1 : session.group->fd();
}

void FanotifyProbe::PolicyChanged(uint64_t cgroup_id) {
  std::shared_ptr<Session> session;
  {
    absl::MutexLock lock(&mutex_);
    const auto number = numbers_.find(cgroup_id);
    if (number != numbers_.end()) session = sessions_.at(number->second);
  }
  if (session != nullptr && session->judge != nullptr) session->group->ForgetIgnored();
}

void FanotifyProbe::RemoveSession(uint64_t cgroup_id) {
  ForgetServed(cgroup_id);
  absl::MutexLock lock(&mutex_);
  const auto number = numbers_.find(cgroup_id);
  if (number == numbers_.end()) return;
  sessions_.erase(number->second);  // closing takes the descriptors out of the epoll sets
  numbers_.erase(number);
}

bool FanotifyProbe::Settled(uint64_t cgroup_id) {
  absl::MutexLock lock(&mutex_);
  const auto number = numbers_.find(cgroup_id);
  if (number == numbers_.end()) return true;
  const Session& session = *sessions_.at(number->second);
  return !session.group->Waits() && !session.reading;
}

void FanotifyProbe::Run() {
  CallerIdentities callers;
  epoll_event events[64];
  while (!stopping_) {
    int n = epoll_wait(epoll_.get(), events, 64, -1);
    if (n <= 0 || stopping_) continue;
    pollfd wake{wake_.get(), POLLIN, 0};
    poll(&wake, 1, kGather_ms);
    for (int i = 0; i < n && !stopping_; ++i) {
      if (events[i].data.u64 != kWakeKey) Serve(events[i].data.u64, callers);
    }
  }
}

std::shared_ptr<FanotifyProbe::Session> FanotifyProbe::FindSession(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  const auto found = sessions_.find(number);
  return found == sessions_.end() ? nullptr : found->second;
}

void FanotifyProbe::CountTurn(uint64_t cgroup_id) {
  if (options_.shared != nullptr)
    options_.shared->TurnsOf(~cgroup_id).fetch_add(1, std::memory_order_release);
}

// Whoever must answer in our place looks no further than this.
void FanotifyProbe::NoteDescriptor(int fd) {
  if (options_.shared == nullptr) return;
  std::atomic<uint32_t>& highest = options_.shared->highest_event_fd;
  uint32_t seen = highest.load(std::memory_order_relaxed);
  while (static_cast<uint32_t>(fd) > seen && !highest.compare_exchange_weak(seen, static_cast<uint32_t>(fd)))
    continue;
}

// Looks for the next question of the session, without sleeping, for kAwake_ns. At most half of the processors
// do: who asks needs one.
bool FanotifyProbe::ComesSoon(const Session& session) {
  bool comes = false;
  if (++awake_ <= most_awake_) {
    const int64_t until_ns = SystemClock().BootNs() + kAwake_ns;
    while (!comes && !stopping_ && SystemClock().BootNs() < until_ns) comes = session.group->Waits();
  }
  --awake_;
  return comes;
}

void FanotifyProbe::TakeTurn(Session& session, CallerIdentities& callers) {
  session.reading = true;
  const int64_t began_ns = SystemClock().BootNs();
  const bool follows = began_ns - session.answered_ns < kOneAfterAnother_ns;
  do {
    ++session.turns;
    CountTurn(session.cgroup_id);  // odd while it is at it
    const uint64_t lost = session.group->Read(
        [&](const FanotifyEvent& asked) {
          NoteDescriptor(asked.fd);
          return session.judge->Decide(asked, callers);
        },
        [&](const FanotifyEvent& asked) { session.judge->Finish(asked, *session.group); });
    CountTurn(session.cgroup_id);
    if (lost > 0) queue_->CountLost(lost);
    session.answered_ns = SystemClock().BootNs();
  } while (follows && session.answered_ns - began_ns < kLongestTurn_ns && ComesSoon(session));
  session.reading = false;
}

void FanotifyProbe::RunVerdicts() {
  // Somebody waits for each of its answers.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), -20);
  CallerIdentities callers;
  epoll_event event;
  while (!stopping_) {
    if (epoll_wait(asked_epoll_.get(), &event, 1, -1) != 1 || stopping_) continue;
    const std::shared_ptr<Session> session = FindSession(event.data.u64 >> 1);
    if (session == nullptr) continue;
    TakeTurn(*session, callers);
    epoll_event again{.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = event.data.u64}};
    epoll_ctl(asked_epoll_.get(), EPOLL_CTL_MOD, session->group->fd(), &again);
  }
}

void FanotifyProbe::Serve(uint64_t key, CallerIdentities& callers) {
  const std::shared_ptr<Session> session = FindSession(key >> 1);
  if (session == nullptr) return;
  if (key == MountsKey(key >> 1)) {
    // A mount that cannot be marked is not seen; its session goes on.
    if (const auto marks = session->group->MarkMounts(); !marks.ok())
      LogDebug("fanotify: ", marks.status().message());
    const auto first = FollowServed(*session, UniqueFd());
    if (!first.ok())
      LogWarning("mounts behind a server that are new are not asked: ", first.status().message());
    NoteUnkept(*session, first.status());
    if (FindSession(key >> 1) == nullptr) return ForgetServed(session->cgroup_id);  // it ended meanwhile
    if (first.value_or(false) && options_.on_keeper) options_.on_keeper(session->cgroup_id);
    return;
  }
  session->reading = true;
  const uint64_t lost = session->group->Read([&](const FanotifyEvent& event) {
    Record(*session, event, callers);
    return true;
  });
  session->reading = false;
  if (lost > 0) queue_->CountLost(lost);
}

void FanotifyProbe::Record(const Session& session, const FanotifyEvent& event, CallerIdentities& callers) {
  if (event.pid == 0 || event.path.empty()) {
    queue_->CountLost(1);
    return;
  }
  FileRecord record;
  record.source = v1::FANOTIFY;
  record.boot_ns = SystemClock().BootNs();
  record.cgroup_id = session.cgroup_id;
  record.pid = static_cast<uint32_t>(event.pid);
  record.tid = record.pid;
  record.caller_uid = callers.Find(event.pid).uid;
  record.path = event.path;
  const bool known =
      event.opened && options_.dedupe != nullptr &&
      options_.dedupe->TakeOpenedForWriting(session.cgroup_id, event.pid, event.path, record.boot_ns);
  if (event.opened && !known) {
    record.kind = v1::OPEN;
    record.flags = AM_F_FIRST_ONLY;
    queue_->Push(EncodeFileRecord(record));
    // Only now: an open for writing leaves the file unread.
    session.group->IgnoreOpens(event.fd);
  }
  if (event.closed_after_write) {
    record.kind = v1::WRITE;
    record.flags = AM_F_FIRST_ONLY;  // events of one file that wait are merged
    queue_->Push(EncodeFileRecord(record));
  }
}

}  // namespace agentmon
