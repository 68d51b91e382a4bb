#include "client/command/verb.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/exit_status.h"
#include "client/output/text.h"

namespace agentmon {

int VerbContext::Fail(int exit_status, absl::string_view message) const {
  output->Flush();  // what was already said comes first
  Complain(err_fd, message);
  return exit_status;
}

int VerbContext::FailLines(int exit_status, absl::string_view message) const {
  for (const absl::string_view line : absl::StrSplit(message, '\n')) Fail(exit_status, line);
  return exit_status;
}

std::shared_ptr<grpc::Channel> VerbContext::Connect(int* exit_status) const {
  const Watchdog watchdog(GrpcWatchdog(kCallTime, kNoDaemon, err_fd));
  const absl::StatusOr<DaemonChoice> daemon = Daemon();
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      daemon.ok() ? OpenChannel(*daemon) : absl::StatusOr<std::shared_ptr<grpc::Channel>>(daemon.status());
  if (channel.ok()) return *std::move(channel);
  *exit_status = Fail(ConnectFailure(channel.status()));
  return nullptr;
}

std::string VerbContext::DaemonWords() const {
  return absl::StrCat(user ? " --user" : "",
                      socket.empty() ? "" : absl::StrCat(" --socket ", ShellQuote(socket)));
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseLabels(
    const std::vector<std::string>& labels) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& label : labels) {
    const size_t equals = label.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("--label '", label, "' is not of the form KEY=VALUE"));
    }
    out.emplace_back(label.substr(0, equals), label.substr(equals + 1));
  }
  return out;
}

}  // namespace agentmon
