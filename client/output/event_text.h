// An event in words, for tables and trees. Everything here is printable.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "agentmon/v1/event.pb.h"

namespace agentmon {

// Base name of the executable; "agentmond" for the daemon's own events.
std::string ProcessName(const v1::Event& event);

// What was done to what: "/a -> /b", "git push", "10.0.0.1:443/tcp refused"; with the count and the decision.
std::string What(const v1::Event& event);

// The object alone: path, address or command line.
std::string Subject(const v1::Event& event);

std::string Destination(const v1::Net& net);   // "10.0.0.1:443", "[::1]:53"
std::string ExitText(const v1::Exit& exit);    // "status 1", "killed by SIGSEGV, core dumped"

}  // namespace agentmon
