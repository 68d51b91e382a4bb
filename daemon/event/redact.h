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

  // Replaces secrets in argv and paths. Sets event.redacted and answers true when there was one. What was
  // redacted once stays as it is.
  bool Redact(Event* event) const;

  // One text by itself (a shell command, a header, a URL, NAME=VALUE).
  static bool RedactText(std::string* text);
  // The value of something that has a name, as a label's.
  static bool RedactNamed(absl::string_view name, std::string* value);
  // In a path: URLs, NAME=VALUE, and what looks like a token.
  static bool RedactPath(std::string* path);

 private:
  static bool RedactArgv(v1::Exec* exec);
};

}  // namespace agentmon
