// One line per message on standard error, with the priority prefix that systemd reads ("<3>") when
// stderr is not a terminal. Thread-safe.
#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace agentmon {

enum class LogLevel { kError = 3, kWarning = 4, kInfo = 6, kDebug = 7 };  // syslog(3) numbers

void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
// Writes "agentmond: message"; newlines and control bytes in the message are shown as '?'.
void LogLine(LogLevel level, absl::string_view message);

template <typename... Args>
void Log(LogLevel level, const Args&... args) {
  if (LogEnabled(level)) LogLine(level, absl::StrCat(args...));
}
template <typename... Args>
void LogError(const Args&... args) {
  Log(LogLevel::kError, args...);
}
template <typename... Args>
void LogWarning(const Args&... args) {
  Log(LogLevel::kWarning, args...);
}
template <typename... Args>
void LogInfo(const Args&... args) {
  Log(LogLevel::kInfo, args...);
}
template <typename... Args>
void LogDebug(const Args&... args) {
  Log(LogLevel::kDebug, args...);
}

}  // namespace agentmon
