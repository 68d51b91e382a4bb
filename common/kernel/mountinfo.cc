#include "common/kernel/mountinfo.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/kernel/proc_fs.h"

namespace agentmon {
namespace {

bool IsOctal(char c) { return c >= '0' && c <= '7'; }

std::string Unescape(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && IsOctal(text[i + 1]) && IsOctal(text[i + 2]) &&
        IsOctal(text[i + 3])) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

bool IsServedFileSystem(absl::string_view fs_type) {
  static constexpr absl::string_view kTypes[] = {"nfs", "nfs4", "cifs", "smb3", "ceph", "afs"};
  if (fs_type == "fusectl") return false;
  return absl::StartsWith(fs_type, "fuse") ||
         std::find(std::begin(kTypes), std::end(kTypes), fs_type) != std::end(kTypes);
}

std::vector<Mount> ParseMountinfo(absl::string_view text) {
  std::vector<Mount> mounts;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> f = absl::StrSplit(line, ' ');
    // id parent major:minor root mount_point options optional... - type source super_options
    size_t dash = 6;
    while (dash < f.size() && f[dash] != "-") ++dash;
    if (dash + 2 >= f.size()) continue;
    Mount m;
    if (!absl::SimpleAtoi(f[0], &m.id) || !absl::SimpleAtoi(f[1], &m.parent_id)) continue;
    m.device = std::string(f[2]);
    m.root = Unescape(f[3]);
    m.mount_point = Unescape(f[4]);
    m.options = std::string(f[5]);
    m.fs_type = std::string(f[dash + 1]);
    m.source = Unescape(f[dash + 2]);
    if (dash + 3 < f.size()) m.super_options = std::string(f[dash + 3]);
    mounts.push_back(std::move(m));
  }
  return mounts;
}

absl::StatusOr<std::vector<Mount>> ReadMountinfo(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  return ParseMountinfo(text);
}

}  // namespace agentmon
