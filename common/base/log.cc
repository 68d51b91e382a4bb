#include "common/base/log.h"

#include <errno.h>
#include <unistd.h>

#include <atomic>
#include <string>

namespace agentmon {
namespace {

std::atomic<int> g_level{static_cast<int>(LogLevel::kInfo)};

}  // namespace

void SetLogLevel(LogLevel level) { g_level = static_cast<int>(level); }

bool LogEnabled(LogLevel level) { return static_cast<int>(level) <= g_level; }

void LogLine(LogLevel level, absl::string_view message) {
  static const bool is_terminal = isatty(STDERR_FILENO) == 1;
  std::string line;
  if (!is_terminal) absl::StrAppend(&line, "<", static_cast<int>(level), ">");
  absl::StrAppend(&line, program_invocation_short_name, ": ");
  for (const char c : message) line += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? '?' : c;
  line += '\n';
  // One write, so that lines of several threads do not mix. Nobody is left to tell if it fails.
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace agentmon
