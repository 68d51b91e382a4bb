// Socket activation: the listening socket that the service manager made and keeps (sd_listen_fds(3)).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// Not valid when none was passed. An error when what was passed is not one unix stream socket that listens on
// `path`. Once; takes the variables out of the environment.
absl::StatusOr<UniqueFd> TakePassedSocket(const std::string& path);

// Whether the descriptor is a unix stream socket that listens on `path`, and what it is otherwise.
absl::Status CheckListensOn(int fd, const std::string& path);

}  // namespace agentmon
