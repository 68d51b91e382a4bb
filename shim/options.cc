#include "shim/options.h"

#include <fcntl.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace agentmon {
namespace {

absl::Status CheckComplete(const ShimOptions& options) {
  if (options.socket.empty()) return absl::InvalidArgumentError("--socket is missing");
  if (options.token_fd < 0)
    return absl::InvalidArgumentError("--token-fd is missing or not a descriptor's number");
  if (options.command == nullptr || options.command[0] == nullptr) {
    return absl::InvalidArgumentError("no command after --");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShimOptions> ParseShimOptions(int argc, char** argv) {
  ShimOptions options;
  for (int i = 1; i < argc; ++i) {
    absl::string_view word = argv[i];
    if (word == "--") {
      options.command = argv + i + 1;
      break;
    }
    if (absl::ConsumePrefix(&word, "--ns-error=")) {
      options.namespace_error = std::string(word);
    } else if (word == "--socket" && i + 1 < argc) {
      options.socket = argv[++i];
    } else if (word == "--token-fd" && i + 1 < argc) {
      if (!absl::SimpleAtoi(argv[++i], &options.token_fd)) options.token_fd = -1;
    } else if (word == "--keep-fd" && i + 1 < argc) {
      if (!absl::SimpleAtoi(argv[++i], &options.keep_fds.emplace_back()))
        return absl::InvalidArgumentError(absl::StrCat("--keep-fd ", argv[i], " is no descriptor's number"));
    } else {
      return absl::InvalidArgumentError(absl::StrCat("unknown or incomplete option ", word));
    }
  }
  if (absl::Status s = CheckComplete(options); !s.ok()) return s;
  return options;
}

absl::Status CheckKeptDescriptors(const ShimOptions& options) {
  for (const int fd : options.keep_fds) {
    const int flags = fcntl(fd, F_GETFD);
    if (fd != options.token_fd && flags >= 0 && (flags & FD_CLOEXEC) == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--keep-fd ", fd, ": no such descriptor was given to this command"));
  }
  return absl::OkStatus();
}

}  // namespace agentmon
