#include "daemon/event/kinds.h"

#include "absl/strings/ascii.h"

namespace agentmon {

std::string KindName(v1::EventKind kind) { return absl::AsciiStrToLower(v1::EventKind_Name(kind)); }

std::vector<v1::EventKind> KindsByName(absl::string_view name) {
  std::vector<v1::EventKind> kinds;
  for (int number = v1::EventKind_MIN; number <= v1::EventKind_MAX; ++number) {
    if (number == v1::EVENT_KIND_UNSPECIFIED || !v1::EventKind_IsValid(number)) continue;
    const auto kind = static_cast<v1::EventKind>(number);
    const bool in_group = (name == "process" && number < v1::OPEN) ||
                          (name == "file" && number >= v1::OPEN && number < v1::CONNECT) ||
                          (name == "net" && ((number >= v1::CONNECT && number < v1::UNIX_CONNECT) ||
                                             number == v1::DNS || number == v1::HTTP)) ||
                          (name == "unix" && (number == v1::UNIX_CONNECT || number == v1::UNIX_SEND));
    if (in_group || KindName(kind) == name) kinds.push_back(kind);
  }
  return kinds;
}

std::string SourceName(v1::Source source) { return absl::AsciiStrToLower(v1::Source_Name(source)); }

bool SourceIsExact(v1::Source source) { return source != v1::FANOTIFY && source != v1::NFLOG; }

}  // namespace agentmon
