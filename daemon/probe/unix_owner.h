// Which unix sockets processes of a session serve: what a session talks to in itself is its own affair.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bpf/event_abi.h"
#include "daemon/probe/bpf_load.h"

struct unix_owner_bpf;

namespace agentmon {

// Any thread. Each answer is a walk of the kernel's over the unix sockets of our network namespace; those of
// others are nobody's.
class UnixOwner {
 public:
  static absl::StatusOr<std::shared_ptr<UnixOwner>> Create(uint32_t session_level);
  ~UnixOwner();

  // Is the socket whose file this is listened on, or received on, by a socket that was made in this session?
  // False too when it cannot be told.
  bool IsOwn(uint64_t cgroup_id, const struct stat& file) const;
  // name: without the NUL. type: of socket(2); sockets of different types may have the same name.
  bool IsOwnAbstract(uint64_t cgroup_id, absl::string_view name, int type) const;

 private:
  UnixOwner() = default;
  bool Any(const std::function<bool(const am_own_socket&)>& is_it) const;

  UniqueSkeleton<unix_owner_bpf> bpf_;
  UniqueLink link_;
};

}  // namespace agentmon
