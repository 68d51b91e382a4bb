// Sockets that everybody may reach but sessions: what a session's shim tries, to prove that it cannot.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "daemon/enforce/shim_plan.h"

namespace agentmon {

// They are gone with this.
class CanarySockets {
 public:
  // directory: one that no session may connect into.
  static absl::StatusOr<CanarySockets> Create(const std::string& directory);

  const UnixCanaries& names() const { return names_; }
  int listener() const { return sockets_.front().get(); }  // of the path; does not block

 private:
  CanarySockets() = default;
  absl::Status Bind(const std::string& name, int type);

  UnixCanaries names_;
  std::vector<UniqueFd> sockets_;
};

}  // namespace agentmon
