#include "daemon/session/session_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/kernel/proc_fs.h"

namespace agentmon {

absl::Status SessionFiles::Write(const v1::Session& session) const {
  if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("make ", directory_));
  }
  const std::string path = absl::StrCat(directory_, "/", session.id());
  const std::string fresh = absl::StrCat(path, ".new");
  {
    const UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", fresh));
    const std::string bytes = session.SerializeAsString();
    if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      return ErrnoStatus(errno, absl::StrCat("write ", fresh));
    }
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("rename to ", path));
  return absl::OkStatus();
}

void SessionFiles::Remove(const std::string& id) const {
  ::unlink(absl::StrCat(directory_, "/", id).c_str());
}

std::vector<v1::Session> SessionFiles::ReadAll() const {
  std::vector<v1::Session> sessions;
  DIR* dir = ::opendir(directory_.c_str());
  if (dir == nullptr) return sessions;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    const auto bytes = ReadWholeFile(absl::StrCat(directory_, "/", name));
    v1::Session session;
    if (bytes.ok() && session.ParseFromString(*bytes) && session.id() == name) {
      sessions.push_back(std::move(session));
    } else {
      LogWarning("session file ", name, " does not parse; removed");
      Remove(name);
    }
  }
  ::closedir(dir);
  return sessions;
}

}  // namespace agentmon
