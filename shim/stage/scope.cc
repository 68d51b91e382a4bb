#include "shim/stage/scope.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/kernel/landlock.h"

namespace agentmon {

namespace {

// Before there were scopes: a domain that forbids what nobody in it may do anyway. Any domain keeps those in
// it from the insides of processes that are not. Moving and linking between directories must be allowed
// expressly.
absl::Status EnterNarrowDomain() {
  LandlockRuleset ruleset;
  ruleset.handled_access_fs = kLandlockRefer | kLandlockMakeBlock;
  ASSIGN_OR_RETURN(const UniqueFd fd, MakeLandlockRuleset(ruleset));
  RETURN_IF_ERROR(AllowBelow(fd, "/", kLandlockRefer));
  return EnterLandlockDomain(fd);
}

}  // namespace

absl::Status EnterScope(int abi, bool abstract_sockets) {
  if (abi < kLandlockReferAbi) {
    return absl::FailedPreconditionError(absl::StrCat("Landlock of this kernel has ABI ", abi,
                                                      ", and closing off a session needs ", kLandlockReferAbi,
                                                      " (Linux 5.19)"));
  }
  if (abi < kLandlockScopeAbi) return EnterNarrowDomain();
  LandlockRuleset ruleset;
  ruleset.scoped = kLandlockScopeSignal | (abstract_sockets ? kLandlockScopeAbstractUnix : 0);
  ASSIGN_OR_RETURN(const UniqueFd fd, MakeLandlockRuleset(ruleset));
  return EnterLandlockDomain(fd);
}

}  // namespace agentmon
