// Runs a program as a test's child and waits for it with a deadline.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace agentmon {

struct ProgramResult {
  int exit_status = -1;  // -1 when a signal ended it
  int signal = 0;
  std::string out;
  std::string err;
  bool timed_out = false;  // killed by us
};

struct ProgramOptions {
  std::function<void()> in_child;      // after fork, before exec
  std::function<void(pid_t)> started;  // in the parent, once the child exists
  int timeout_s = 30;
};

// argv[0] is looked up in PATH. Standard input is /dev/null; output and error are collected.
ProgramResult RunProgram(const std::vector<std::string>& argv, const ProgramOptions& options = {});

// A directory of one test, removed with its contents. In memory by default: a busy disk takes milliseconds
// for each directory. Programs with file capabilities need a place without nosuid.
class TempDir {
 public:
  explicit TempDir(const std::string& parent = "/dev/shm");
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Polls until `done` or the deadline; the last answer of `done`.
bool WaitFor(const std::function<bool()>& done, int timeout_ms = 10000);

}  // namespace agentmon
