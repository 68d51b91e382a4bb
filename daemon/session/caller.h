// Who is at the other end of a connection, and what that lets them do.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/kernel/pid_fd.h"

namespace agentmon {

enum class Role {
  kAgent,  // a process below a session's cgroup, whatever its uid, and any doubt
  kUser,   // own sessions
  kAdmin,  // root and members of the admin group: all sessions
};

absl::string_view RoleName(Role role);

struct Caller {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  Role role = Role::kAgent;
  std::string session;                 // role agent: the session that it is in, when known
  std::shared_ptr<const PidFd> pidfd;  // of the process that connected

  bool MaySee(uid_t owner) const { return role == Role::kAdmin || (role == Role::kUser && uid == owner); }
};

}  // namespace agentmon
