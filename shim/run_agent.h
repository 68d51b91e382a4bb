// Becomes the agent.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace agentmon {

inline constexpr int kExitOwnFailure = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

// execvp(3) with this environment ("NAME=VALUE" words): its PATH counts, files without "#!" go to /bin/sh.
// Comes back only by ending the process, with 127 when there is no such program and 126 when it cannot be
// started, as env(1) and the shells do.
[[noreturn]] void RunAgent(char** command, const std::vector<std::string>& environment);

// execvp's errno, but a program that is nowhere in PATH is "not found" also where a directory of PATH may not
// be read.
int ErrorOfSearch(int error, absl::string_view program, absl::string_view path);

// One line on standard error and _exit: safe under the notify filter, since nothing of it is mediated.
[[noreturn]] void Fail(int status, absl::string_view why);

}  // namespace agentmon
