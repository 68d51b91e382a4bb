// RUNTIME/sessions/ID: what a later daemon must know about sessions that outlived this one. The runtime
// directory is gone after a reboot, exactly like the cgroups that the files speak of.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agentmon/v1/sessions.pb.h"

namespace agentmon {

class SessionFiles {
 public:
  explicit SessionFiles(std::string directory) : directory_(std::move(directory)) {}
  absl::Status Write(const v1::Session& session) const;  // atomic replace
  void Remove(const std::string& id) const;
  std::vector<v1::Session> ReadAll() const;  // what does not parse is removed

 private:
  std::string directory_;
};

}  // namespace agentmon
