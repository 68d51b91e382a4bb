// The daemon's own directories.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace agentmon {

// Makes the directory (and its parents, mode 0755) when it is not there; else checks that it is a real
// directory of ours that nobody else may write, and sets its mode. Never follows a link at its end.
absl::Status PrepareDirectory(const std::string& path, mode_t mode);

inline constexpr char kMainInstance[] = "main";
// What names this instance's cgroups: "main" for the default runtime directory, else a hash of its name.
std::string InstanceName(const std::string& runtime_dir);

}  // namespace agentmon
