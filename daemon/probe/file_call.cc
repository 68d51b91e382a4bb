#include "daemon/probe/file_call.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bpf/event_abi.h"

namespace agentmon {
namespace {

int AsFd(uint64_t argument) { return static_cast<int>(static_cast<uint32_t>(argument)); }

uint64_t Length(const MediatedCall& call, const seccomp_notif& request) {
  const uint64_t low = request.data.args[call.value];
  if (!call.split_value) return low;
  return (low & 0xffffffff) | request.data.args[call.value + 1] << 32;
}

}  // namespace

CaptureResult FileCall::Capture(const MediatedCall& call, const seccomp_notif& request,
                                const CaptureOptions& options) {
  tid_ = static_cast<pid_t>(request.pid);
  record_.source = v1::NOTIFY;
  record_.flags = AM_F_AS_ASKED;
  record_.tid = request.pid;
  if (const CaptureResult r = ReadFlags(call, request); r != CaptureResult::kCall) return r;
  if (const CaptureResult r = CaptureNames(call, request); r != CaptureResult::kCall) return r;
  return Classify(call, request, options);
}

CaptureResult FileCall::ReadFlags(const MediatedCall& call, const seccomp_notif& request) {
  const auto& args = request.data.args;
  switch (call.act) {
    case FileAct::kOpen:
      record_.open_flags = static_cast<uint32_t>(args[call.flags]);
      record_.mode = static_cast<uint32_t>(args[call.value]);
      break;
    case FileAct::kCreat:
      record_.open_flags = O_CREAT | O_WRONLY | O_TRUNC;
      record_.mode = static_cast<uint32_t>(args[call.value]);
      break;
    case FileAct::kOpenHow: {
      open_how how{};  // its first version is all that is looked at
      if (!ReadCallerBytes(tid_, args[call.flags], &how, sizeof(how))) return CaptureResult::kNothing;
      record_.open_flags = static_cast<uint32_t>(how.flags);
      record_.mode = static_cast<uint32_t>(how.mode);
      break;
    }
    default:
      if (call.flags >= 0) at_flags_ = args[call.flags];
      return CaptureResult::kCall;
  }
  if ((record_.open_flags & O_CREAT) == 0) record_.mode = 0;  // whatever was in the register
  const bool changes = (record_.open_flags & kMediatedOpenFlags) != 0 && (record_.open_flags & O_PATH) == 0;
  changes_nothing_ = !changes;
  return changes ? CaptureResult::kCall : CaptureResult::kNothing;
}

CaptureResult FileCall::CaptureNames(const MediatedCall& call, const seccomp_notif& request) {
  if (call.fd >= 0) {
    const int fd = AsFd(request.data.args[call.fd]);
    if (fd < 0) return CaptureResult::kNothing;  // EBADF
    name_.base = CallerFdPath(tid_, fd);
    return name_.base.empty() ? CaptureResult::kNothing : CaptureResult::kCall;
  }
  if (!CaptureName(request, call.path, &name_)) return CaptureResult::kNothing;
  dirfd_ = call.dirfd >= 0 ? AsFd(request.data.args[call.dirfd]) : AT_FDCWD;
  if (call.new_path < 0) return CaptureResult::kCall;
  has_new_name_ = true;
  if (call.act == FileAct::kSymlink) {  // the target is text, never a name to resolve
    const ReadResult r = ReadCallerString(tid_, request.data.args[call.new_path], &new_name_.name);
    return r == ReadResult::kFault ? CaptureResult::kNothing : CaptureResult::kCall;
  }
  return CaptureName(request, call.new_path, &new_name_) ? CaptureResult::kCall : CaptureResult::kNothing;
}

bool FileCall::CaptureName(const seccomp_notif& request, int path_argument, AskedName* name) {
  const uint64_t address = request.data.args[path_argument];
  switch (ReadCallerString(tid_, address, &name->name)) {
    case ReadResult::kOk:
      break;
    case ReadResult::kCut:
      cut_ = true;  // ENAMETOOLONG for the caller, an attempt all the same
      break;
    case ReadResult::kFault:
      // A null path with AT_EMPTY_PATH names the descriptor (Linux 6.11); anything else is EFAULT.
      if (address != 0 || (at_flags_ & AT_EMPTY_PATH) == 0) return false;
      name->name.clear();
      break;
  }
  return true;
}

void FileCall::FindBases(const MediatedCall& call, const seccomp_notif& request) {
  if (call.fd >= 0) return;  // its path is its name
  FindBase(request, call.dirfd, &name_);
  if (has_new_name_ && call.act != FileAct::kSymlink) FindBase(request, call.new_dirfd, &new_name_);
}

void FileCall::FindBase(const seccomp_notif& request, int dirfd_argument, AskedName* name) {
  if (absl::StartsWith(name->name, "/")) return;
  name->base = CallerFdPath(tid_, dirfd_argument >= 0 ? AsFd(request.data.args[dirfd_argument]) : AT_FDCWD);
}

CaptureResult FileCall::Classify(const MediatedCall& call, const seccomp_notif& request,
                                 const CaptureOptions& options) {
  const auto& args = request.data.args;
  switch (call.act) {
    case FileAct::kOpen:
    case FileAct::kOpenHow:
    case FileAct::kCreat:
      return ClassifyOpen(request, options);
    case FileAct::kUnlink:
      record_.kind = (at_flags_ & AT_REMOVEDIR) != 0 ? v1::RMDIR : v1::DELETE;
      break;
    case FileAct::kRmdir:
      record_.kind = v1::RMDIR;
      break;
    case FileAct::kRename:
      record_.kind = v1::RENAME;
      break;
    case FileAct::kLink:
      record_.kind = v1::LINK;
      break;
    case FileAct::kSymlink:
      record_.kind = v1::SYMLINK;
      break;
    case FileAct::kMkdir:
    case FileAct::kMknod:
    case FileAct::kChmod:
      record_.kind = call.act == FileAct::kMkdir   ? v1::MKDIR
                     : call.act == FileAct::kMknod ? v1::MKNOD
                                                   : v1::CHMOD;
      record_.mode = static_cast<uint32_t>(args[call.value]);
      break;
    case FileAct::kChown:
      record_.kind = v1::CHOWN;
      record_.uid = static_cast<int32_t>(args[call.value]);
      record_.gid = static_cast<int32_t>(args[call.value + 1]);
      break;
    case FileAct::kTruncate:
      record_.kind = v1::TRUNCATE;
      record_.size = Length(call, request);
      break;
    case FileAct::kExec:
      return CaptureResult::kNothing;  // CaptureExec
  }
  return CaptureResult::kCall;
}

CaptureResult FileCall::ClassifyOpen(const seccomp_notif& request, const CaptureOptions& options) {
  const uint32_t flags = record_.open_flags;
  if ((flags & O_TMPFILE) == O_TMPFILE) {  // a file without a name: the path is its directory's
    record_.kind = v1::CREATE;
    return CaptureResult::kCall;
  }
  const bool creates = (flags & O_CREAT) != 0 && ((flags & O_EXCL) != 0 || !options.look_at_files ||
                                                  !Exists(static_cast<pid_t>(request.pid)));
  record_.kind = creates ? v1::CREATE : v1::OPEN_WRITE;
  // O_CREAT alone on a file that is there: a read, which fanotify sees.
  const bool writes = (flags & (O_WRONLY | O_RDWR | O_TRUNC)) != 0;
  changes_nothing_ = !creates && !writes;
  return changes_nothing_ ? CaptureResult::kNothing : CaptureResult::kCall;
}

BrokeredCall FileCall::ForBroker(const MediatedCall& call, const seccomp_notif& request) const {
  const auto& args = request.data.args;
  const auto directory = [&](int argument) { return argument >= 0 ? AsFd(args[argument]) : AT_FDCWD; };
  BrokeredCall out;
  out.act = call.act;
  out.tid = tid_;
  out.by_fd = call.fd >= 0;
  out.name = {out.by_fd ? AsFd(args[call.fd]) : directory(call.dirfd), out.by_fd ? "" : name_.name};
  if (call.act == FileAct::kSymlink) {
    out.target = new_name_.name;
  } else if (call.new_path >= 0) {
    out.new_name = {directory(call.new_dirfd), new_name_.name};
  }
  out.at_flags = call.act == FileAct::kRename && call.value >= 0 ? args[call.value] : at_flags_;
  if (absl::string_view(call.name).front() == 'l' && call.act == FileAct::kChown)
    out.at_flags |= AT_SYMLINK_NOFOLLOW;
  if (call.act == FileAct::kMknod) out.device = args[call.value + 1];
  out.open_flags = record_.open_flags;
  out.mode = record_.mode;
  out.uid = record_.uid;
  out.gid = record_.gid;
  out.size = record_.size;
  return out;
}

// One look-up through procfs. Absolute symbolic links on the way are followed in the daemon's root, which
// differs only inside of containers; a second descriptor for the exact answer would cost the waiting caller
// twice as much.
bool FileCall::Exists(pid_t tid) const {
  std::string path = absl::StrCat("/proc/", tid);
  if (absl::StartsWith(name_.name, "/")) {
    absl::StrAppend(&path, "/root", name_.name);
  } else if (dirfd_ == AT_FDCWD) {
    absl::StrAppend(&path, "/cwd/", name_.name);
  } else {
    absl::StrAppend(&path, "/fd/", dirfd_, "/", name_.name);
  }
  struct stat st {};
  return stat(path.c_str(), &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

FileRecord FileCall::Describe(PathResolver* resolver, const CallerIdentity& caller, int64_t boot_ns) const {
  FileRecord record = record_;
  record.boot_ns = boot_ns;
  record.pid = static_cast<uint32_t>(caller.tgid);
  record.caller_uid = caller.uid;
  if (cut_) record.flags |= AM_F_PATH_CUT;
  const auto full = [&](const AskedName& asked) {
    return resolver != nullptr ? resolver->Resolve(tid_, caller.tgid, asked, boot_ns) : JoinName(asked);
  };
  record.path = full(name_);
  if (has_new_name_) record.new_path = record.kind == v1::SYMLINK ? new_name_.name : full(new_name_);
  if (resolver != nullptr && (record.kind == v1::RENAME || record.kind == v1::SYMLINK)) resolver->Forget();
  return record;
}

}  // namespace agentmon
