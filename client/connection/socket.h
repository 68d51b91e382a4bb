// The way to the daemon: which socket, and whether who listens there may be believed.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace agentmon {

inline constexpr char kDefaultSocket[] = "/run/agentmon/agentmond.sock";

// The --socket option, else AGENTMON_SOCKET, else the default.
std::string SocketPath(const std::string& option);

// A server is trusted when it runs as root or as the caller; by root only when it runs as root.
bool ServerIsTrusted(uid_t server, uid_t caller);

// A connected, non-blocking, close-on-exec socket on which nothing was sent yet. Waits at most five seconds
// for a busy server. Unavailable when nobody listens, PermissionDenied when the server is not trusted; the
// message is a whole sentence that says what to do.
// own: not even root is trusted.
absl::StatusOr<UniqueFd> Dial(const std::string& path, bool own = false);

// How agentmond is started on this host, "start it ...": by its systemd unit where there is one, else by
// hand.
std::string HowToStart(const std::string& root = "/");
// Where to look for what it said, "look at ...".
std::string WhereToLook(const std::string& root = "/");

}  // namespace agentmon
