#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "client/command/cli.h"
#include "common/base/headroom.h"

namespace {

// Closed standard descriptors get a place holder that no child inherits: else a socket would become "stderr".
void FillStandardDescriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) == -1)
      (void)!open("/dev/null", O_RDWR | O_CLOEXEC);  // open takes the lowest: this one
  }
}

}  // namespace

int main(int argc, char** argv) {
  FillStandardDescriptors();
  agentmon::KeepOneHeap();
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) arguments.emplace_back(argv[i]);
  _exit(
      agentmon::RunCli(arguments, STDOUT_FILENO, STDERR_FILENO));  // no global destructors: gRPC's take time
}
