#include "daemon/policy/trusted_directories.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/unique_fd.h"
#include "common/policy/evaluate.h"

namespace agentmon {
namespace {

constexpr int64_t kKeepNs = 10'000'000'000;
constexpr size_t kMostKept = 4096;

UniqueFd OpenCached(int parent, const std::string& name) {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_CACHED | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(static_cast<int>(::syscall(SYS_openat2, parent, name.c_str(), &how, sizeof how)));
}

bool HasAccessList(int fd) {
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  return ::getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0;
}

}  // namespace

TrustedDirectories::Facts TrustedDirectories::LookAt(const std::string& directory) {
  Facts facts;
  UniqueFd at(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::vector<std::string> names{"."};
  for (const absl::string_view name : absl::StrSplit(directory, '/', absl::SkipEmpty())) {
    names.emplace_back(name);
  }
  for (const std::string& name : names) {
    UniqueFd next = OpenCached(at.get(), name);
    struct statx st {};
    // What is cached of its attributes, without asking a server.
    if (!next.valid() || ::statx(next.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
                                 STATX_MODE | STATX_UID | STATX_GID, &st) != 0) {
      return facts;
    }
    at = std::move(next);
    if (st.stx_uid != 0 || (st.stx_mode & 0002) != 0) {
      facts.known = true;
      return facts;
    }
    if ((st.stx_mode & 0020) == 0) continue;
    if (HasAccessList(at.get())) {
      facts.known = true;
      return facts;
    }
    if (st.stx_gid != 0) facts.writing_groups.push_back(st.stx_gid);
  }
  facts.known = facts.roots_alone = true;
  return facts;
}

bool TrustedDirectories::Trusts(absl::string_view directory, const std::vector<gid_t>& groups) {
  const int64_t now = clock_.BootNs();
  auto found = facts_.find(directory);
  if (found == facts_.end() || found->second.until_ns < now) {
    if (facts_.size() >= kMostKept) facts_.clear();
    Facts facts = LookAt(std::string(directory));
    facts.until_ns = now + kKeepNs;
    found = facts_.insert_or_assign(std::string(directory), std::move(facts)).first;
  }
  const Facts& facts = found->second;
  if (!facts.known) return policy::UsuallyTrusted(directory);
  return facts.roots_alone &&
         std::none_of(facts.writing_groups.begin(), facts.writing_groups.end(), [&](gid_t gid) {
           return std::find(groups.begin(), groups.end(), gid) != groups.end();
         });
}

}  // namespace agentmon
