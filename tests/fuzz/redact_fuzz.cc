// Any arguments: no crash, and what was redacted once stays as it is.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/str_split.h"
#include "daemon/event/redact.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  agentmon::Event event;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  for (absl::string_view arg : absl::StrSplit(text, '\0'))
    event.mutable_exec()->add_argv(arg.data(), arg.size());
  const int args = event.exec().argv_size();
  const agentmon::Redactor redactor;
  if (!redactor.Redact(&event) && event.redacted()) std::abort();
  if (event.exec().argv_size() != args) std::abort();
  const std::string once = event.SerializeAsString();
  if (redactor.Redact(&event) || event.SerializeAsString() != once) std::abort();

  std::string path(text), name(text);
  agentmon::Redactor::RedactPath(&path);
  agentmon::Redactor::RedactText(&name);
  if (agentmon::Redactor::RedactPath(&path) || agentmon::Redactor::RedactText(&name)) std::abort();
  return 0;
}
