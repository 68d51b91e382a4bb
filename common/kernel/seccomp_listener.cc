#include "common/kernel/seccomp_listener.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

namespace agentmon {

namespace {

bool Send(int listener, seccomp_notif_resp* response) {
  int sent;
  do {
    sent = ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, response);
  } while (sent != 0 && errno == EINTR);
  return sent == 0;
}

}  // namespace

absl::Status CheckSeccompListener(int fd) {
  char target[64] = {};
  const std::string link = absl::StrCat("/proc/self/fd/", fd);
  const ssize_t n = readlink(link.c_str(), target, sizeof(target) - 1);
  if (n < 0) return ErrnoStatus(errno, absl::StrCat("readlink ", link));
  if (absl::string_view(target) != "anon_inode:seccomp notify") {
    return absl::InvalidArgumentError("the descriptor that was handed over is no seccomp listener");
  }
  return absl::OkStatus();
}

ReceiveResult ReceiveNotify(int listener, seccomp_notif* request) {
  std::memset(request, 0, sizeof(*request));  // the kernel refuses anything else (EINVAL)
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, request) == 0) return ReceiveResult::kRequest;
  return errno == ENOENT || errno == EINTR ? ReceiveResult::kNone : ReceiveResult::kClosed;
}

bool ContinueNotify(int listener, uint64_t id) {
  seccomp_notif_resp response{};
  response.id = id;
  response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  return Send(listener, &response);
}

bool AnswerNotify(int listener, uint64_t id, int error, int64_t value) {
  seccomp_notif_resp response{};
  response.id = id;
  response.val = value;
  response.error = -error;
  return Send(listener, &response);
}

bool NotifyIdValid(int listener, uint64_t id) {
  return ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

absl::Status SetSyncWakeUp(int listener) {
  // The flags are the argument itself, not a pointer to them.
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP) == 0)
    return absl::OkStatus();
  return ErrnoStatus(errno, "set seccomp listener flags");
}

}  // namespace agentmon
