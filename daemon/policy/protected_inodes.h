// Files that a policy protects under one name and that have another one.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace agentmon {

// Not thread-safe. Looks at names and inodes below the literal beginnings of the rules, in the daemon's own
// mount namespace, and opens no file. A link made later from outside of the session is found once kFresh is
// over; inside of it none can be made. Files that are protected by a pattern without a literal beginning are
// not known here.
class ProtectedInodes {
 public:
  static constexpr int64_t kFresh_ns = 60'000'000'000;
  static constexpr size_t kEntriesMax = 200'000;

  // Reads (bit 1) and writes (bit 2) that are stopped on this path.
  using Stops = std::function<uint32_t(const std::string& path)>;
  static constexpr uint32_t kRead = 1, kWrite = 2, kUnknown = 3;

  // What is stopped on a file with several names by any of the protected ones. kUnknown, so all, when there
  // was too much to look at.
  uint32_t StoppedOn(const struct stat& st, const std::vector<std::string>& roots, const Stops& stops,
                     int64_t now_ns);
  // The policy is another one.
  void Forget() { fresh_until_ns_ = 0; }

 private:
  void LookAt(const std::string& path, const Stops& stops);
  bool IsServed(absl::string_view path) const;
  void LookThrough(int directory, const std::string& path, const Stops& stops, int depth);

  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, uint32_t> stopped_;  // by device and inode
  size_t entries_ = 0;
  std::vector<std::string> served_;  // mount points
  int64_t fresh_until_ns_ = 0;
};

}  // namespace agentmon
