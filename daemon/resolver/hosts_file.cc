#include "daemon/resolver/hosts_file.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "common/base/log.h"

namespace agentmon {
namespace {

constexpr size_t kMostBytes = 16 << 20;

bool Same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

HostTable ParseHosts(absl::string_view text) {
  HostTable table;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = line.substr(0, line.find('#'));
    std::optional<policy::Address> address;
    for (const absl::string_view word : absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {
      if (!address.has_value()) {
        address = policy::ParseAddress(word);
        if (!address.has_value()) break;
        continue;
      }
      const std::optional<std::string> name = policy::NormalizeDomain(word);
      if (!name.has_value()) continue;
      std::vector<policy::Address>& known = table[*name];
      if (std::find(known.begin(), known.end(), *address) == known.end()) known.push_back(*address);
    }
  }
  return table;
}

const std::vector<policy::Address>* HostsFile::Find(const std::string& name) {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) {
    read_.reset();
    table_.clear();
  } else if (!read_.has_value() || !Same(*read_, now)) {
    const absl::StatusOr<std::string> text = ReadRootFile(path_, kMostBytes);
    if (!text.ok()) LogWarning("names of ", path_, " are not known: ", text.status().message());
    table_ = text.ok() ? ParseHosts(*text) : HostTable();
    read_ = now;
  }
  const auto it = table_.find(name);
  return it == table_.end() ? nullptr : &it->second;
}

}  // namespace agentmon
