// A file with the repetitions that the folder has counted and not sent on yet, so that a daemon that is
// killed loses a second of them and not a window.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/event/event.h"

namespace agentmon {

// Core thread. The file lies in memory (the runtime directory): writing it waits for no disk.
class PendingCounts {
 public:
  static constexpr size_t kMaxEvents = 10'000;  // of more, the others are lost with the daemon

  // Empty path: keeps nothing.
  explicit PendingCounts(std::string path) : path_(std::move(path)) {}

  // In place of what was kept before; nothing = no file.
  absl::Status Keep(const std::vector<const Event*>& events);
  // What an earlier daemon has left; a file that was cut off gives what can be read of it. Leaves no file.
  std::vector<Event> Take();

 private:
  const std::string path_;
};

}  // namespace agentmon
