#include "daemon/enforce/caller_credentials.h"

#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/kernel/proc_fs.h"

namespace agentmon {
namespace {

constexpr size_t kKnownMax = 4096;

struct Capabilities {
  uint32_t effective[2], permitted[2];
};

bool GetCapabilities(Capabilities* out) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  for (const int i : {0, 1}) {
    out->effective[i] = data[i].effective;
    out->permitted[i] = data[i].permitted;
  }
  return true;
}

bool SetEffective(const Capabilities& now, uint64_t effective) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  for (const int i : {0, 1}) {
    data[i].permitted = now.permitted[i];
    data[i].effective = static_cast<uint32_t>(effective >> (32 * i)) & now.permitted[i];
  }
  return syscall(SYS_capset, &header, data) == 0;
}

// The daemon's own, read once in each thread.
const Capabilities& Own() {
  thread_local const Capabilities own = [] {
    Capabilities read{};
    GetCapabilities(&read);
    return read;
  }();
  return own;
}

uint64_t AllOf(const Capabilities& own) { return own.permitted[0] | uint64_t{own.permitted[1]} << 32; }

// Kept over calls: the daemon's own work does not depend on them.
struct Kept {
  bool known = false;
  gid_t fsgid = 0;
  std::vector<gid_t> groups;
  mode_t umask = 0;
  bool umask_known = false;
};
Kept& KeptByThread() {
  // A thread begins with the daemon's own, which one that is not root's cannot change, and need not for
  // callers like itself.
  thread_local Kept kept = [] {
    Kept own;
    const int count = getgroups(0, nullptr);
    own.groups.resize(count > 0 ? static_cast<size_t>(count) : 0);
    own.known = getgroups(count, own.groups.data()) == count;
    own.fsgid = getegid();
    return own;
  }();
  return kept;
}

bool TakeGroups(const CallerCredentials& caller) {
  Kept& kept = KeptByThread();
  if (kept.known && kept.fsgid == caller.fsgid && kept.groups == caller.groups) return true;
  kept.known = false;
  if (syscall(SYS_setgroups, caller.groups.size(), caller.groups.data()) != 0) return false;
  syscall(SYS_setfsgid, caller.fsgid);
  if (static_cast<gid_t>(syscall(SYS_setfsgid, caller.fsgid)) != caller.fsgid) return false;
  kept.fsgid = caller.fsgid;
  kept.groups = caller.groups;
  kept.known = true;
  return true;
}

void TakeUmask(mode_t mask) {
  Kept& kept = KeptByThread();
  if (kept.umask_known && kept.umask == mask) return;
  umask(mask);
  kept.umask = mask;
  kept.umask_known = true;
}

std::vector<uint64_t> Numbers(absl::string_view text, int base = 10) {
  std::vector<uint64_t> numbers;
  for (const absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
    uint64_t number = 0;
    const bool ok = base == 16 ? absl::SimpleHexAtoi(word, &number) : absl::SimpleAtoi(word, &number);
    if (ok) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

absl::StatusOr<CallerCredentials> ReadCallerCredentials(pid_t tid) {
  ASSIGN_OR_RETURN(const std::string status, ReadWholeFile(absl::StrCat("/proc/", tid, "/status")));
  CallerCredentials out;
  std::vector<uint64_t> uids, gids, capabilities, permitted;
  bool no_new_privs = false, mask_known = false;
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (field.first == "Uid") uids = Numbers(field.second);
    if (field.first == "Gid") gids = Numbers(field.second);
    if (field.first == "CapEff") capabilities = Numbers(field.second, 16);
    if (field.first == "CapPrm") permitted = Numbers(field.second, 16);
    if (field.first == "NoNewPrivs") no_new_privs = absl::StrContains(field.second, "1");
    if (field.first == "Umask") {
      out.umask = static_cast<mode_t>(strtoul(std::string(field.second).c_str(), nullptr, 8));
      mask_known = true;
    }
    if (field.first == "Groups") {
      for (const uint64_t group : Numbers(field.second)) out.groups.push_back(static_cast<gid_t>(group));
    }
  }
  if (uids.size() != 4 || gids.size() != 4 || capabilities.size() != 1 || permitted.size() != 1 ||
      !mask_known)
    return absl::InternalError("the caller's status cannot be read");
  out.fsuid = static_cast<uid_t>(uids[3]);
  out.fsgid = static_cast<gid_t>(gids[3]);
  out.capabilities = capabilities[0];
  const auto are_one = [](const std::vector<uint64_t>& ids) {
    return ids[0] == ids[3] && ids[1] == ids[3] && ids[2] == ids[3];
  };
  out.lasting = are_one(uids) && are_one(gids) && uids[3] != 0 && no_new_privs && permitted[0] == 0;
  return out;
}

absl::StatusOr<CallerCredentials> KnownCredentials::Of(uint64_t cgroup_id, pid_t tid) {
  const auto known = lasting_.find(cgroup_id);
  if (known != lasting_.end()) return known->second;
  auto read = ReadCallerCredentials(tid);
  if (read.ok() && read->lasting) {
    if (lasting_.size() >= kKnownMax) lasting_.clear();
    lasting_[cgroup_id] = *read;
  }
  return read;
}

absl::Status PrepareToActForCallers() {
  if (unshare(CLONE_FS) != 0) return ErrnoStatus(errno, "give a thread a umask of its own");
  return absl::OkStatus();
}

namespace {

bool became_caller = false;

}  // namespace

bool BecomeCaller(const CallerCredentials& caller) {
  umask(caller.umask);
  if (prctl(PR_SET_KEEPCAPS, 1) != 0 || setgroups(caller.groups.size(), caller.groups.data()) != 0 ||
      setresgid(caller.fsgid, caller.fsgid, caller.fsgid) != 0 ||
      setresuid(caller.fsuid, caller.fsuid, caller.fsuid) != 0)
    return false;
  Capabilities kept{};
  if (!GetCapabilities(&kept)) return false;
  for (const int i : {0, 1}) kept.permitted[i] &= static_cast<uint32_t>(caller.capabilities >> (32 * i));
  // Who has its user's rights must not look into it, nor lead it: it is not in the session.
  if (prctl(PR_SET_DUMPABLE, 0) != 0) return false;
  became_caller = SetEffective(kept, caller.capabilities);
  return became_caller;
}

ActingFor::ActingFor(const CallerCredentials& caller) {
  if (became_caller) {
    took_ = true;
    return;
  }
  TakeUmask(caller.umask);
  if (!TakeGroups(caller)) return;
  syscall(SYS_setfsuid, caller.fsuid);
  // A change that is refused says nothing; asking again answers who it is now.
  if (static_cast<uid_t>(syscall(SYS_setfsuid, caller.fsuid)) != caller.fsuid) return;
  took_ = SetEffective(Own(), caller.capabilities);
}

ActingFor::~ActingFor() {
  if (became_caller) return;
  const Capabilities& own = Own();
  SetEffective(own, AllOf(own));
  syscall(SYS_setfsuid, 0);
  // A root caller's switch of users leaves the capabilities for files out; all of ours again.
  if (!SetEffective(own, AllOf(own))) LogError("capset: a thread that acts for callers has lost its rights");
}

}  // namespace agentmon
