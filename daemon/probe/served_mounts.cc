#include "daemon/probe/served_mounts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "daemon/probe/mount_keeper.h"

namespace agentmon {
namespace {

constexpr uint64_t kWakeKey = 0;    // no cgroup has this id
constexpr int kDeathsMost = 5;      // of a session's keepers: the next one would die as well
constexpr int kEventFdsMost = 256;  // numbers that a keeper may have given events
constexpr size_t kContentsMost = 64;
constexpr char kNotYet[] = "its server has not answered yet";

// Whose FUSE mount it is: the kernel lets others in only where the mount says so.
void TakeOwner(const Mount& mount, const CallerCredentials& user, KeeperHead& head) {
  head.uid = user.fsuid;
  head.gid = user.fsgid;
  for (absl::string_view option : absl::StrSplit(mount.super_options, ',')) {
    uint32_t id = 0;
    if (absl::ConsumePrefix(&option, "user_id=") && absl::SimpleAtoi(option, &id)) head.uid = id;
    if (absl::ConsumePrefix(&option, "group_id=") && absl::SimpleAtoi(option, &id)) head.gid = id;
  }
}

FanotifyEvent EventOf(const KeeperMessage& question) {
  FanotifyEvent event = EventOfMask(question.head.mask);
  event.pid = question.head.tid;
  event.path = question.text;
  event.served = true;
  return event;
}

}  // namespace

bool MayEnter(const Mount& mount, uid_t uid) {
  if (uid == 0 || !absl::StartsWith(mount.fs_type, "fuse")) return true;
  const std::vector<absl::string_view> options = absl::StrSplit(mount.super_options, ',');
  return std::any_of(options.begin(), options.end(), [uid](absl::string_view option) {
    return option == "allow_other" || option == absl::StrCat("user_id=", uid);
  });
}

ServedMounts::~ServedMounts() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (wake_.valid()) eventfd_write(wake_.get(), 1);
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status ServedMounts::Start() {
  if (thread_.joinable()) return absl::OkStatus();
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return ErrnoStatus(errno, "epoll_create1");
  wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return ErrnoStatus(errno, "eventfd");
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeKey}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0)
    return ErrnoStatus(errno, "epoll_ctl");
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

bool ServedMounts::Has(uint64_t cgroup_id) const { return Find(cgroup_id) != nullptr; }

ServedMounts::SessionPtr ServedMounts::Find(uint64_t cgroup_id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = sessions_.find(cgroup_id);
  return found == sessions_.end() ? nullptr : found->second;
}

absl::Status ServedMounts::Add(ServedSession known) {
  const auto session = std::make_shared<Session>(std::move(known), records_);
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Start());
  if (session->known.keeper.valid()) {
    RETURN_IF_ERROR(Begin(*session, std::move(session->known.keeper)));
  } else {
    // No O_NOATIME: a server may refuse it to whoever does not own the file.
    ASSIGN_OR_RETURN(session->group, NewAskedGroup(0));
    RETURN_IF_ERROR(WithContext(StartKeeper(*session), "start a mount keeper"));
  }
  sessions_[session->known.cgroup_id] = session;
  return absl::OkStatus();
}

// The group stays when it fails: with its last descriptor what waits there would be allowed.
absl::Status ServedMounts::StartKeeper(Session& session) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return ErrnoStatus(errno, "socketpair");
  UniqueFd own(ends[0]);
  const UniqueFd keepers(ends[1]);
  RETURN_IF_ERROR(StartMountKeeper(keepers.get(), session.group.get(), session.known.root.get()));
  return Begin(session, std::move(own));
}

absl::Status ServedMounts::Begin(Session& session, UniqueFd channel) {
  KeeperHead head;
  head.uid = session.known.reader.fsuid;
  head.gid = session.known.reader.fsgid;
  const std::vector<gid_t>& groups = session.known.reader.groups;
  const absl::string_view text(reinterpret_cast<const char*>(groups.data()), groups.size() * sizeof(gid_t));
  RETURN_IF_ERROR(SendKeeperMessage(channel.get(), head, text, -1, MSG_DONTWAIT));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = session.known.cgroup_id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, channel.get(), &event) != 0)
    return ErrnoStatus(errno, "epoll_ctl");
  session.channel = std::move(channel);
  return absl::OkStatus();
}

