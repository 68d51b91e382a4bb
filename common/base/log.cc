#include "common/base/log.h"

#include <errno.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <utility>

#include "common/base/log_writer.h"

namespace agentmon {
namespace {

std::atomic<int> g_level{static_cast<int>(LogLevel::kInfo)};
LogWriter& TheWriter() {
  static LogWriter& writer = *new LogWriter;
  return writer;
}

void WriteToStderr(LogLevel level, absl::string_view message) {
  static const bool is_terminal = isatty(STDERR_FILENO) == 1;
  std::string line;
  if (!is_terminal) absl::StrAppend(&line, "<", static_cast<int>(level), ">");
  absl::StrAppend(&line, program_invocation_short_name, ": ", message, "\n");
  // One write, so that lines of several threads do not mix. Nobody is left to tell if it fails.
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level = static_cast<int>(level); }

bool LogEnabled(LogLevel level) { return static_cast<int>(level) <= g_level; }

void SetLogWriter(LogWriter writer) { TheWriter() = std::move(writer); }

void LogLine(LogLevel level, absl::string_view message) {
  std::string line(message);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (const LogWriter& writer = TheWriter()) {
    writer(level, line);
  } else {
    WriteToStderr(level, line);
  }
}

}  // namespace agentmon
