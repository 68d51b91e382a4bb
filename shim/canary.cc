#include "shim/canary.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/quota.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/kernel/refused_calls.h"

namespace agentmon {
namespace {

int ErrorOf(long result) { return result < 0 ? errno : 0; }

int ErrorOfOpen(const std::string& path, int flags) {
  const UniqueFd fd(open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600));
  return fd.valid() ? 0 : errno;
}

// Runs it: 0 means that it began.
int ErrorOfExec(const std::string& path) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  UniqueFd reads(ends[0]), writes(ends[1]);
  char* const argv[] = {const_cast<char*>(path.c_str()), nullptr};
  const pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) {
    execve(path.c_str(), argv, argv + 1);
    const int error = errno;
    _exit(write(writes.get(), &error, sizeof(error)) == sizeof(error) ? 0 : 1);
  }
  writes.Reset();
  int error = 0;
  while (read(reads.get(), &error, sizeof(error)) < 0 && errno == EINTR) {
  }
  if (error == 0) kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return error;
}

int ErrorOfUnix(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path.data(), path.size());
  const bool abstract = path[0] == '@';
  if (abstract) address.sun_path[0] = '\0';
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (abstract ? 0 : 1));
  const UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno;
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  if (type == SOCK_DGRAM) return ErrorOf(sendto(fd.get(), "", 0, 0, to, size));
  return ErrorOf(connect(fd.get(), to, size));
}

// "127.0.0.1:80"
bool ParseDestination(const std::string& text, sockaddr_in& address) {
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535)
    return false;
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  return inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) == 1;
}

int ErrorOfInet(const std::string& destination, int type) {
  sockaddr_in address{};
  if (!ParseDestination(destination, address)) return EINVAL;
  const UniqueFd fd(socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno == EPERM ? ENOTSUP : errno;  // another control's doing
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  if (type == SOCK_DGRAM) return ErrorOf(sendto(fd.get(), "", 0, 0, to, sizeof(address)));
  return ErrorOf(connect(fd.get(), to, sizeof(address)));
}

// "127.0.0.1:8080 CONNECT ..."
int ErrorOfProxy(const std::string& subject) {
  const size_t blank = subject.find(' ');
  sockaddr_in address{};
  if (blank == std::string::npos || !ParseDestination(subject.substr(0, blank), address)) return EINVAL;
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno == EPERM ? ENOTSUP : errno;  // another control's doing
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return EIO;
  const std::string request = subject.substr(blank + 1);
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
    return EIO;
  char answer[12];  // "HTTP/1.1 403"
  if (recv(fd.get(), answer, sizeof(answer), MSG_WAITALL) != static_cast<ssize_t>(sizeof(answer))) return EIO;
  const absl::string_view status(answer + 9, 3);
  return status == "403" ? EACCES : absl::StartsWith(status, "2") ? 0 : EIO;
}

// A personality that passes would stay.
int ErrorOfPersonality() {
  const int error = ErrorOf(syscall(SYS_personality, static_cast<unsigned long>(PER_LINUX32)));
  if (error == 0) syscall(SYS_personality, 0ul);
  return error;
}

int ErrorOfSignal(const std::string& subject, pid_t target) {
  int number = 0;
  if (!subject.empty() && !absl::SimpleAtoi(subject, &number)) return EINVAL;
  return ErrorOf(kill(target, number));
}

// An instance of the family that does nothing and that no kernel answers EPERM by itself, as far as there is
// one: modules can be asked about by root only, but the call that is gone since Linux 2.6 is in the family.
int ErrorOfCall(CallFamily family) {
  constexpr int kNoFd = -1, kNoCommand = -1;
  constexpr unsigned kBadFlags = ~0u, kTooLarge = 1u << 20;
  switch (family) {
    case CallFamily::kPtrace:
      return ErrorOf(syscall(SYS_ptrace, PTRACE_CONT, 0, 0, 0));
    case CallFamily::kBpf:
      return ErrorOf(syscall(SYS_bpf, kNoCommand, nullptr, kTooLarge));
    case CallFamily::kKernelModules:
#ifdef SYS_create_module
      return ErrorOf(syscall(SYS_create_module, nullptr, 0));
#else
      return ErrorOf(syscall(SYS_finit_module, kNoFd, nullptr, 0));
#endif
    case CallFamily::kNamespace:
      return ErrorOf(syscall(SYS_setns, kNoFd, 0));
    case CallFamily::kIoUring:
      return ErrorOf(syscall(SYS_io_uring_enter, kNoFd, 0, 0, 0, nullptr, 0));
    case CallFamily::kPerf:
      return ErrorOf(
          syscall(SYS_perf_event_open, nullptr, 0, -1, kNoFd, static_cast<unsigned long>(kBadFlags)));
    case CallFamily::kKeyring:
      return ErrorOf(syscall(SYS_keyctl, kNoCommand, 0, 0, 0, 0));
    case CallFamily::kHandles:
      return ErrorOf(syscall(SYS_open_by_handle_at, kNoFd, nullptr, 0));
    case CallFamily::kPersonality:
      return ErrorOfPersonality();
    case CallFamily::kTerminal:
      return ErrorOf(ioctl(kNoFd, TIOCSTI, nullptr));
    case CallFamily::kSockets:
      return ErrorOf(syscall(SYS_socket, AF_MAX + 1000, SOCK_STREAM, 0));
    case CallFamily::kSystem:
      return ErrorOf(syscall(SYS_quotactl, QCMD(Q_SYNC, 0xff), nullptr, 0, nullptr));
  }
  return 0;
}

// agentmon, which waits for us. Any other parent may end at any time.
bool IsClient(pid_t process) {
  char path[PATH_MAX];
  const ssize_t size = readlink(absl::StrCat("/proc/", process, "/exe").c_str(), path, sizeof(path));
  return size > 0 && absl::EndsWith(absl::string_view(path, static_cast<size_t>(size)), "/agentmon");
}

}  // namespace

