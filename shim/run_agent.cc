#include "shim/run_agent.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace agentmon {

int ErrorOfSearch(int error, absl::string_view program, absl::string_view path) {
  if (error != EACCES || program.find('/') != absl::string_view::npos) return error;
  for (const absl::string_view directory : absl::StrSplit(path, ':')) {
    const std::string file = absl::StrCat(directory.empty() ? "." : directory, "/", program);
    if (access(file.c_str(), F_OK) == 0) return EACCES;
  }
  return ENOENT;
}

void RunAgent(char** command, const std::vector<std::string>& environment) {
  std::vector<char*> words;
  for (const std::string& word : environment) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  environ = words.data();  // in one step: gRPC's threads may still read the old one
  execvp(command[0], command);
  const char* path = getenv("PATH");
  const int error = ErrorOfSearch(errno, command[0], path == nullptr ? "" : path);
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
