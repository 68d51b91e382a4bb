#include "client/connection/socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr char kWhatToDo[] = "start it with 'systemctl start agentmond', or name another with --socket";

absl::Status CannotConnect(int error, const std::string& path) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::UnavailableError(absl::StrCat("no daemon at ", path, " (no such file): ", kWhatToDo));
    case ECONNREFUSED:
      return absl::UnavailableError(
          absl::StrCat("no daemon listens at ", path, " (connection refused): ", kWhatToDo));
    case EACCES:
    case EPERM:
      return absl::UnavailableError(
          absl::StrCat("the daemon's socket ", path,
                       " may not be used by you (permission denied): ask who runs this "
                       "host for access, or name another with --socket"));
    case EAGAIN:
      return absl::UnavailableError(absl::StrCat(
          "the daemon at ", path, " did not accept within 5 s: look at ", "'systemctl status agentmond'"));
    default:
      return absl::UnavailableError(
          absl::StrCat(ErrnoStatus(error, absl::StrCat("connect to ", path)).message(), ": ", kWhatToDo));
  }
}

absl::Status CheckServer(int fd, const std::string& path) {
  ucred server{};
  socklen_t size = sizeof server;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size) != 0) {
    return ErrnoStatus(errno, absl::StrCat("who listens at ", path));
  }
  const uid_t caller = geteuid();
  if (ServerIsTrusted(server.uid, caller)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the program that listens at ", path, " is not trusted: it runs as uid ", server.uid,
                   caller == 0 ? ", and root believes root only" : ", neither root nor you",
                   ": name the daemon's socket with --socket"));
}

}  // namespace

std::string SocketPath(const std::string& option) {
  if (!option.empty()) return option;
  const char* from_environment = getenv("AGENTMON_SOCKET");
  return from_environment != nullptr && *from_environment != '\0' ? from_environment : kDefaultSocket;
}

bool ServerIsTrusted(uid_t server, uid_t caller) { return server == 0 || server == caller; }

absl::StatusOr<UniqueFd> Dial(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return absl::UnavailableError(absl::StrCat("the socket's name ", path, " is too long: at most ",
                                               sizeof address.sun_path - 1, " bytes"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "make a socket");
  const timeval patience{5, 0};  // connect() on a full backlog waits that long, then says EAGAIN
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  int result;
  do {
    result = connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return CannotConnect(errno, path);
  RETURN_IF_ERROR(CheckServer(fd.get(), path));
  if (fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "make the socket non-blocking");
  return fd;
}

}  // namespace agentmon
