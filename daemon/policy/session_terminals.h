// The terminals of a session: those that it was started on, and those whose other end it holds.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "common/kernel/proc_fs.h"

namespace agentmon {

// Core thread. Reads /proc only.
class SessionTerminals {
 public:
  explicit SessionTerminals(std::string proc = "/proc") : proc_(std::move(proc)) {}

  // The terminals behind the standard descriptors of a process, and its controlling one.
  void AddOf(pid_t pid);
  // A process of the session has opened /dev/ptmx.
  void AddMaker(pid_t pid);
  // path: /dev/pts/N or /dev/ttyN. Looks again at the makers when it is not known yet.
  bool Owns(absl::string_view path);

 private:
  void LookAtMakers();

  std::string proc_;
  std::set<std::string, std::less<>> own_;
  std::set<pid_t> makers_;
};

}  // namespace agentmon
