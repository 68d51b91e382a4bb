#include "daemon/policy/program_copies.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/unique_fd.h"
#include "common/policy/evaluate.h"

namespace agentmon {
namespace {

constexpr const char* kDirectories[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"};
constexpr const char* kLoaders[] = {"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux.so.2",
                                    "/lib/ld-linux-aarch64.so.1",  "/lib/ld-linux-armhf.so.3",
                                    "/lib/ld-musl-x86_64.so.1",    "/lib/ld-musl-aarch64.so.1"};
constexpr size_t kChunk = 256 << 10;

// Reads until `size` bytes are there or the file ends.
ssize_t ReadFully(int fd, char* buffer, size_t size, off_t at) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::pread(fd, buffer + done, size - done, at + static_cast<off_t>(done));
    if (n < 0) return -1;
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

bool SameContent(int a, int b, off_t size) {
  std::vector<char> one(kChunk), other(kChunk);
  for (off_t at = 0; at < size;) {
    const ssize_t n = ReadFully(a, one.data(), kChunk, at);
    if (n <= 0 || ReadFully(b, other.data(), kChunk, at) != n) return false;
    if (std::memcmp(one.data(), other.data(), static_cast<size_t>(n)) != 0) return false;
    at += n;
  }
  return true;
}

}  // namespace

ProgramCopies::ProgramCopies(const policy::Snapshot& snapshot) {
  AddLoaders();
  for (const policy::CompiledLayer& layer : snapshot.layers()) {
    for (const policy::Rule& rule : layer.document->rules) {
      if (rule.kind != policy::RuleKind::kCommand) continue;
      if (policy::Strictness(rule.decision) < policy::Strictness(policy::Decision::kRedirect)) continue;
      for (const policy::Text& command : rule.commands) {
        if (command.value.empty() || command.value.find_first_of("*?[{$") != std::string::npos) continue;
        if (command.value[0] == '/') {
          Add(command.value);
        } else if (!absl::StrContains(command.value, '/')) {
          for (const char* directory : kDirectories) Add(absl::StrCat(directory, "/", command.value));
        }
      }
    }
  }
}

void ProgramCopies::AddLoaders() {
  for (const char* path : kLoaders) {
    struct stat st {};
    if (::stat(path, &st) == 0 && S_ISREG(st.st_mode))
      loaders_[st.st_size].push_back({path, st.st_dev, st.st_ino});
  }
}

bool ProgramCopies::IsLoader(int fd, const struct stat& st) const {
  const auto found = loaders_.find(st.st_size);
  if (found == loaders_.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(), [&](const Program& loader) {
    if (loader.device == st.st_dev && loader.inode == st.st_ino) return true;
    const UniqueFd original(::open(loader.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    return original.valid() && SameContent(fd, original.get(), st.st_size);
  });
}

void ProgramCopies::Add(const std::string& path) {
  struct stat st {};
  // Links that are the names of one program for many purposes would make all of them one.
  if (::lstat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return;
  by_size_[st.st_size].push_back({path, st.st_dev, st.st_ino});
}

std::string ProgramCopies::OriginalOf(int fd, const struct stat& st) const {
  const auto found = by_size_.find(st.st_size);
  if (found == by_size_.end()) return "";
  for (const Program& program : found->second) {
    if (program.device == st.st_dev && program.inode == st.st_ino) return "";
  }
  for (const Program& program : found->second) {
    const UniqueFd original(::open(program.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (original.valid() && SameContent(fd, original.get(), st.st_size)) return program.path;
  }
  return "";
}

}  // namespace agentmon
