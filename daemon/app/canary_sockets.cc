#include "daemon/app/canary_sockets.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {

absl::StatusOr<CanarySockets> CanarySockets::Create(const std::string& directory) {
  uint64_t number = 0;  // so that nobody has the name before us
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) return ErrnoStatus(errno, "getrandom");
  CanarySockets canaries;
  canaries.names_ = {directory + "/socket", absl::StrCat("@agentmon-canary-", absl::Hex(number))};
  unlink(canaries.names_.path.c_str());
  RETURN_IF_ERROR(canaries.Bind(canaries.names_.path, SOCK_STREAM));
  if (chmod(canaries.names_.path.c_str(), 0666) != 0) return ErrnoStatus(errno, "chmod a canary's socket");
  RETURN_IF_ERROR(canaries.Bind(canaries.names_.name, SOCK_STREAM));
  RETURN_IF_ERROR(canaries.Bind(canaries.names_.Datagrams(), SOCK_DGRAM));
  return canaries;
}

absl::Status CanarySockets::Bind(const std::string& name, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof(address.sun_path))
    return absl::InvalidArgumentError(absl::StrCat(name, " is too long for a socket"));
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    return ErrnoStatus(errno, absl::StrCat("bind ", name));
  if (type == SOCK_STREAM && listen(fd.get(), SOMAXCONN) != 0)
    return ErrnoStatus(errno, absl::StrCat("listen on ", name));
  sockets_.push_back(std::move(fd));
  return absl::OkStatus();
}

}  // namespace agentmon
