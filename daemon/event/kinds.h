// The names of event kinds and sources on the command line and in JSON.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentmon/v1/event.pb.h"

namespace agentmon {

// "exec", "open_write", "unix_connect", ...
std::string KindName(v1::EventKind kind);
// A kind's name, or a group: process, file, net, unix. Empty when it is neither.
std::vector<v1::EventKind> KindsByName(absl::string_view name);
// "process", "network", "fanotify", "notify", "daemon".
std::string SourceName(v1::Source source);
// True where the source sees every act of this kind; false where counts are lower bounds.
bool SourceIsExact(v1::Source source);

}  // namespace agentmon
