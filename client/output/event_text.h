// An event in words, for tables and trees. Everything here is printable.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "agentmon/v1/event.pb.h"

namespace agentmon {

// Base name of the executable; "agentmond" for the daemon's own events, "kernel" for what control files say.
std::string ProcessName(const v1::Event& event);

// The kind's name; with a '?' where names are as the program asked for and the outcome was not seen.
std::string KindText(const v1::Event& event);

// What was done to what, in parts: "[deny by no-keys, EPERM] ", "/a → /b", " ×2 (cut)".
struct WhatText {
  std::string decision;
  std::string short_decision;  // "[deny] "
  std::string subject;
  std::string count;
  bool end_matters = false;  // of the subject: a path tells more by its end

  std::string Whole() const { return decision + subject + count; }
  // Cut so that it fits; the decision and the count stay.
  std::string Fit(int columns) const;
};
WhatText What(const v1::Event& event);

// The object alone: path, address or command line.
std::string Subject(const v1::Event& event);

std::string Destination(const v1::Net& net);    // "10.0.0.1:443", "[::1]:53"
std::string ExitText(const v1::Exit& exit);     // "status 1", "killed by SIGSEGV, core dumped"
std::string UsageText(const v1::Usage& usage);  // "cpu 1.5s; memory 90.0 MiB, at most 100.0 MiB; 3 processes"

}  // namespace agentmon
