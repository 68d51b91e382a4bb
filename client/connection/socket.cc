#include "client/connection/socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

bool HasUnit(const std::string& root) {
  if (access(absl::StrCat(root, "run/systemd/system").c_str(), F_OK) != 0)
    return false;  // systemd does not run
  for (const char* directory : {"etc", "run", "usr/local/lib", "usr/lib", "lib"}) {
    const std::string unit = absl::StrCat(root, directory, "/systemd/system/agentmon.service");
    if (access(unit.c_str(), F_OK) == 0) return true;
  }
  return false;
}

// The daemon that was built or installed with this program.
std::string DaemonBeside() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) return "";
  const absl::string_view own(path, static_cast<size_t>(size));
  const std::string daemon = absl::StrCat(own.substr(0, own.rfind('/') + 1), "agentmond");
  return access(daemon.c_str(), F_OK) == 0 ? daemon : "";
}

std::string HowToStartOwn() {
  const std::string daemon = DaemonBeside();
  return absl::StrCat("start it with '", daemon.empty() ? "agentmond" : daemon, " --user'");
}

std::string WhatToDo(bool own) {
  if (own) return HowToStartOwn();
  return absl::StrCat(HowToStart(), ", or name another with --socket");
}

absl::Status CannotConnect(int error, const std::string& path, bool own) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode))
    return absl::UnavailableError(absl::StrCat(path, " is no socket: name the daemon's with --socket"));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::UnavailableError(absl::StrCat("no daemon at ", path, " (no such file): ", WhatToDo(own)));
    case ECONNREFUSED:
      return absl::UnavailableError(
          absl::StrCat("no daemon listens at ", path, " (connection refused): ", WhatToDo(own)));
    case EACCES:
    case EPERM:
      return absl::UnavailableError(
          absl::StrCat("the daemon's socket ", path,
                       " may not be used by you (permission denied): ask who runs this "
                       "host for access, or name another with --socket"));
    case EAGAIN:
      return absl::UnavailableError(
          absl::StrCat("the daemon at ", path, " did not accept within 5 s: ", WhereToLook()));
    default:
      return absl::UnavailableError(
          absl::StrCat(ErrnoStatus(error, absl::StrCat("connect to ", path)).message(), ": ", WhatToDo(own)));
  }
}

absl::Status CheckServer(int fd, const std::string& path, bool own) {
  ucred server{};
  socklen_t size = sizeof server;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size) != 0) {
    return ErrnoStatus(errno, absl::StrCat("who listens at ", path));
  }
  const uid_t caller = geteuid();
  if (own && server.uid != caller)
    return absl::PermissionDeniedError(absl::StrCat("the program that listens at ", path, " runs as uid ",
                                                    server.uid, ", and --user means a daemon of your own"));
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

std::string HowToStart(const std::string& root) {
  if (HasUnit(root)) return "start it with 'systemctl start agentmon'";
  const std::string daemon = DaemonBeside();
  constexpr char kOrOwn[] = ", or, enforcing less, as yourself with --user";
  return daemon.empty() ? absl::StrCat("start agentmond as root", kOrOwn)
                        : absl::StrCat("start it as root with '", daemon, "'", kOrOwn);
}

std::string WhereToLook(const std::string& root) {
  return HasUnit(root) ? "look at 'systemctl status agentmon'"
                       : "look whether agentmond runs, and what it wrote to its standard error";
}

absl::StatusOr<UniqueFd> Dial(const std::string& path, bool own) {
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
  if (result != 0) return CannotConnect(errno, path, own);
  RETURN_IF_ERROR(CheckServer(fd.get(), path, own));
  if (fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "make the socket non-blocking");
  return fd;
}

}  // namespace agentmon
