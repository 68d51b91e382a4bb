#include "daemon/policy/protected_inodes.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/kernel/mountinfo.h"

namespace agentmon {
namespace {

constexpr int kDeepest = 64;

}  // namespace

uint32_t ProtectedInodes::StoppedOn(const struct stat& st, const std::vector<std::string>& roots,
                                    const Stops& stops, int64_t now_ns) {
  if (now_ns >= fresh_until_ns_) {
    stopped_.clear();
    entries_ = 0;
    served_.clear();
    const auto mounts = ReadMountinfo("/proc/self/mountinfo");
    for (const Mount& mount : mounts.ok() ? *mounts : std::vector<Mount>()) {
      if (IsServedFileSystem(mount.fs_type)) served_.push_back(mount.mount_point);
    }
    for (const std::string& root : roots) LookAt(root, stops);
    fresh_until_ns_ = now_ns + kFresh_ns;
  }
  if (entries_ > kEntriesMax) return kUnknown;
  const auto found = stopped_.find({st.st_dev, st.st_ino});
  return found == stopped_.end() ? 0 : found->second;
}

bool ProtectedInodes::IsServed(absl::string_view path) const {
  return std::any_of(served_.begin(), served_.end(), [&](const std::string& mount_point) {
    return mount_point == "/" || path == mount_point ||
           absl::StartsWith(path, absl::StrCat(mount_point, "/"));
  });
}

void ProtectedInodes::LookAt(const std::string& path, const Stops& stops) {
  if (IsServed(path)) return;
  struct stat st {};
  if (lstat(path.c_str(), &st) != 0) return;
  if (S_ISREG(st.st_mode) && st.st_nlink > 1) stopped_[{st.st_dev, st.st_ino}] |= stops(path);
  if (!S_ISDIR(st.st_mode)) return;
  const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory >= 0) LookThrough(directory, path, stops, 0);
}

void ProtectedInodes::LookThrough(int directory, const std::string& path, const Stops& stops, int depth) {
  DIR* dir = fdopendir(directory);
  if (dir == nullptr) {
    close(directory);
    return;
  }
  while (const dirent* entry = readdir(dir)) {
    const absl::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (++entries_ > kEntriesMax) break;
    if (entry->d_type != DT_REG && entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN) continue;
    const std::string below = absl::StrCat(path, "/", name);
    if (entry->d_type != DT_REG && IsServed(below)) continue;
    struct stat st {};
    if (fstatat(directory, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(st.st_mode) && st.st_nlink > 1) stopped_[{st.st_dev, st.st_ino}] |= stops(below);
    if (!S_ISDIR(st.st_mode) || depth >= kDeepest) continue;
    const int inner = openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner >= 0) LookThrough(inner, below, stops, depth + 1);
  }
  closedir(dir);
}

}  // namespace agentmon
