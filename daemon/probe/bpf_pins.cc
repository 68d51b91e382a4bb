#include "daemon/probe/bpf_pins.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

bool IsBpfFs(const std::string& path) {
  struct statfs fs {};
  return statfs(path.c_str(), &fs) == 0 && fs.f_type == BPF_FS_MAGIC;
}

// Anybody may make directories in a BPF file system that was mounted without a mode.
absl::Status MakeOwn(const std::string& path) {
  for (int tries = 0; tries < 2; ++tries) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      return ErrnoStatus(errno, absl::StrCat("make ", path));
    struct stat st {};
    if (lstat(path.c_str(), &st) != 0) return ErrnoStatus(errno, absl::StrCat("look at ", path));
    if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0) return absl::OkStatus();
    rmdir(path.c_str());
  }
  return absl::PermissionDeniedError(absl::StrCat(path, " is not root's alone; remove it"));
}

std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  DIR* dir = opendir(path.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(dir);
  return names;
}

void RemoveGroup(const std::string& path) {
  for (const std::string& name : NamesIn(path)) {
    const std::string pin = absl::StrCat(path, "/", name);
    if (unlink(pin.c_str()) != 0) LogWarning(ErrnoStatus(errno, absl::StrCat("remove ", pin)).message());
  }
  rmdir(path.c_str());
}

// Never used by another life, also of a process with the same number.
std::string NewRun() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::StrCat(getpid(), "-", now.tv_sec, "-", now.tv_nsec);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BpfPins>> BpfPins::Create(const std::string& instance,
                                                         const std::string& mount) {
  if (!IsBpfFs(mount) &&
      ::mount("bpf", mount.c_str(), "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700") != 0)
    return ErrnoStatus(errno, absl::StrCat("mount the BPF file system on ", mount));
  const std::string root = mount + "/agentmon";
  return std::unique_ptr<BpfPins>(new BpfPins(root, absl::StrCat(root, "/", instance), NewRun()));
}

BpfPins::~BpfPins() { RemoveEmpty(); }

void BpfPins::RemoveEmpty() const {
  rmdir(RunDir().c_str());
  rmdir(instance_dir_.c_str());
  rmdir(root_.c_str());
}

absl::Status BpfPins::MakeDirectories(const std::string& group_dir) const {
  for (const std::string& path : {root_, instance_dir_, RunDir(), group_dir}) RETURN_IF_ERROR(MakeOwn(path));
  return absl::OkStatus();
}

absl::Status BpfPins::Pin(bpf_link* link, absl::string_view group, absl::string_view name) {
  const std::string directory = absl::StrCat(RunDir(), "/", group);
  RETURN_IF_ERROR(MakeDirectories(directory));
  const std::string path = absl::StrCat(directory, "/", name);
  // Not bpf_link__pin, which refuses a link that was pinned before.
  if (bpf_obj_pin(bpf_link__fd(link), path.c_str()) != 0)
    return ErrnoStatus(errno, absl::StrCat("pin ", path));
  return absl::OkStatus();
}

void BpfPins::Remove(absl::string_view group) {
  RemoveGroup(absl::StrCat(RunDir(), "/", group));
  RemoveEmpty();
}

void BpfPins::RemoveEarlier() {
  for (const std::string& run : NamesIn(instance_dir_)) {
    if (run == run_) continue;
    const std::string directory = absl::StrCat(instance_dir_, "/", run);
    for (const std::string& group : NamesIn(directory)) RemoveGroup(absl::StrCat(directory, "/", group));
    rmdir(directory.c_str());
  }
  RemoveEmpty();
}

}  // namespace agentmon
