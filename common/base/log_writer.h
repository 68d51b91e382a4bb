// Where the lines of the log go, when not to standard error.
#pragma once

#include <functional>

#include "common/base/log.h"

namespace agentmon {

// A message has one line. From any thread.
using LogWriter = std::function<void(LogLevel level, absl::string_view message)>;

// Once, before there is a second thread.
void SetLogWriter(LogWriter writer);

}  // namespace agentmon
