// landlock(7) by raw system calls: no library of Debian 12 has them, and its headers lack what is newer.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// struct landlock_ruleset_attr of ABI 6.
struct LandlockRuleset {
  uint64_t handled_access_fs = 0;
  uint64_t handled_access_net = 0;
  uint64_t scoped = 0;
};

inline constexpr uint64_t kLandlockScopeAbstractUnix = 1ull << 0;
inline constexpr uint64_t kLandlockScopeSignal = 1ull << 1;
inline constexpr uint64_t kLandlockMakeBlock = 1ull << 11;
inline constexpr uint64_t kLandlockRefer = 1ull << 13;
inline constexpr int kLandlockReferAbi = 2;  // Linux 5.19
inline constexpr int kLandlockScopeAbi = 6;  // Linux 6.12

// 0 = this kernel has none, or it is switched off.
int LandlockAbi();

absl::StatusOr<UniqueFd> MakeLandlockRuleset(const LandlockRuleset& ruleset);

// These rights, which the ruleset handles, are granted below a directory.
absl::Status AllowBelow(const UniqueFd& ruleset, const char* directory, uint64_t access);

// The calling thread, and what it becomes and starts, for ever. Needs no_new_privs or CAP_SYS_ADMIN.
absl::Status EnterLandlockDomain(const UniqueFd& ruleset);

}  // namespace agentmon
