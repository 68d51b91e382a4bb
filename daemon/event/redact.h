// Secrets out of argument lists, URLs and names, before anything is stored or streamed. Knows the
// forms in which they are usually given; what it does not know stays.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "daemon/event/event.h"

namespace agentmon {

// Thread-safe. An argument list without anything suspicious costs about 1 ns a byte.
class Redactor {
 public:
  static constexpr absl::string_view kMark = "[redacted]";

  // Replaces secrets in argv, and in paths and names those parts of URLs that are secret.
  // Sets event.redacted and answers true when there was one.
  bool Redact(Event* event) const;

  // One text by itself (a shell command, a header, a URL, NAME=VALUE).
  static bool RedactText(std::string* text);
  // Only user information and parameters of URLs; ordinary paths are left alone.
  static bool RedactUrl(std::string* text);

 private:
  static bool RedactArgv(v1::Exec* exec);
};

}  // namespace agentmon
