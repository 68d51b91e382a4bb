#include "daemon/enforce/caller_lookup.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace agentmon {
namespace {

UniqueFd OpenLink(const std::string& link) { return UniqueFd(open(link.c_str(), O_PATH | O_CLOEXEC)); }

UniqueFd OpenAt2(int from, const std::string& name, uint64_t flags, uint64_t resolve) {
  open_how how{};
  how.flags = flags | O_PATH | O_CLOEXEC;
  how.resolve = resolve;
  return UniqueFd(
      static_cast<int>(syscall(SYS_openat2, from, name.empty() ? "." : name.c_str(), &how, sizeof(how))));
}

// Takes "fd/7", "cwd" or "root" off the front of what follows a process's directory in procfs.
bool TakeMagic(absl::string_view* rest, std::string* link) {
  absl::string_view tail = *rest;
  for (const absl::string_view name : {"cwd", "root", "exe"}) {
    if (!absl::ConsumePrefix(&tail, name)) continue;
    if (!tail.empty() && tail[0] != '/') return false;
    *link = std::string(name);
    *rest = tail;
    return true;
  }
  if (!absl::ConsumePrefix(&tail, "fd/")) return false;
  const absl::string_view number = tail.substr(0, tail.find('/'));
  unsigned fd = 0;
  if (!absl::SimpleAtoi(number, &fd)) return false;
  tail.remove_prefix(number.size());
  *link = absl::StrCat("fd/", fd);
  *rest = tail;
  return true;
}

// The link below /proc that the start of an absolute name is, and what follows it. procfs would take "self"
// for us.
std::string MagicStart(pid_t tid, pid_t tgid, absl::string_view name, absl::string_view* rest) {
  std::string link;
  absl::string_view tail = name;
  if (absl::ConsumePrefix(&tail, "/dev/fd/")) {
    const std::string below = absl::StrCat("fd/", tail);
    absl::string_view view = below;
    if (!TakeMagic(&view, &link)) return "";
    *rest = name.substr(name.size() - view.size());
    return absl::StrCat("/proc/", tgid, "/", link);
  }
  if (name == "/dev/stdin" || name == "/dev/stdout" || name == "/dev/stderr") {
    *rest = "";
    return absl::StrCat("/proc/", tgid, "/fd/", name == "/dev/stdin" ? 0 : name == "/dev/stdout" ? 1 : 2);
  }
  if (!absl::ConsumePrefix(&tail, "/proc/")) return "";
  pid_t of = tgid;
  if (absl::ConsumePrefix(&tail, "thread-self/")) {
    of = tid;
  } else if (!absl::ConsumePrefix(&tail, "self/")) {
    const absl::string_view number = tail.substr(0, tail.find('/'));
    if (!absl::SimpleAtoi(number, &of) || number.size() == tail.size()) return "";
    tail.remove_prefix(number.size() + 1);
  }
  if (!TakeMagic(&tail, &link)) return "";
  *rest = tail;
  return absl::StrCat("/proc/", of, "/", link);
}

// Its own procfs entry, for "self" where no link of it is meant.
std::string WithCallersPid(absl::string_view name, pid_t tid, pid_t tgid) {
  absl::string_view rest = name;
  if (absl::ConsumePrefix(&rest, "/proc/self")) return absl::StrCat("/proc/", tgid, rest);
  if (absl::ConsumePrefix(&rest, "/proc/thread-self"))
    return absl::StrCat("/proc/", tgid, "/task/", tid, rest);
  return std::string(name);
}

// Looks a name up below base. Links are rare, and without them the caller's root need not be looked at; with
// them the whole path is walked in its root, since an absolute link starts there.
UniqueFd Walk(const CallerBase& base, const std::string& name, uint64_t flags) {
  constexpr uint64_t kPlain = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  constexpr uint64_t kRooted = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  if (!base.HasRootOfItsOwn()) {
    UniqueFd found =
        OpenAt2(base.start.get(), name, flags, base.from_root ? kPlain | RESOLVE_IN_ROOT : kPlain);
    if (found.valid() || errno != ELOOP) return found;
  }
  if (base.from_root) return OpenAt2(base.root.get(), name, flags, kRooted);
  std::string start = PathOfDescriptor(base.start.get());
  const std::string root = PathOfDescriptor(base.root.get());
  if (root.size() > 1) start = std::string(absl::StripPrefix(start, root));
  return OpenAt2(base.root.get(), absl::StrCat(start, "/", name), flags, kRooted);
}

}  // namespace

