#include "daemon/enforce/file_broker.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/kernel/proc_fs.h"
#include "common/policy/rule.h"
#include "common/policy/subject.h"

namespace agentmon {
namespace {

constexpr int kLinksMax = 40;            // as the kernel's MAXSYMLINKS
constexpr unsigned kExchange = 1u << 1;  // RENAME_EXCHANGE

BrokerResult Answered(BrokerAnswer answer, int error = 0, const std::string& path = "",
                      const std::string& new_path = "") {
  BrokerResult result;
  result.answer = answer;
  result.error = error;
  result.path = path;
  result.new_path = new_path;
  return result;
}
BrokerResult Failed(int error) { return Answered(BrokerAnswer::kDone, error); }
int ErrorOf(long result) { return result == 0 ? 0 : errno; }

// The path by which this thread reaches what a descriptor holds.
struct HeldPath {
  explicit HeldPath(int fd) { snprintf(text, sizeof(text), "/proc/self/fd/%d", fd); }
  char text[40];
};

uint32_t OperationsOf(const BrokeredCall& call) {
  switch (call.act) {
    case FileAct::kUnlink:
      return (call.at_flags & AT_REMOVEDIR) != 0 ? policy::kRmdir : policy::kDelete;
    case FileAct::kRmdir:
      return policy::kRmdir;
    case FileAct::kRename:
      return policy::kRename;
    case FileAct::kLink:
      return policy::kLink;
    case FileAct::kSymlink:
      return policy::kSymlink;
    case FileAct::kMkdir:
      return policy::kMkdir;
    case FileAct::kMknod:
      return policy::kMknod;
    case FileAct::kChmod:
      return policy::kChmod;
    case FileAct::kChown:
      return policy::kChown;
    default:
      return policy::kWrite;
  }
}

// What the kernel says of a name that is a root, for calls that make, remove or move a name.
int ErrorForRoot(FileAct act) {
  switch (act) {
    case FileAct::kUnlink:
      return EISDIR;
    case FileAct::kRmdir:
    case FileAct::kRename:
      return EBUSY;
    default:
      return EEXIST;
  }
}

bool Exists(const FoundPlace& place) {
  struct stat st {};
  return fstatat(place.directory.get(), place.leaf.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0;
}

// What could not have happened anyway is no matter of policy: programs that make a directory rely on hearing
// that it is there. 0 = it could have happened.
int ErrorWithoutPolicy(FileAct act, const FoundPlace& place) {
  switch (act) {
    case FileAct::kUnlink:
    case FileAct::kRmdir:
    case FileAct::kRename:
      return Exists(place) ? 0 : ENOENT;
    default:
      return Exists(place) ? EEXIST : 0;
  }
}

BrokerResult Stopped(int otherwise, const std::string& path, const std::string& new_path) {
  if (otherwise != 0) return Answered(BrokerAnswer::kDone, otherwise, path, new_path);
  return Answered(BrokerAnswer::kStopped, EACCES, path, new_path);
}

// unlink, rmdir, mkdir, mknod, symlink: a name in a directory.
BrokerResult ChangeName(const BrokeredCall& call, const CallerBase& base, const FileJudge& judge) {
  const FoundPlace place = FindPlace(base);
  if (place.error != 0) return Failed(place.error);
  if (place.leaf.empty()) return Failed(ErrorForRoot(call.act));
  const uint32_t operations = OperationsOf(call);
  BrokerResult result = Answered(BrokerAnswer::kDone, 0, place.path, "");
  if (call.act == FileAct::kSymlink) result.new_path = call.target;
  if (judge.stops(operations, place.path, "", operations == policy::kRmdir))
    return Stopped(ErrorWithoutPolicy(call.act, place), place.path, result.new_path);
  const int directory = place.directory.get();
  const char* leaf = place.leaf.c_str();
  switch (call.act) {
    case FileAct::kUnlink:
      result.error = ErrorOf(unlinkat(directory, leaf, static_cast<int>(call.at_flags)));
      break;
    case FileAct::kRmdir:
      result.error = ErrorOf(unlinkat(directory, leaf, AT_REMOVEDIR));
      break;
    case FileAct::kMkdir:
      result.error = ErrorOf(mkdirat(directory, leaf, call.mode));
      break;
    case FileAct::kMknod:
      result.error = ErrorOf(syscall(SYS_mknodat, directory, leaf, call.mode, call.device));
      break;
    case FileAct::kSymlink:
      result.error = ErrorOf(symlinkat(call.target.c_str(), directory, leaf));
      break;
    default:
      result.error = ENOSYS;
      break;
  }
  return result;
}

BrokerResult Rename(const BrokeredCall& call, const CallerBase& from, const CallerBase& to,
                    const FileJudge& judge) {
  const FoundPlace source = FindPlace(from);
  if (source.error != 0) return Failed(source.error);
  const FoundPlace target = FindPlace(to);
  if (target.error != 0) return Failed(target.error);
  if (source.leaf.empty() || target.leaf.empty()) return Failed(EBUSY);
  const auto is_directory = [](const FoundPlace& place) {
    struct stat st {};
    return fstatat(place.directory.get(), place.leaf.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
  };
  BrokerResult result = Answered(BrokerAnswer::kDone, 0, source.path, target.path);
  bool stop = judge.stops(policy::kRename, source.path, target.path, is_directory(source));
  if (!stop && (call.at_flags & kExchange) != 0)
    stop = judge.stops(policy::kRename, target.path, source.path, is_directory(target));
  if (stop) return Stopped(ErrorWithoutPolicy(call.act, source), source.path, target.path);
  result.error =
      ErrorOf(syscall(SYS_renameat2, source.directory.get(), source.leaf.c_str(), target.directory.get(),
                      target.leaf.c_str(), static_cast<unsigned>(call.at_flags)));
  return result;
}

BrokerResult Link(const BrokeredCall& call, const CallerBase& from, const CallerBase& to,
                  const FileJudge& judge) {
  if (from.name.empty() && !call.name.name.empty() && (call.at_flags & AT_SYMLINK_FOLLOW) == 0)
    return Failed(EXDEV);  // the link in procfs itself, which cannot have another name
  const FoundObject object = FindObject(from, (call.at_flags & AT_SYMLINK_FOLLOW) != 0);
  if (object.error != 0) return Failed(object.error);
  const FoundPlace target = FindPlace(to);
  if (target.error != 0) return Failed(target.error);
  if (target.leaf.empty()) return Failed(EEXIST);
  BrokerResult result = Answered(BrokerAnswer::kDone, 0, object.path, target.path);
  if (judge.stops(policy::kLink, object.path, target.path, false))
    return Stopped(ErrorWithoutPolicy(call.act, target), object.path, target.path);
  result.error = ErrorOf(linkat(AT_FDCWD, HeldPath(object.fd.get()).text, target.directory.get(),
                                target.leaf.c_str(), AT_SYMLINK_FOLLOW));
  return result;
}

int Change(const BrokeredCall& call, const FoundObject& object) {
  const HeldPath held(object.fd.get());
  if (call.act == FileAct::kChmod) {
    // Linux keeps no mode of a link.
    return S_ISLNK(object.st.st_mode) ? EOPNOTSUPP : ErrorOf(fchmodat(AT_FDCWD, held.text, call.mode, 0));
  }
  if (call.act == FileAct::kChown) {
    return ErrorOf(fchownat(object.fd.get(), "", static_cast<uid_t>(call.uid), static_cast<gid_t>(call.gid),
                            AT_EMPTY_PATH));
  }
  rlimit limit{};
  if (prlimit(call.tgid, RLIMIT_FSIZE, nullptr, &limit) == 0 && call.size > limit.rlim_cur) return EFBIG;
  return ErrorOf(truncate(held.text, static_cast<off_t>(call.size)));
}

// chmod, chown, truncate: an object. Judged between the look-up and the act, since asking about other names
// looks at directories that the caller may not see.
BrokerResult ChangeObject(const BrokeredCall& call, const CallerBase& base,
                          const CallerCredentials& credentials, const FileJudge& judge) {
  FoundObject object;
  object.error = EACCES;
  if (const ActingFor acting(credentials); acting.Took())
    object = FindObject(base, (call.at_flags & AT_SYMLINK_NOFOLLOW) == 0);
  if (object.error != 0) return Failed(object.error);
  if (!absl::StartsWith(object.path, "/"))
    return Answered(BrokerAnswer::kContinue, 0, object.path, "");  // nameless
  const uint32_t operations = OperationsOf(call);
  if (judge.stops(operations, object.path, "", S_ISDIR(object.st.st_mode)) ||
      judge.stops_other_names(operations, object.path, object.st))
    return Answered(BrokerAnswer::kStopped, EACCES, object.path, "");
  const ActingFor acting(credentials);
  return Answered(BrokerAnswer::kDone, acting.Took() ? Change(call, object) : EACCES, object.path, "");
}

// Where an open with O_CREAT would make a file: behind links that lead to nothing yet.
std::string PathToMake(const BrokeredCall& call, const CallerBase& first, int* error) {
  CallerName name;
  CallerBase next;
  for (int links = 0; links < kLinksMax; ++links) {
    if (links > 0) next = OpenCallerBase(call.tid, call.tgid, name);
    if (next.error != 0) {
      *error = next.error;
      return "";
    }
    const FoundPlace place = FindPlace(links > 0 ? next : first);
    *error = place.error;
    if (place.error != 0 || place.leaf.empty()) return "";
    char target[PATH_MAX];
    const ssize_t n = readlinkat(place.directory.get(), place.leaf.c_str(), target, sizeof(target));
    if (n <= 0) return place.path;
    const std::string text(target, static_cast<size_t>(n));
    const size_t slash = place.path.rfind('/');
    name.dirfd = AT_FDCWD;
    name.name = absl::StartsWith(text, "/") ? text : absl::StrCat(place.path.substr(0, slash), "/", text);
  }
  *error = ELOOP;
  return "";
}

}  // namespace

// The kernel opens what it finds then: OPEN_PERM asks about that object again, whatever its name meant here.
BrokerResult FileBroker::Open(const BrokeredCall& call, const FileJudge& judge) {
  const uint32_t flags = call.open_flags;
  const CallerBase base = OpenCallerBase(call.tid, call.tgid, call.name);
  if (base.error != 0) return Answered(BrokerAnswer::kContinue, base.error, "", "");
  if (!Become(call)) return Failed(EACCES);
  const bool nameless = (flags & O_TMPFILE) == O_TMPFILE;
  const bool follow = (flags & O_NOFOLLOW) == 0 && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);
  const FoundObject object = FindObject(base, follow);
  BrokerResult result = Answered(BrokerAnswer::kContinue, 0, object.path, "");
  result.existed = object.error == 0;
  uint32_t operations = policy::OperationsOfOpen(static_cast<int>(flags));
  if (object.error == ENOENT && (flags & O_CREAT) != 0) {
    int error = 0;
    result.path = PathToMake(call, base, &error);
    // Behind a link that leads to nothing our own process cannot look further.
    if (error != 0 && in_ == In::kOwnProcess) return Failed(EACCES);
    if (error != 0 || result.path.empty()) return Answered(BrokerAnswer::kContinue, error, "", "");
    operations = policy::kCreate;
  } else if (object.error != 0) {
    return Answered(BrokerAnswer::kContinue, object.error, "", "");  // the kernel finds nothing either
  } else if (!absl::StartsWith(object.path, "/") ||
             (!nameless && (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))) {
    return result;  // a pipe or socket of its own; EEXIST
  } else if (nameless) {
    result.existed = false;
    operations = policy::kCreate;
  } else if ((flags & O_ACCMODE) == O_RDONLY && (flags & O_TRUNC) == 0) {
    result.only_reads = true;  // O_CREAT alone
    return result;
  }
  if (judge.stops(operations, result.path, "", false)) {
    result.answer = BrokerAnswer::kStopped;
    result.error = EACCES;
  }
  return result;
}

absl::StatusOr<CallerCredentials> FileBroker::CredentialsOf(const BrokeredCall& call) {
  const bool needs_umask = call.act == FileAct::kMkdir || call.act == FileAct::kMknod;
  ASSIGN_OR_RETURN(CallerCredentials credentials, known_.Of(call.cgroup_id, call.tid));
  if (needs_umask && credentials.lasting) {
    ASSIGN_OR_RETURN(credentials.umask, ProcFs().Umask(call.tid));
  }
  return credentials;
}

bool FileBroker::Become(const BrokeredCall& call) {
  if (in_ == In::kThread) return true;
  const auto credentials = ReadCallerCredentials(call.tid);
  return credentials.ok() && BecomeCaller(*credentials);
}

BrokerResult FileBroker::Handle(const BrokeredCall& call, const FileJudge& judge) {
  switch (call.act) {
    case FileAct::kOpen:
    case FileAct::kCreat:
      return Open(call, judge);
    default:
      break;
  }
  const bool empty_is_descriptor = call.by_fd || (call.at_flags & AT_EMPTY_PATH) != 0;
  if (call.name.name.empty() && !empty_is_descriptor) return Failed(ENOENT);
  const CallerBase base = OpenCallerBase(call.tid, call.tgid, call.name);
  if (base.error != 0) return Failed(base.error);
  const bool two_names = call.act == FileAct::kRename || call.act == FileAct::kLink;
  CallerBase to;
  if (two_names) {
    if (call.new_name.name.empty()) return Failed(ENOENT);
    to = OpenCallerBase(call.tid, call.tgid, call.new_name);
    if (to.error != 0) return Failed(to.error);
  }
  const auto credentials = CredentialsOf(call);
  if (!credentials.ok() || !Become(call)) return Failed(EACCES);
  const bool changes_object =
      call.act == FileAct::kChmod || call.act == FileAct::kChown || call.act == FileAct::kTruncate;
  if (changes_object) return ChangeObject(call, base, *credentials, judge);
  const ActingFor acting(*credentials);
  if (!acting.Took()) return Failed(EACCES);
  switch (call.act) {
    case FileAct::kRename:
      return Rename(call, base, to, judge);
    case FileAct::kLink:
      return Link(call, base, to, judge);
    default:
      return ChangeName(call, base, judge);
  }
}

}  // namespace agentmon
