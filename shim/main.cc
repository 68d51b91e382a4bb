// agentmon-shim: joins a session, restricts itself, becomes the agent.
//
// Two threads: everything of gRPC happens on one that is started before the filter and is not covered by it;
// the main thread is filtered and execs. So whatever gRPC does between filter and exec cannot wait for the
// daemon that it talks to.
#include <fcntl.h>
#include <unistd.h>

#include <future>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/headroom.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/base/watchdog.h"
#include "shim/options.h"
#include "shim/run_agent.h"
#include "shim/session_client.h"
#include "shim/stage/notify_filter.h"

namespace agentmon {
namespace {

// Two calls of 30 s at most, and connecting.
constexpr absl::Duration kJoinTime = absl::Seconds(75);

struct NotifyResult {
  int fd = -1;
  std::string error;
};

// A descriptor of ours must never be 0, 1 or 2: error messages would go into it. Close-on-exec, so that what
// was closed for us is closed for the agent.
void HoldStandardDescriptors() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) close(fd);
}

NotifyResult InstallFilter(const v1::AttachResponse& attached) {
  if (!attached.notify()) return {-1, "not asked for"};
  absl::StatusOr<UniqueFd> listener = InstallNotifyFilter({}, attached.plan().ask_exec());
  if (!listener.ok()) return {-1, std::string(listener.status().message())};
  return {listener->Release(), ""};  // close-on-exec
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

void JoinSession(const ShimOptions& options, std::string token) {
  std::optional<Watchdog> watchdog(Patience());
  absl::StatusOr<UniqueFd> connection = ConnectToDaemon(options.socket);
  if (!connection.ok()) Fail(kExitOwnFailure, connection.status().message());
  if (absl::Status room = CheckHeadroom(kGrpcClient); !room.ok()) Fail(kExitOwnFailure, room.message());

  std::promise<v1::AttachResponse> attached;
  std::promise<NotifyResult> filtered;
  std::promise<void> armed;
  std::thread rpc([&] {
    SessionClient client(std::move(*connection), std::move(token));
    absl::StatusOr<v1::AttachResponse> response = client.Attach(options.namespace_error);
    if (!response.ok()) Fail(kExitOwnFailure, response.status().message());
    attached.set_value(*response);
    const NotifyResult notify = filtered.get_future().get();
    if (absl::Status s = client.Arm(notify.fd, notify.error); !s.ok()) Fail(kExitOwnFailure, s.message());
    armed.set_value();
    for (;;) pause();  // exec ends this thread; taking the channel down first would only cost time
  });
  filtered.set_value(InstallFilter(attached.get_future().get()));
  armed.get_future().wait();
  watchdog.reset();
  RunAgent(options.command);
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
  absl::StatusOr<std::string> token = ReadToken(UniqueFd(options->token_fd));
  if (!token.ok()) Fail(kExitOwnFailure, token.status().message());
  JoinSession(*options, std::move(*token));
}
