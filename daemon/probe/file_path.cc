#include "daemon/probe/file_path.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/unique_fd.h"
#include "daemon/probe/caller.h"

namespace agentmon {
namespace {

constexpr int64_t kKnownFor_ns = 1'000'000'000;  // changes made from outside the session are not seen
constexpr size_t kKnownMax = 4096;

// Its target, or empty.
std::string ReadLink(const char* link) {
  char target[PATH_MAX];
  const ssize_t n = readlink(link, target, sizeof(target));
  return n > 0 ? std::string(target, static_cast<size_t>(n)) : "";
}

// In procfs "self" is whoever looks: put the caller in our place.
std::string WithoutOurPid(std::string path, pid_t tgid) {
  static const std::string ours = absl::StrCat("/proc/", getpid());
  if (!absl::StartsWith(path, ours)) return path;
  if (path.size() > ours.size() && path[ours.size()] != '/') return path;
  return absl::StrCat("/proc/", tgid, path.substr(ours.size()));
}

// /proc/self, /dev/fd and the like mean the caller, and are written down so without asking the file system,
// where they would mean us. Nothing else below these two needs resolving. Empty for any other path.
std::string WellKnown(absl::string_view path, pid_t tgid) {
  const bool device = absl::StartsWith(path, "/dev/") && !absl::StartsWith(path, "/dev/shm/");
  if (!absl::StartsWith(path, "/proc/") && !device) return "";
  const std::string normal = NormalizePath(path);
  absl::string_view rest = normal;
  if (absl::ConsumePrefix(&rest, "/dev/fd/")) return absl::StrCat("/proc/", tgid, "/fd/", rest);
  if (absl::ConsumePrefix(&rest, "/proc/self/")) return absl::StrCat("/proc/", tgid, "/", rest);
  return normal;
}

std::string ResolveDirectory(pid_t tid, std::string directory, bool below_base) {
  char link[64];
  snprintf(link, sizeof(link), "/proc/%d/root", tid);
  UniqueFd root(open(link, O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return "";
  if (below_base) {
    // The kernel names the base from the root of the mount namespace; after a chroot the caller's root lies
    // below.
    const std::string root_path = ReadLink(link);
    if (root_path.size() > 1 && absl::StartsWith(directory, absl::StrCat(root_path, "/"))) {
      directory = directory.substr(root_path.size());
    }
  }
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT;
  UniqueFd found(static_cast<int>(
      syscall(SYS_openat2, root.get(), directory.empty() ? "/" : directory.c_str(), &how, sizeof(how))));
  if (!found.valid()) return "";
  snprintf(link, sizeof(link), "/proc/self/fd/%d", found.get());
  return std::string(absl::StripSuffix(ReadLink(link), " (deleted)"));
}

}  // namespace

std::string AskedPath(const CallerBase& base) {
  const std::string start = PathOfDescriptor(base.start.get());
  if (base.name.empty()) return start;
  return NormalizePath(absl::StrCat(base.from_root ? "" : start, "/", base.name));
}

std::string NormalizePath(absl::string_view path) {
  const bool absolute = absl::StartsWith(path, "/");
  std::vector<absl::string_view> kept;
  for (const absl::string_view part : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (part == ".") continue;
    if (part != "..") {
      kept.push_back(part);
    } else if (!kept.empty()) {
      kept.pop_back();
    }
  }
  return absl::StrCat(absolute ? "/" : "", absl::StrJoin(kept, "/"));
}

std::string JoinName(const AskedName& asked) {
  if (asked.name.empty()) return asked.base;
  if (absl::StartsWith(asked.name, "/")) return NormalizePath(asked.name);
  return NormalizePath(absl::StrCat(asked.base, "/", asked.name));
}

std::string PathResolver::Resolve(pid_t tid, pid_t tgid, const AskedName& asked, int64_t now_ns) {
  absl::string_view name = asked.name;
  while (name.size() > 1 && absl::EndsWith(name, "/")) name.remove_suffix(1);
  if (name.empty() || name == "/") return JoinName(asked);
  if (std::string known = WellKnown(name, tgid); !known.empty()) return known;
  const size_t slash = name.rfind('/');
  absl::string_view leaf = slash == absl::string_view::npos ? name : name.substr(slash + 1);
  absl::string_view directory = name.substr(0, name.size() - leaf.size());
  if (leaf == "." || leaf == "..") {
    directory = name;
    leaf = "";
  }
  // A bare name below a directory that the kernel has named.
  if (directory.empty()) return absl::StrCat(asked.base == "/" ? "" : asked.base, "/", leaf);
  const std::string resolved = Directory(tid, tgid, asked, directory, now_ns);
  if (resolved.empty()) return WithoutOurPid(JoinName(asked), tgid);
  if (leaf.empty()) return resolved;
  return absl::StrCat(resolved == "/" ? "" : resolved, "/", leaf);
}

std::string PathResolver::Directory(pid_t tid, pid_t tgid, const AskedName& asked,
                                    absl::string_view name_directory, int64_t now_ns) {
  const bool below_base = !absl::StartsWith(name_directory, "/");
  std::string full = below_base ? absl::StrCat(asked.base, "/", name_directory) : std::string(name_directory);
  const auto key = std::make_pair(tgid, std::move(full));
  if (const auto known = directories_.find(key);
      known != directories_.end() && now_ns < known->second.until_ns) {
    return known->second.path;
  }
  std::string path = WithoutOurPid(ResolveDirectory(tid, key.second, below_base), tgid);
  if (path.empty()) return path;
  if (directories_.size() >= kKnownMax) directories_.clear();
  directories_[key] = {path, now_ns + kKnownFor_ns};
  return path;
}

}  // namespace agentmon
