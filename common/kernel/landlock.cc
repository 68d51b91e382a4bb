#include "common/kernel/landlock.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/status.h"

namespace agentmon {
namespace {

// The same on every architecture.
constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;
constexpr int kPathBeneath = 1;
constexpr unsigned kVersion = 1;

struct __attribute__((packed)) PathBeneath {
  uint64_t allowed_access = 0;
  int32_t parent_fd = -1;
};

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

absl::Status AllowBelow(const UniqueFd& ruleset, const char* directory, uint64_t access) {
  const UniqueFd parent(open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!parent.valid()) return ErrnoStatus(errno, "open a directory of a Landlock rule");
  const PathBeneath rule{access, parent.get()};
  if (syscall(kAddRule, ruleset.get(), kPathBeneath, &rule, 0) != 0)
    return ErrnoStatus(errno, "add a Landlock rule");
  return absl::OkStatus();
}

absl::Status EnterLandlockDomain(const UniqueFd& ruleset) {
  if (syscall(kRestrictSelf, ruleset.get(), 0) != 0) return ErrnoStatus(errno, "enter the Landlock domain");
  return absl::OkStatus();
}

}  // namespace agentmon
