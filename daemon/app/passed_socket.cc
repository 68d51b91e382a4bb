#include "daemon/app/passed_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

std::string PathOf(int fd) {
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  return address.sun_family == AF_UNIX ? std::string(address.sun_path) : "";
}

}  // namespace

absl::Status CheckListensOn(int fd, const std::string& path) {
  if (sd_is_socket_unix(fd, SOCK_STREAM, 1, nullptr, 0) <= 0) {
    return absl::FailedPreconditionError(
        "the service manager passed something that is not a listening unix stream socket: agentmon.socket "
        "must "
        "have ListenStream= with a path");
  }
  if (const std::string passed = PathOf(fd); passed != path) {
    return absl::FailedPreconditionError(
        absl::StrCat("the service manager passed a socket at ", passed, ", the configuration says ", path,
                     ": make ListenStream= of agentmon.socket the same (systemctl edit agentmon.socket)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> TakePassedSocket(const std::string& path) {
  const int count = sd_listen_fds(1);
  if (count < 0) return ErrnoStatus(-count, "take the socket that the service manager passed");
  std::vector<UniqueFd> passed;
  for (int i = 0; i < count; ++i) passed.emplace_back(SD_LISTEN_FDS_START + i);
  if (passed.empty()) return UniqueFd();
  if (passed.size() > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the service manager passed ", count, " sockets: agentmon.socket must have one ListenStream="));
  }
  RETURN_IF_ERROR(CheckListensOn(passed[0].get(), path));
  if (::fcntl(passed[0].get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "fcntl");
  return std::move(passed[0]);
}

}  // namespace agentmon