void ServedMounts::Follow(uint64_t cgroup_id, const std::vector<Mount>& mounts) {
  absl::MutexLock lock(&mutex_);
  const auto found = sessions_.find(cgroup_id);
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  std::map<uint32_t, Marked> now;
  for (const Mount& mount : mounts) {
    const auto id = static_cast<uint32_t>(mount.id);
    const auto known = session.mounts.find(id);
    if (known != session.mounts.end() && known->second.mount.mount_point == mount.mount_point &&
        (known->second.marked || known->second.why == kNotYet)) {
      now[id] = known->second;
      continue;
    }
    now[id] = {mount, false, kNotYet};
    KeeperHead head;
    head.type = KeeperMessageType::kMark;
    head.number = id;
    TakeOwner(mount, session.known.reader, head);
    const absl::Status sent =
        SendKeeperMessage(session.channel.get(), head, mount.mount_point, -1, MSG_DONTWAIT);
    if (!sent.ok()) now[id].why = std::string(sent.message());
  }
  session.mounts = std::move(now);
}

void ServedMounts::AwaitMarks(uint64_t cgroup_id, absl::Duration longest) {
  const SessionPtr session = Find(cgroup_id);
  if (session == nullptr) return;
  absl::MutexLock lock(&mutex_);
  const auto answered = [&session] {
    return std::none_of(session->mounts.begin(), session->mounts.end(),
                        [](const auto& entry) { return entry.second.why == kNotYet; });
  };
  mutex_.AwaitWithTimeout(absl::Condition(&answered), longest);
}

std::vector<UnmarkedMount> ServedMounts::Unmarked(uint64_t cgroup_id) const {
  absl::MutexLock lock(&mutex_);
  std::vector<UnmarkedMount> out;
  const auto found = sessions_.find(cgroup_id);
  if (found == sessions_.end()) return out;
  for (const auto& [id, entry] : found->second->mounts) {
    if (!entry.marked && !entry.why.empty())
      out.push_back({entry.mount.mount_point, entry.mount.fs_type, entry.why});
  }
  return out;
}

UniqueFd ServedMounts::KeeperOf(uint64_t cgroup_id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = sessions_.find(cgroup_id);
  if (found == sessions_.end() || !found->second->channel.valid()) return {};
  return UniqueFd(fcntl(found->second->channel.get(), F_DUPFD_CLOEXEC, 0));
}

std::vector<uint64_t> ServedMounts::Sessions() const {
  absl::MutexLock lock(&mutex_);
  std::vector<uint64_t> ids;
  for (const auto& [cgroup_id, session] : sessions_) ids.push_back(cgroup_id);
  return ids;
}

void ServedMounts::Remove(uint64_t cgroup_id) {
  absl::MutexLock lock(&mutex_);
  const auto found = sessions_.find(cgroup_id);
  if (found == sessions_.end()) return;
  // By hand: the holder's descriptor keeps the same open file, and with it this entry, alive.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second->channel.get(), nullptr);
  sessions_.erase(found);
}

void ServedMounts::Run() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), -20);  // somebody waits for each of its answers
  int epoll;
  {
    absl::MutexLock lock(&mutex_);
    epoll = epoll_.get();
  }
  for (;;) {
    epoll_event event;
    const int n = epoll_wait(epoll, &event, 1, -1);
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
    }
    if (n != 1) continue;
    if (const SessionPtr session = Find(event.data.u64); session != nullptr) Serve(*session);
  }
}

void ServedMounts::Serve(Session& session) {
  auto received = ReceiveKeeperMessage(session.channel.get(), MSG_DONTWAIT);
  if (received.ok()) return OnMessage(session, *std::move(received));
  if (absl::IsUnavailable(received.status())) return OnKeeperGone(session);
  LogDebug("mount keeper: ", received.status().message());
}

