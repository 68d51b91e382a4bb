#include "daemon/session/session_files.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/kernel/proc_fs.h"

namespace agentmon {

absl::Status SessionFiles::Write(const v1::Session& session) const {
  if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("make ", directory_));
  }
  return ReplaceFile(absl::StrCat(directory_, "/", session.id()), session.SerializeAsString(), 0600,
                     Outlives::kProcess);
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
