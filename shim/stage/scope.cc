#include "shim/stage/scope.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/kernel/landlock.h"

namespace agentmon {

absl::Status EnterScope(int abi) {
  if (abi < kLandlockScopeAbi) {
    return absl::FailedPreconditionError(absl::StrCat(
        "Landlock of this kernel has ABI ", abi, ", and scopes need ", kLandlockScopeAbi, " (Linux 6.12)"));
  }
  LandlockRuleset ruleset;
  ruleset.scoped = kLandlockScopeAbstractUnix | kLandlockScopeSignal;
  ASSIGN_OR_RETURN(const UniqueFd fd, MakeLandlockRuleset(ruleset));
  return EnterLandlockDomain(fd);
}

}  // namespace agentmon
