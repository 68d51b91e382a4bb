// agentmon-shim: joins a session, restricts itself, becomes the agent.
//
// Two threads: everything of gRPC happens on one that is started before the filter and is not covered by it;
// the main thread is filtered and execs. So whatever gRPC does between filter and exec cannot wait for the
// daemon that it talks to.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/headroom.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/base/watchdog.h"
#include "shim/options.h"
#include "shim/restrict.h"
#include "shim/run_agent.h"
#include "shim/session_client.h"

namespace agentmon {
namespace {

// Two calls of 30 s at most, and connecting; the same again for a third.
constexpr absl::Duration kJoinTime = absl::Seconds(75);
constexpr absl::Duration kCanaryTime = absl::Seconds(5);

// A descriptor of ours must never be 0, 1 or 2: error messages would go into it. Close-on-exec, so that what
// was closed for us is closed for the agent.
void HoldStandardDescriptors() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) close(fd);
}

Watchdog::Options Patience() {
  Watchdog::Options options;
  options.patience = kJoinTime;
  options.exit_status = kExitOwnFailure;
  options.on_hang =
      "agentmon: the session could not be joined in time: the daemon hangs, or this process is short of "
      "threads "
      "or memory ('ulimit -a' shows the limits)\n";
  options.on_abort =
      "agentmon: the session could not be joined: this process is probably short of descriptors, threads or "
      "memory ('ulimit -a' shows the limits)\n";
  return options;
}

Watchdog::Options CanaryPatience() {
  Watchdog::Options options;
  options.patience = kCanaryTime;
  options.exit_status = kExitOwnFailure;
  options.on_hang =
      "agentmon: the session's controls could not be tried in time: the daemon does not answer a forbidden "
      "act\n";
  options.on_abort = "agentmon: the session's controls could not be tried\n";
  return options;
}

struct Tried {
  std::vector<int> errors;   // of each canary
  UniqueFd datagram_socket;  // made in the session, for the daemon to try
};

// What one thread has to hand to the other.
struct Joining {
  std::promise<v1::AttachResponse> attached;
  std::promise<std::pair<int, std::string>> restricted;  // the listener's number, and why there is none
  std::promise<bool> armed;                              // true: prove it
  std::promise<Tried> tried;
  std::promise<void> proven;
};

template <typename T>
T OrFail(absl::StatusOr<T> result) {
  if (!result.ok()) Fail(kExitOwnFailure, result.status().message());
  return *std::move(result);
}

void CallDaemon(SessionClient& client, const std::string& namespace_error, Joining& joining) {
  joining.attached.set_value(OrFail(client.Attach(namespace_error)));
  const auto [listener, why_none] = joining.restricted.get_future().get();
  const bool prove = OrFail(client.Arm(listener, why_none)).prove();
  joining.armed.set_value(prove);
  if (prove) {
    const Tried tried = joining.tried.get_future().get();
    if (absl::Status s = client.Prove(tried.errors, tried.datagram_socket.get()); !s.ok())
      Fail(kExitOwnFailure, s.message());
    joining.proven.set_value();
  }
}

Tried TryCanaries(const v1::ShimPlan& plan, const Restricted& restricted) {
  const Watchdog watchdog(CanaryPatience());
  const pid_t outsider = restricted.outsider.has_value() ? restricted.outsider->pid() : 0;
  Tried tried;
  for (const v1::Canary& canary : plan.canaries()) tried.errors.push_back(TryCanary(canary, outsider));
  if (plan.give_datagram_socket())
    tried.datagram_socket = UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return tried;
}

// Restricts this thread meanwhile; the environment of the agent.
std::vector<std::string> Join(const ShimOptions& options, std::string token) {
  std::optional<Watchdog> watchdog(Patience());
  UniqueFd connection = OrFail(ConnectToDaemon(options.socket));
  if (absl::Status room = CheckHeadroom(kGrpcClient); !room.ok()) Fail(kExitOwnFailure, room.message());
  Joining& joining = *new Joining;  // the thread lives until the exec
  std::thread([&joining, connection = std::move(connection), token = std::move(token),
               why = options.namespace_error]() mutable {
    SessionClient client(std::move(connection), std::move(token));
    CallDaemon(client, why, joining);
    for (;;) pause();  // exec ends this thread; taking the channel down first would only cost time
  }).detach();
  const v1::AttachResponse response = joining.attached.get_future().get();
  Restricted restricted = OrFail(RestrictSelf(response, options.keep_fds));
  joining.restricted.set_value({restricted.listener.get(), restricted.no_listener});
  if (joining.armed.get_future().get()) {
    watchdog.reset();  // one at a time
    Tried tried = TryCanaries(response.plan(), restricted);
    watchdog.emplace(Patience());
    joining.tried.set_value(std::move(tried));
    joining.proven.get_future().wait();
  }
  return std::move(restricted.environment);
}

}  // namespace
}  // namespace agentmon

int main(int argc, char** argv) {
  using namespace agentmon;
  HoldStandardDescriptors();
  KeepOneHeap();
  absl::StatusOr<ShimOptions> options = ParseShimOptions(argc, argv);
  if (!options.ok()) {
    Fail(kExitOwnFailure,
         absl::StrCat("agentmon-shim is started by 'agentmon run -- CMD': ", options.status().message()));
  }
  if (absl::Status kept = CheckKeptDescriptors(*options); !kept.ok()) Fail(kExitOwnFailure, kept.message());
  absl::StatusOr<std::string> token = ReadToken(UniqueFd(options->token_fd));
  if (!token.ok()) Fail(kExitOwnFailure, token.status().message());
  RunAgent(options->command, Join(*options, std::move(*token)));
}