std::string PathOfDescriptor(int fd) {
  char link[64];
  char target[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, target, sizeof(target));
  if (n <= 0) return "";
  return std::string(absl::StripSuffix(absl::string_view(target, static_cast<size_t>(n)), " (deleted)"));
}

bool CallerBase::HasRootOfItsOwn() const {
  if (!root_of_its_own_.has_value()) root_of_its_own_ = PathOfDescriptor(root.get()) != "/";
  return *root_of_its_own_;
}

CallerBase OpenCallerBase(pid_t tid, pid_t tgid, const CallerName& asked) {
  CallerBase base;
  base.root = OpenLink(absl::StrCat("/proc/", tid, "/root"));
  if (!base.root.valid()) {
    base.error = ESRCH;
    return base;
  }
  absl::string_view rest;
  if (const std::string magic = MagicStart(tid, tgid, asked.name, &rest); !magic.empty()) {
    base.start = OpenLink(magic);
    while (absl::ConsumePrefix(&rest, "/")) continue;
    base.name = std::string(rest);
  } else if (absl::StartsWith(asked.name, "/")) {
    base.start = UniqueFd(fcntl(base.root.get(), F_DUPFD_CLOEXEC, 3));
    base.from_root = true;
    const std::string name = WithCallersPid(asked.name, tid, tgid);
    base.name = absl::StrCat(name.substr(std::min(name.find_first_not_of('/'), name.size())));
    if (base.name.empty()) base.name.assign(1, '.');
  } else {
    base.start = OpenLink(asked.dirfd == AT_FDCWD ? absl::StrCat("/proc/", tid, "/cwd")
                                                  : absl::StrCat("/proc/", tid, "/fd/", asked.dirfd));
    base.name = asked.name;
  }
  if (!base.start.valid()) base.error = errno == ENOENT ? EBADF : errno;
  return base;
}

FoundPlace FindPlace(const CallerBase& base) {
  FoundPlace place;
  absl::string_view name = base.name;
  size_t end = name.size();
  while (end > 0 && name[end - 1] == '/') --end;
  const size_t slash = name.substr(0, end).rfind('/');
  const size_t begin = slash == absl::string_view::npos ? 0 : slash + 1;
  place.leaf = std::string(name.substr(begin));
  const std::string leaf(name.substr(begin, end - begin));
  if (leaf.empty() || (base.from_root && name == ".")) place.leaf.clear();
  if (begin == 0) {
    place.directory = UniqueFd(fcntl(base.start.get(), F_DUPFD_CLOEXEC, 3));
  } else {
    place.directory = Walk(base, std::string(name.substr(0, begin)), O_DIRECTORY);
  }
  if (!place.directory.valid()) {
    place.error = errno;
    return place;
  }
  const std::string directory = PathOfDescriptor(place.directory.get());
  if (directory.empty()) place.error = EACCES;  // cannot be judged
  place.path = leaf.empty() ? directory : absl::StrCat(directory == "/" ? "" : directory, "/", leaf);
  return place;
}

FoundObject FindObject(const CallerBase& base, bool follow) {
  FoundObject object;
  object.fd = base.name.empty() ? UniqueFd(fcntl(base.start.get(), F_DUPFD_CLOEXEC, 3))
                                : Walk(base, base.name, follow ? 0 : O_NOFOLLOW);
  if (!object.fd.valid()) {
    object.error = errno;
    return object;
  }
  object.path = PathOfDescriptor(object.fd.get());
  if (object.path.empty() || fstat(object.fd.get(), &object.st) != 0) object.error = EACCES;
  return object;
}

}  // namespace agentmon
