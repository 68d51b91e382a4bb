// Where agentmon-shim is and how it is called:
//   agentmon-shim --socket PATH --token-fd N [--keep-fd N]... -- CMD ARGS...
// agentmon-ns takes the same arguments and passes them on.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// Paths of the shim and, where it is usable, of agentmon-ns beside it.
struct ShimPrograms {
  std::string shim;
  std::string ns;  // empty: not there, or it would get no capability
};

// Looks beside our own executable (a build), then in /usr/libexec/agentmon (a package).
absl::StatusOr<ShimPrograms> FindShim();

// The same for an executable in `own` and the package's folder `installed`. The first that has a shim is
// taken whole: a shim and an agentmon-ns of two installations do not go together.
absl::StatusOr<ShimPrograms> FindShimFrom(const std::string& own, const std::string& installed);

// The programs in one directory; NotFound when the shim is not there.
absl::StatusOr<ShimPrograms> FindShimIn(const std::string& directory);

struct ShimCall {
  std::string socket;
  int token_fd = -1;
  std::string session;
  std::vector<int> keep_fds;
  std::vector<std::string> command;
};
// Arguments from argv[0] on.
std::vector<std::string> ShimArguments(const std::string& program, const ShimCall& call);
// As execve wants them, with the null at the end. Valid as long as the words are.
std::vector<char*> PointersTo(const std::vector<std::string>& words);

// The programs to try, in order: agentmon-ns when a mount namespace is wanted and can be had, then the shim.
std::vector<std::string> ProgramsToTry(const ShimPrograms& programs, bool mount_namespace);

// A pipe for the token; both ends are close-on-exec.
struct TokenPipe {
  UniqueFd read_end;
  UniqueFd write_end;
};
absl::StatusOr<TokenPipe> MakeTokenPipe();
absl::Status WriteToken(TokenPipe& pipe, const std::string& token);

}  // namespace agentmon
