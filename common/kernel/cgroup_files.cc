#include "common/kernel/cgroup_files.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/kernel/proc_fs.h"

namespace agentmon {

absl::StatusOr<std::string> CgroupFiles::Read(absl::string_view name) const {
  return ReadWholeFile(absl::StrCat(directory_, "/", name));
}

absl::Status CgroupFiles::Write(absl::string_view name, absl::string_view value) const {
  const std::string path = absl::StrCat(directory_, "/", name);
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  if (::write(fd.get(), value.data(), value.size()) != static_cast<ssize_t>(value.size())) {
    return ErrnoStatus(errno, absl::StrCat("write ", value, " to ", path));
  }
  return absl::OkStatus();
}

bool CgroupFiles::HasWord(absl::string_view name, absl::string_view word) const {
  const auto text = Read(name);
  if (!text.ok()) return false;
  for (absl::string_view one : absl::StrSplit(*text, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    if (one == word) return true;
  }
  return false;
}

uint64_t CgroupFiles::Field(absl::string_view text, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    uint64_t value = 0;
    if (absl::ConsumePrefix(&line, key) && absl::ConsumePrefix(&line, " ") && absl::SimpleAtoi(line, &value))
      return value;
  }
  return 0;
}

}  // namespace agentmon
