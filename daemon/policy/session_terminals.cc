#include "daemon/policy/session_terminals.h"

#include <dirent.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <climits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace agentmon {
namespace {

constexpr size_t kMostMakers = 64;
constexpr unsigned kVirtualConsoles = 4;  // major numbers of Documentation/admin-guide/devices.txt
constexpr unsigned kFirstPts = 136, kLastPts = 143;

std::string LinkOf(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
  return n > 0 ? std::string(target, static_cast<size_t>(n)) : "";
}

bool IsTerminal(absl::string_view path) {
  return absl::StartsWith(path, "/dev/pts/") || absl::StartsWith(path, "/dev/tty");
}

// Field 7 of /proc/PID/stat, behind the command in parentheses.
std::string ControllingTerminal(const std::string& stat) {
  const size_t end = stat.rfind(')');
  if (end == std::string::npos) return "";
  const std::vector<absl::string_view> fields = absl::StrSplit(stat.substr(end + 1), ' ', absl::SkipEmpty());
  int number = 0;
  if (fields.size() < 5 || !absl::SimpleAtoi(fields[4], &number) || number == 0) return "";
  const unsigned major_number = major(static_cast<dev_t>(number)),
                 minor_number = minor(static_cast<dev_t>(number));
  if (major_number >= kFirstPts && major_number <= kLastPts) {
    return absl::StrCat("/dev/pts/", (major_number - kFirstPts) * 256 + minor_number);
  }
  return major_number == kVirtualConsoles ? absl::StrCat("/dev/tty", minor_number) : "";
}

}  // namespace

void SessionTerminals::AddOf(pid_t pid) {
  const std::string base = absl::StrCat(proc_, "/", pid);
  for (const int fd : {0, 1, 2}) {
    std::string target = LinkOf(absl::StrCat(base, "/fd/", fd));
    if (IsTerminal(target)) own_.insert(std::move(target));
  }
  if (const auto stat = ReadWholeFile(base + "/stat"); stat.ok()) {
    std::string terminal = ControllingTerminal(*stat);
    if (!terminal.empty()) own_.insert(std::move(terminal));
  }
}

void SessionTerminals::AddMaker(pid_t pid) {
  if (makers_.size() < kMostMakers) makers_.insert(pid);
}

bool SessionTerminals::Owns(absl::string_view path) {
  if (own_.find(path) != own_.end()) return true;
  if (!absl::StartsWith(path, "/dev/pts/") || makers_.empty()) return false;
  LookAtMakers();
  return own_.find(path) != own_.end();
}

// The kernel tells which terminal a /dev/ptmx descriptor made: "tty-index:\t7" in fdinfo (Linux 4.15).
void SessionTerminals::LookAtMakers() {
  for (auto it = makers_.begin(); it != makers_.end();) {
    const std::string base = absl::StrCat(proc_, "/", *it);
    DIR* dir = ::opendir((base + "/fd").c_str());
    if (dir == nullptr) {
      it = makers_.erase(it);
      continue;
    }
    while (const dirent* entry = ::readdir(dir)) {
      if (!absl::EndsWith(LinkOf(absl::StrCat(base, "/fd/", entry->d_name)), "/ptmx")) continue;
      const auto info = ReadWholeFile(absl::StrCat(base, "/fdinfo/", entry->d_name));
      if (!info.ok()) continue;
      for (const absl::string_view line : absl::StrSplit(*info, '\n')) {
        absl::string_view rest = line;
        if (absl::ConsumePrefix(&rest, "tty-index:")) {
          own_.insert(absl::StrCat("/dev/pts/", absl::StripAsciiWhitespace(rest)));
        }
      }
    }
    ::closedir(dir);
    ++it;
  }
}

}  // namespace agentmon
