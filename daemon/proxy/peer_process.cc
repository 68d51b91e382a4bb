#include "daemon/proxy/peer_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <memory>

#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

bool HasDescriptor(const std::string& path, absl::string_view wanted) {
  const std::unique_ptr<DIR, CloseDirectory> directory(::opendir(path.c_str()));
  if (directory == nullptr) return false;
  char target[64];
  while (const dirent* entry = ::readdir(directory.get())) {
    const ssize_t n = ::readlinkat(::dirfd(directory.get()), entry->d_name, target, sizeof(target));
    if (n > 0 && absl::string_view(target, static_cast<size_t>(n)) == wanted) return true;
  }
  return false;
}

}  // namespace

// The youngest first: it is mostly the one that was just started.
pid_t FindSocketOwner(const std::vector<pid_t>& processes, uint32_t inode, const ProcFs& proc) {
  const std::string wanted = absl::StrCat("socket:[", inode, "]");
  for (auto pid = processes.rbegin(); pid != processes.rend(); ++pid) {
    if (HasDescriptor(absl::StrCat(proc.root(), "/", *pid, "/fd"), wanted)) return *pid;
  }
  return 0;
}

}  // namespace agentmon
