// Files of the daemon's own: read only when nobody else could have written them, replaced as a whole.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace agentmon {

// A regular file that root (or whoever runs us) owns and nobody else may write. Follows links. Never waits
// on a FIFO or a device. PermissionDenied, InvalidArgument (no regular file, too large) with what to do.
absl::StatusOr<std::string> ReadRootFile(const std::string& path, size_t max_bytes);

// Writes beside it and renames: whoever reads, after a crash of ours too, finds the old file or the new one.
// kMachine: after a crash of the machine too, by a sync, which may wait for a disk.
enum class Outlives { kProcess, kMachine };
absl::Status ReplaceFile(const std::string& path, absl::string_view bytes, mode_t mode, Outlives outlives);

}  // namespace agentmon
