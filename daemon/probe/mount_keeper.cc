#include "daemon/probe/mount_keeper.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "common/base/clock.h"
#include "common/kernel/own_program.h"
#include "daemon/enforce/caller_lookup.h"
#include "daemon/probe/fanotify_group.h"

namespace agentmon {
namespace {

constexpr char kName[] = "agentmon-mounts";
constexpr char kOption[] = "--mounts";
constexpr int kChannelFd = 3;  // of the keeper, when it starts
constexpr int kGroupFd = 4;
constexpr int kRootFd = 5;
constexpr size_t kChunk = 256 << 10;

// Raw calls from here on: the C library would change all threads.
bool OpenWithRights(uid_t uid, gid_t gid, const std::vector<gid_t>& groups) {
  if (syscall(SYS_setgroups, groups.size(), groups.data()) != 0) return false;
  syscall(SYS_setfsgid, gid);
  syscall(SYS_setfsuid, uid);
  return static_cast<uid_t>(syscall(SYS_setfsuid, uid)) == uid;
}

// What a FUSE mount that is its owner's alone wants to see: all of the owner's ids. What marking needs stays.
bool BecomeOwner(uid_t uid, gid_t gid) {
  constexpr uint32_t kNeeded = 1u << CAP_SYS_ADMIN | 1u << CAP_DAC_READ_SEARCH;
  if (prctl(PR_SET_DUMPABLE, 0) != 0 || prctl(PR_SET_KEEPCAPS, 1) != 0 ||
      syscall(SYS_setgroups, 0, nullptr) != 0 || syscall(SYS_setresgid, gid, gid, gid) != 0 ||
      syscall(SYS_setresuid, uid, uid, uid) != 0)
    return false;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  data[0].permitted = data[0].effective = kNeeded;
  return syscall(SYS_capset, &header, data) == 0;
}

}  // namespace

void MountKeeper::Run() {
  signal(SIGCHLD, SIG_IGN);  // nobody waits for the children
  for (;;) {
    const auto received = ReceiveKeeperMessage(channel_.get());
    if (received.ok()) {
      OnMessage(*received);
    } else if (received.status().code() != absl::StatusCode::kFailedPrecondition) {
      _exit(0);
    }
  }
}

void MountKeeper::OnMessage(const KeeperMessage& message) {
  switch (message.head.type) {
    case KeeperMessageType::kBegin:
      return Begin(message);
    case KeeperMessageType::kMark:
      return Mark(message);
    case KeeperMessageType::kContent:
    case KeeperMessageType::kAnswer: {
      absl::MutexLock lock(&mutex_);
      const auto waits = words_.find(message.head.number);
      if (waits != words_.end()) waits->second = message.head;
      return;
    }
    default:
      return;
  }
}

void MountKeeper::Begin(const KeeperMessage& message) {
  {
    absl::MutexLock lock(&mutex_);
    rights_.uid = message.head.uid;
    rights_.gid = message.head.gid;
    rights_.groups.resize(message.text.size() / sizeof(gid_t));
    std::memcpy(rights_.groups.data(), message.text.data(), rights_.groups.size() * sizeof(gid_t));
    if (!begun_) StartReader();
    begun_ = true;
  }
  KeeperHead head;
  head.type = KeeperMessageType::kGroup;
  SendKeeperMessage(channel_.get(), head, {}, group_.get()).IgnoreError();
}

void MountKeeper::Mark(const KeeperMessage& message) {
  const pid_t child = fork();
  if (child == 0) MarkInChild(message.head, message.text.c_str());
  if (child > 0) return;
  KeeperHead failed = message.head;
  failed.type = KeeperMessageType::kMarked;
  failed.error = errno;
  SendKeeperMessage(channel_.get(), failed).IgnoreError();
}

// Of a process with threads: nothing but system calls.
void MountKeeper::MarkInChild(const KeeperHead& asked, const char* mount_point) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  KeeperHead head = asked;
  head.type = KeeperMessageType::kMarked;
  head.error = MarkMountBelow(group_.get(), root_.get(), mount_point, head.number, kFanotifyAsked);
  if (head.error == EACCES && BecomeOwner(head.uid, head.gid)) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // the change took it away
    head.error = MarkMountBelow(group_.get(), root_.get(), mount_point, head.number, kFanotifyAsked);
  }
  [[maybe_unused]] const ssize_t n = send(channel_.get(), &head, sizeof(head), MSG_NOSIGNAL);
  _exit(0);
}

void MountKeeper::StartReader() {
  ++readers_;
  ++idle_;
  std::thread([this] { Read(); }).detach();
}

