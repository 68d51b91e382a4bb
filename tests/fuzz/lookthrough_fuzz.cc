// Words separated by NUL bytes: looking through them ends, with at most 64 commands.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/policy/lookthrough.h"

using namespace agentmon::policy;  // NOLINT

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TransparentSet transparent;
  const absl::string_view all(reinterpret_cast<const char*>(data), size);
  const std::vector<absl::string_view> argv = absl::StrSplit(all, '\0');
  if (LookThrough(ProgramName(argv[0]), argv, transparent).size() > 64) __builtin_trap();
  if (SplitScript(all).size() > 64) __builtin_trap();
  return 0;
}
