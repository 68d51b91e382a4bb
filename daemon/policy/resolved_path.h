// Where a name leads that a program gave to the kernel.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/strings/string_view.h"

namespace agentmon {

// All links followed, also /proc/self of the process; empty when that is not known without waiting for a disk
// or a server (RESOLVE_CACHED, Linux 5.12; a link whose time of access is due to be set counts as one), or
// when the name leads nowhere. A name may lead elsewhere by now than it did when it was used.
std::string ResolvedPath(absl::string_view path, pid_t pid);

}  // namespace agentmon