void MountKeeper::SetBusy(bool busy) {
  absl::MutexLock lock(&mutex_);
  idle_ += busy ? -1 : 1;
  if (busy && idle_ == 0 && readers_ < kReadersMost) StartReader();
}

void MountKeeper::Read() {
  for (;;) {
    pollfd ready{group_.get(), POLLIN, 0};
    if (poll(&ready, 1, -1) != 1) continue;
    SetBusy(true);
    Rights rights;
    {
      absl::MutexLock lock(&mutex_);
      rights = rights_;
    }
    fanotify_event_metadata event{};
    ssize_t n = -1;
    errno = EPERM;
    // Here the file is opened, and this thread hangs if its server does.
    if (OpenWithRights(rights.uid, rights.gid, rights.groups)) n = read(group_.get(), &event, sizeof(event));
    if (n == sizeof(event)) {
      Handle(event);
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
      TellUnopened(errno);
    }
    SetBusy(false);
  }
}

void MountKeeper::TellUnopened(int error) {
  KeeperHead head;
  head.type = KeeperMessageType::kUnopened;
  head.error = error;
  SendKeeperMessage(channel_.get(), head, {}, -1, MSG_DONTWAIT).IgnoreError();
}

void MountKeeper::Handle(const fanotify_event_metadata& event) {
  if (event.fd < 0) return;
  const UniqueFd file(event.fd);
  const bool allow = Ask(event);
  if ((event.mask & kFanotifyWaits) == 0) return;
  const fanotify_response response{event.fd, static_cast<uint32_t>(allow ? FAN_ALLOW : FAN_DENY)};
  while (write(group_.get(), &response, sizeof(response)) < 0 && errno == EINTR) continue;
}

bool MountKeeper::Ask(const fanotify_event_metadata& event) {
  KeeperHead head;
  head.type = KeeperMessageType::kQuestion;
  head.tid = event.pid;
  head.mask = event.mask;
  head.sent_ns = SystemClock().BootNs();
  if ((event.mask & FAN_OPEN_EXEC_PERM) != 0) {
    head.size = lseek(event.fd, 0, SEEK_END);
    if (head.size < 0) {  // whether it is a copy of a program that may not run cannot be told
      TellUnopened(errno);
      return false;
    }
  }
  const bool asks = (event.mask & kFanotifyWaits) != 0;
  {
    absl::MutexLock lock(&mutex_);
    head.number = next_++;
    if (asks) words_[head.number].type = KeeperMessageType::kUnopened;
  }
  const bool sent =
      SendKeeperMessage(channel_.get(), head, PathOfDescriptor(event.fd), -1, MSG_DONTWAIT).ok();
  if (!asks) return true;
  KeeperHead word;
  word.type = KeeperMessageType::kUnopened;
  if (sent) word = Await(head.number);
  if (word.type == KeeperMessageType::kContent && SendContent(head.number, event.fd, head.size))
    word = Await(head.number);
  absl::MutexLock lock(&mutex_);
  words_.erase(head.number);
  return word.type == KeeperMessageType::kAnswer && word.allow != 0;
}

bool MountKeeper::SendContent(uint32_t number, int file, int64_t size) {
  const UniqueFd copy(memfd_create("content", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  std::vector<char> buffer(kChunk);
  for (int64_t at = 0; at < size;) {
    const ssize_t n =
        pread(file, buffer.data(), std::min<size_t>(kChunk, static_cast<size_t>(size - at)), at);
    if (n <= 0 || pwrite(copy.get(), buffer.data(), static_cast<size_t>(n), at) != n) return false;
    at += n;
  }
  KeeperHead head;
  head.type = KeeperMessageType::kContent;
  head.number = number;
  head.size = size;
  return SendKeeperMessage(channel_.get(), head, {}, copy.get(), MSG_DONTWAIT).ok();
}

KeeperHead MountKeeper::Await(uint32_t number) {
  absl::MutexLock lock(&mutex_);
  const auto came = [this, number]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return words_.at(number).type != KeeperMessageType::kUnopened;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&came), absl::Nanoseconds(kKeeperPatience_ns));
  KeeperHead word = words_.at(number);
  words_.at(number).type = KeeperMessageType::kUnopened;
  return word;
}

absl::Status StartMountKeeper(int channel, int group, int root) {
  return StartOwnProgram(kName, kOption, "", {channel, group, root});
}

void RunMountKeeperIfAsked(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], kOption) != 0) return;
  BecomeOwnProgram(kName, 3);
  MountKeeper(UniqueFd(kChannelFd), UniqueFd(kGroupFd), UniqueFd(kRootFd)).Run();
}

}  // namespace agentmon
