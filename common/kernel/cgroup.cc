#include "common/kernel/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/kernel/mountinfo.h"
#include "common/kernel/proc_fs.h"

namespace agentmon {
namespace {

// The id of a cgroup is its kernfs file handle (name_to_handle_at(2)), 8 bytes; on 64-bit kernels the
// inode number is the same.
absl::StatusOr<uint64_t> CgroupId(int fd, const std::string& path) {
  union {
    file_handle handle;
    char bytes[sizeof(file_handle) + MAX_HANDLE_SZ];
  } h{};
  h.handle.handle_bytes = MAX_HANDLE_SZ;
  int mount_id = 0;
  if (::name_to_handle_at(fd, "", &h.handle, &mount_id, AT_EMPTY_PATH) != 0) {
    return ErrnoStatus(errno, absl::StrCat("file handle of ", path));
  }
  if (h.handle.handle_bytes != sizeof(uint64_t)) {
    return absl::InternalError(absl::StrCat(path, ": not a cgroup2 directory"));
  }
  uint64_t id = 0;
  memcpy(&id, h.handle.f_handle, sizeof(id));
  return id;
}

absl::Status WriteFile(int dir_fd, const std::string& path, const char* name, absl::string_view value) {
  const UniqueFd fd(::openat(dir_fd, name, O_WRONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path, "/", name));
  if (::write(fd.get(), value.data(), value.size()) != static_cast<ssize_t>(value.size())) {
    const int error = errno == ESRCH ? ENOENT : errno;
    return ErrnoStatus(error, absl::StrCat("write ", value, " to ", path, "/", name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> FindCgroup2Mount(const std::string& mountinfo_path) {
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, ReadMountinfo(mountinfo_path));
  for (const Mount& m : mounts) {
    if (m.fs_type == "cgroup2") return m.mount_point;
  }
  return absl::NotFoundError(
      "cgroup v2 is not mounted on this host; agentmon needs it to tell sessions apart");
}

absl::StatusOr<Cgroup> Cgroup::Create(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("make cgroup ", path));
  }
  return Open(path);
}

absl::StatusOr<Cgroup> Cgroup::Open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open cgroup ", path));
  ASSIGN_OR_RETURN(const uint64_t id, CgroupId(fd.get(), path));
  return Cgroup(path, std::move(fd), id);
}

absl::StatusOr<Cgroup> Cgroup::OpenOwn(const std::string& mount) {
  ASSIGN_OR_RETURN(const std::string path, ProcFs().CgroupPath(::getpid()));
  return Open(mount + path);
}

absl::Status Cgroup::AddProcess(pid_t pid) const {
  return WriteFile(fd_.get(), path_, "cgroup.procs", absl::StrCat(pid));
}

std::vector<std::string> Cgroup::Children() const {
  std::vector<std::string> names;
  DIR* dir = ::opendir(path_.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = ::readdir(dir)) {
    const absl::string_view name = entry->d_name;
    if (entry->d_type == DT_DIR && name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(dir);
  return names;
}

absl::StatusOr<std::vector<pid_t>> Cgroup::Processes() const {
  std::vector<pid_t> pids;
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(absl::StrCat(path_, "/cgroup.procs")));
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(line, &pid) && pid > 0) pids.push_back(pid);
  }
  for (const std::string& name : Children()) {
    const auto child = Open(absl::StrCat(path_, "/", name));
    if (!child.ok()) continue;  // removed meanwhile
    const auto below = child->Processes();
    if (below.ok()) pids.insert(pids.end(), below->begin(), below->end());
  }
  return pids;
}

absl::StatusOr<bool> Cgroup::Populated() const {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(absl::StrCat(path_, "/cgroup.events")));
  return absl::StrContains(text, "populated 1");
}

absl::Status Cgroup::Kill() const { return WriteFile(fd_.get(), path_, "cgroup.kill", "1"); }

absl::Status Cgroup::SetFrozen(bool frozen) const {
  return WriteFile(fd_.get(), path_, "cgroup.freeze", frozen ? "1" : "0");
}

absl::StatusOr<bool> Cgroup::Frozen() const {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(absl::StrCat(path_, "/cgroup.freeze")));
  return absl::StartsWith(text, "1");
}

absl::Status Cgroup::RemoveTree() const {
  for (const std::string& name : Children()) {
    const auto child = Open(absl::StrCat(path_, "/", name));
    if (child.ok()) RETURN_IF_ERROR(child->RemoveTree());
  }
  if (::rmdir(path_.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("remove cgroup ", path_));
  }
  return absl::OkStatus();
}

}  // namespace agentmon