void ServedMounts::OnMessage(Session& session, KeeperMessage message) {
  switch (message.head.type) {
    case KeeperMessageType::kGroup: {
      absl::MutexLock lock(&mutex_);
      session.group = std::move(message.fd);
      return;
    }
    case KeeperMessageType::kMarked:
      return OnMarked(session, message.head);
    case KeeperMessageType::kQuestion:
      return OnQuestion(session, message);
    case KeeperMessageType::kContent: {
      const auto question = contents_.find({session.known.cgroup_id, message.head.number});
      if (question == contents_.end()) return;
      // Without the content it cannot be judged: the keeper's own answer is no.
      if (message.fd.valid()) Answer(session, question->second, message.fd.get());
      contents_.erase(question);
      return;
    }
    case KeeperMessageType::kUnopened:
      LogDebug("a file behind a server could not be opened in the place of who asked, who was denied: ",
               ErrnoName(message.head.error));
      return records_.queue->CountLost(1);
    default:
      return;
  }
}

void ServedMounts::OnMarked(Session& session, const KeeperHead& head) {
  absl::MutexLock lock(&mutex_);
  const auto found = session.mounts.find(head.number);
  if (found == session.mounts.end()) return;
  Marked& entry = found->second;
  entry.marked = head.error == 0;
  entry.why.clear();
  // Another mount lies over it: nobody reaches it by its path.
  if (entry.marked || head.error == ESTALE || head.error == ENOENT || head.error == ENOTDIR) return;
  entry.why = absl::StrCat("marking it failed: ", ErrnoName(head.error));
  LogWarning("reads below ", entry.mount.mount_point, " (", entry.mount.fs_type,
             ") are not asked: ", entry.why);
}

// What a program that is started holds is looked at only where its size is that of one that rules name.
void ServedMounts::OnQuestion(Session& session, const KeeperMessage& message) {
  const KeeperHead& head = message.head;
  const bool asks = (head.mask & kFanotifyWaits) != 0;
  if (asks && SystemClock().BootNs() - head.sent_ns > kKeeperPatience_ns) return;  // it was denied
  if ((head.mask & FAN_OPEN_EXEC_PERM) == 0 || !session.known.gate->Programs()->KnowsSize(head.size))
    return Answer(session, message, -1);
  if (contents_.size() >= kContentsMost) contents_.clear();  // of keepers that are gone
  KeeperMessage& kept = contents_[{session.known.cgroup_id, head.number}];
  kept.head = head;
  kept.text = message.text;
  KeeperHead ask = head;
  ask.type = KeeperMessageType::kContent;
  SendKeeperMessage(session.channel.get(), ask, {}, -1, MSG_DONTWAIT).IgnoreError();
}

void ServedMounts::Answer(Session& session, const KeeperMessage& question, int content) {
  FanotifyEvent event = EventOf(question);
  event.fd = content;
  const bool allow = session.judge.Decide(event, callers_);
  if ((question.head.mask & kFanotifyWaits) != 0) {
    KeeperHead head;
    head.type = KeeperMessageType::kAnswer;
    head.number = question.head.number;
    head.allow = allow ? 1 : 0;
    SendKeeperMessage(session.channel.get(), head, {}, -1, MSG_DONTWAIT).IgnoreError();
  }
  session.judge.Tell(event);
}

// What it had taken from the kernel is denied, what waits there waits for the next one.
void ServedMounts::OnKeeperGone(Session& session) {
  const uint64_t cgroup_id = session.known.cgroup_id;
  absl::Status started = absl::UnavailableError("and so were those before it");
  {
    absl::MutexLock lock(&mutex_);
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session.channel.get(), nullptr);
    for (int fd = 0; session.group.valid() && fd < kEventFdsMost; ++fd) {
      const fanotify_response response{fd, FAN_DENY};
      while (write(session.group.get(), &response, sizeof(response)) == sizeof(response)) continue;
    }
    if (++session.deaths <= kDeathsMost && session.group.valid()) started = StartKeeper(session);
    for (auto& [id, entry] : session.mounts) {
      if (!started.ok())
        entry.why = absl::StrCat("its keeper is gone, and opens there wait: ", started.message());
      entry.marked = entry.marked && started.ok();
    }
  }
  if (!started.ok()) return LogError("mount keeper: ", started.message());
  LogWarning("a mount keeper is gone; another one goes on with its questions");
  if (on_keeper_) on_keeper_(cgroup_id);
}

}  // namespace agentmon