absl::StatusOr<Outsider> Outsider::Find() {
  const pid_t parent = getppid();
  if (parent > 1 && IsClient(parent) && kill(parent, 0) == 0) return Outsider(parent);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe for the canaries");
  UniqueFd reads(ends[0]), writes(ends[1]);
  const pid_t child = fork();
  if (child < 0) return ErrnoStatus(errno, "make a process for the canaries");
  if (child == 0) {
    close(writes.get());
    char end;
    while (read(reads.get(), &end, 1) < 0 && errno == EINTR) {
    }
    _exit(0);
  }
  return Outsider(child, std::move(writes));
}

Outsider::~Outsider() {
  if (!life_.valid()) return;
  life_.Reset();  // no signal of ours reaches it any more
  waitpid(pid_, nullptr, 0);
}

int TryCanary(const v1::Canary& canary, pid_t outsider) {
  const std::string& subject = canary.subject();
  switch (canary.act()) {
    case v1::Canary::OPEN_READ:
      return ErrorOfOpen(subject, O_RDONLY);
    case v1::Canary::OPEN_WRITE:
      return ErrorOfOpen(subject, O_WRONLY);
    case v1::Canary::CREATE:
      return ErrorOfOpen(subject, O_WRONLY | O_CREAT | O_EXCL);
    case v1::Canary::EXEC:
      return ErrorOfExec(subject);
    case v1::Canary::UNLINK:
      return ErrorOf(unlink(subject.c_str()));
    case v1::Canary::RENAME:
      return ErrorOf(rename(subject.c_str(), (subject + ".renamed").c_str()));
    case v1::Canary::SIGNAL:
      return ErrorOfSignal(subject, canary.pid() != 0 ? canary.pid() : outsider);
    case v1::Canary::CALL:
      if (const auto family = ParseCallFamily(subject)) return ErrorOfCall(*family);
      break;
    case v1::Canary::UNIX_CONNECT:
      return ErrorOfUnix(subject, SOCK_STREAM);
    case v1::Canary::UNIX_SEND:
      return ErrorOfUnix(subject, SOCK_DGRAM);
    case v1::Canary::CONNECT:
      return ErrorOfInet(subject, SOCK_STREAM);
    case v1::Canary::SEND:
      return ErrorOfInet(subject, SOCK_DGRAM);
    case v1::Canary::ASK_PROXY:
      return ErrorOfProxy(subject);
    default:
      break;
  }
  return 0;  // an act that we do not know proves nothing
}

}  // namespace agentmon
