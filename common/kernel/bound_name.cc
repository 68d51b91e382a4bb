#include "common/kernel/bound_name.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/kernel/sock_diag.h"

namespace agentmon {
namespace {

constexpr int kMostMessages = 100'000;
constexpr int kMinorBits = 20;  // of the kernel's own form of device numbers

absl::Status Ask(int fd) {
  struct {
    nlmsghdr header;
    unix_diag_req body;
  } request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.body.sdiag_family = AF_UNIX;
  request.body.udiag_states = UINT32_MAX;
  request.body.udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_VFS;
  if (::send(fd, &request, sizeof(request), 0) != static_cast<ssize_t>(sizeof(request)))
    return ErrnoStatus(errno, "ask for unix sockets");
  return absl::OkStatus();
}

// Is it this file's? Then its name.
bool IsBound(const nlmsghdr* header, const struct stat& file, std::string* name) {
  const auto* message = static_cast<const unix_diag_msg*>(NLMSG_DATA(header));
  const auto* attribute = reinterpret_cast<const rtattr*>(message + 1);
  int left = static_cast<int>(header->nlmsg_len - NLMSG_LENGTH(sizeof(*message)));
  bool same = false;
  absl::string_view found;
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    const auto* data = static_cast<const char*>(RTA_DATA(attribute));
    const size_t size = RTA_PAYLOAD(attribute);
    if (attribute->rta_type == UNIX_DIAG_NAME) found = {data, strnlen(data, size)};
    if (attribute->rta_type != UNIX_DIAG_VFS || size < sizeof(unix_diag_vfs)) continue;
    unix_diag_vfs vfs;
    std::memcpy(&vfs, data, sizeof(vfs));
    // The number of the inode is cut to 32 bits.
    same = vfs.udiag_vfs_ino == static_cast<uint32_t>(file.st_ino) &&
           vfs.udiag_vfs_dev >> kMinorBits == major(file.st_dev) &&
           (vfs.udiag_vfs_dev & ((1u << kMinorBits) - 1)) == minor(file.st_dev);
  }
  if (same) name->assign(found.data(), found.size());
  return same;
}

}  // namespace

absl::StatusOr<std::string> BoundName(const struct stat& file) {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenSockDiag());
  RETURN_IF_ERROR(Ask(fd.get()));
  alignas(nlmsghdr) char buffer[32768];
  for (int i = 0; i < kMostMessages; ++i) {
    const ssize_t n = ::recv(fd.get(), buffer, sizeof(buffer), 0);
    if (n < 0) return ErrnoStatus(errno, "read unix sockets");
    auto left = static_cast<size_t>(n);
    for (const auto* header = reinterpret_cast<const nlmsghdr*>(buffer); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE) return "";
      if (header->nlmsg_type == NLMSG_ERROR)
        return absl::UnavailableError("the kernel lists no unix sockets");
      std::string name;
      if (header->nlmsg_len >= NLMSG_LENGTH(sizeof(unix_diag_msg)) && IsBound(header, file, &name))
        return name;
    }
  }
  return absl::UnavailableError("there are too many unix sockets");
}

}  // namespace agentmon
