#include "shim/run_agent.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace agentmon {

void RunAgent(char** command) {
  execvp(command[0], command);
  const int error = errno;
  Fail(error == ENOENT ? kExitNotFound : kExitNotExecutable,
       absl::StrCat(command[0], ": ", strerrordesc_np(error)));
}

void Fail(int status, absl::string_view why) {
  std::string line = "agentmon: ";
  for (const char c : why) line += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? '?' : c;
  line += '\n';
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
  _exit(status);
}

}  // namespace agentmon
