// A session's rules on files, sockets and signals as entries of the maps that the programs on the hooks of
// security modules look into.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bpf/lsm_abi.h"
#include "common/policy/snapshot.h"

namespace agentmon {

using LsmKey = std::array<uint64_t, 2>;  // of the hashes; random, so that nobody can aim at one

// The hash of one segment of a path, or of what one begins or ends with.
uint64_t LsmHash(const LsmKey& key, absl::string_view text);
// Of an absolute path, outermost first.
std::vector<uint64_t> LsmSegments(const LsmKey& key, absl::string_view path);
uint64_t LsmPathHash(const std::vector<uint64_t>& segments);
// What rules call a process outside of the session that stands so to the sender: AM_LSM_SYSTEM and others,
// bits.
uint32_t LsmSignalTarget(uint32_t relations);

struct LsmPolicy {
  am_lsm_policy head{};
  std::map<std::pair<am_lsm_kind, uint64_t>, am_lsm_node> nodes;
  std::unique_ptr<am_lsm_names> names;  // of sockets
  std::vector<std::string> roots;       // paths that rules name: to be held by inode as well
};

// Layers that only record are left out. spare: a file that the programs let through whatever the policy says,
// so that it can be tried what comes behind them; may be empty. ResourceExhausted when the policy does not
// fit. Pure; no I/O.
absl::StatusOr<LsmPolicy> CompileLsm(const policy::Snapshot& snapshot, const LsmKey& key,
                                     absl::string_view spare);

}  // namespace agentmon
