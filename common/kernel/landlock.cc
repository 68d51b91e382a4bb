#include "common/kernel/landlock.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/status.h"

namespace agentmon {
namespace {

// The same on every architecture.
constexpr long kCreateRuleset = 444, kRestrictSelf = 446;
constexpr unsigned kVersion = 1;

}  // namespace

int LandlockAbi() {
  const long abi = syscall(kCreateRuleset, nullptr, 0, kVersion);
  return abi < 0 ? 0 : static_cast<int>(abi);
}

absl::StatusOr<UniqueFd> MakeLandlockRuleset(const LandlockRuleset& ruleset) {
  const long fd = syscall(kCreateRuleset, &ruleset, sizeof(ruleset), 0);
  if (fd < 0) return ErrnoStatus(errno, "make a Landlock ruleset");
  return UniqueFd(static_cast<int>(fd));
}

absl::Status EnterLandlockDomain(const UniqueFd& ruleset) {
  if (syscall(kRestrictSelf, ruleset.get(), 0) != 0) return ErrnoStatus(errno, "enter the Landlock domain");
  return absl::OkStatus();
}

}  // namespace agentmon
