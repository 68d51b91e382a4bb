#include "client/command/run.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agentmon/v1/sessions.grpc.pb.h"
#include "client/exit_status.h"
#include "client/launch/shim.h"
#include "client/launch/supervisor.h"
#include "client/output/session_output.h"
#include "client/output/text.h"
#include "client/policy/policy_cli.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr size_t kShownCommand = 64 * 1024;
constexpr absl::Duration kGrace = absl::Seconds(3);  // between TERM or HUP and the end of the session
constexpr absl::Duration kEndLineTime = absl::Seconds(2);
constexpr absl::Duration kSystemDaemonTime = absl::Seconds(5);
constexpr absl::Duration kSystemDaemonTry = absl::Milliseconds(50);

absl::StatusOr<v1::StartRequest> MakeRequest(const VerbContext& context, const RunOptions& options) {
  v1::StartRequest request;
  request.set_name(options.name);
  request.set_allow_root(options.allow_root);
  char path[PATH_MAX];
  if (realpath(options.workspace.empty() ? "." : options.workspace.c_str(), path) != nullptr) {
    struct stat status {};
    if (!options.workspace.empty() && stat(path, &status) == 0 && !S_ISDIR(status.st_mode))
      return ErrnoStatus(ENOTDIR, absl::StrCat("--workspace ", options.workspace));
    request.set_workspace(path);
  } else if (!options.workspace.empty()) {  // a current directory that was removed is the agent's affair
    return ErrnoStatus(errno, absl::StrCat("--workspace ", options.workspace));
  }
  auto labels = ParseLabels(options.labels);
  if (!labels.ok()) return labels.status();
  for (const auto& [key, value] : *labels) (*request.mutable_labels())[key] = value;
  ASSIGN_OR_RETURN(*request.mutable_policy(),
                   policy_cli::MakeChoice(policy_cli::ContextOf(request.workspace()), options.policies));
  if (options.network.any()) {
    ASSIGN_OR_RETURN(*request.mutable_policy()->add_further()->mutable_document(),
                     policy_cli::NetworkLayer(options.network));
  }
  // For display only: what is too long for it is no reason not to run.
  size_t shown = 0;
  for (const std::string& word : context.command) {
    if ((shown += word.size() + 8) > kShownCommand) break;
    request.add_command(word);
  }
  return request;
}

// One short call on a connection of its own: the one of the start may be days old.
template <typename Call>
absl::Status CallDaemon(const DaemonChoice& daemon, absl::Duration time, const Call& call) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = OpenChannel(daemon);
  if (!channel.ok()) return channel.status();
  const auto stub = v1::Sessions::NewStub(*channel);
  grpc::ClientContext client_context;
  SetDeadline(client_context, time);
  const grpc::Status status = call(*stub, client_context);
  return status.ok() ? absl::OkStatus() : absl::UnavailableError(RpcFailure(status).message);
}

absl::Status StopSession(const DaemonChoice& daemon, const std::string& session) {
  return CallDaemon(daemon, kCallTime, [&](v1::Sessions::Stub& stub, grpc::ClientContext& client_context) {
    v1::StopRequest request;
    request.set_session(session);
    request.set_grace_ms(-1);
    v1::StopResponse response;
    return stub.Stop(&client_context, request, &response);
  });
}

absl::StatusOr<v1::Session> GetSession(const DaemonChoice& daemon, const std::string& session) {
  v1::GetResponse response;
  const absl::Status status =
      CallDaemon(daemon, kEndLineTime, [&](v1::Sessions::Stub& stub, grpc::ClientContext& client_context) {
        v1::GetRequest request;
        request.set_session(session);
        return stub.Get(&client_context, request, &response);
      });
  if (!status.ok()) return status;
  return response.session();
}

// A session into which no process came (the shim failed) would wait for one until the daemon loses patience.
void DropUnusedSession(const DaemonChoice& daemon, const std::string& session) {
  const absl::StatusOr<v1::Session> state = GetSession(daemon, session);
  if (state.ok() && state->state() == v1::Session::STARTING) StopSession(daemon, session).IgnoreError();
}

// Whatever becomes of it, the status is the agent's.
void WriteEndLine(const VerbContext& context, const DaemonChoice& daemon, const std::string& session,
                  int exit_status) {
  const std::string how = absl::StrCat("agentmon timeline --session ", session, context.DaemonWords());
  Watchdog::Options options = GrpcWatchdog(kEndLineTime, exit_status, context.err_fd);
  options.on_hang = options.on_abort = absl::StrCat("agentmon: session ", session, " ended: ", how, "\n");
  const Watchdog watchdog(options);
  const absl::StatusOr<v1::Session> state = GetSession(daemon, session);
  if (!state.ok()) return Complain(context.err_fd, absl::StrCat("session ", session, " ended: ", how));
  const uint64_t events = state->events(), denials = state->denials();
  Complain(context.err_fd,
           absl::StrCat(events, events == 1 ? " event, " : " events, ", denials,
                        denials == 1 ? " denial" : " denials", NotEnforced(*state), ": ", how));
}

// Replaces this process by the shim. Returns only when that failed.
absl::Status Become(const std::vector<std::string>& programs, const ShimCall& call, TokenPipe& token_pipe,
                    const std::string& token) {
  RETURN_IF_ERROR(WriteToken(token_pipe, token));
  fcntl(call.token_fd, F_SETFD, 0);
  absl::Status status;
  for (const std::string& program : programs) {
    const std::vector<std::string> arguments = ShimArguments(program, call);
    execv(program.c_str(), PointersTo(arguments).data());
    status = ErrnoStatus(errno, absl::StrCat("execute ", program));
  }
  return status;
}

absl::StatusOr<AgentEnd> RunAgent(const DaemonChoice& daemon, const std::vector<std::string>& programs,
                                  const ShimCall& call, TokenPipe& token_pipe, const std::string& token) {
  absl::StatusOr<std::unique_ptr<Supervisor>> supervisor = Supervisor::Create();
  if (!supervisor.ok()) return supervisor.status();
  RETURN_IF_ERROR((*supervisor)->Start(programs, call));
  // The token comes last: before it the shim cannot go on, so that SIGCHLD is ours before the agent can end.
  RETURN_IF_ERROR(WriteToken(token_pipe, token));
  token_pipe.read_end.Reset();
  return (*supervisor)->Wait(kGrace, [&] { return StopSession(daemon, call.session); });
}

// A system daemon that restarts is back within this time, and nothing weaker takes its place.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenAwaited(const DaemonChoice& daemon) {
  const absl::Time until = absl::Now() + kSystemDaemonTime;
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = OpenChannel(daemon);
  while (daemon.waits && absl::IsUnavailable(channel.status()) && absl::Now() < until) {
    absl::SleepFor(kSystemDaemonTry);
    channel = OpenChannel(daemon);
  }
  return channel;
}

bool IsBroken(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::CANCELLED;
}

// The answer to Start, or the exit status after the complaint.
int StartSession(const VerbContext& context, const RunOptions& options, const DaemonChoice& daemon,
                 v1::StartResponse* response) {
  const absl::StatusOr<v1::StartRequest> request = MakeRequest(context, options);
  if (!request.ok()) return context.FailLines(kRunFailed, request.status().message());
  const Watchdog watchdog(GrpcWatchdog(kCompileTime, kRunFailed, context.err_fd));
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = OpenAwaited(daemon);
  if (!channel.ok() && daemon.waits && absl::IsUnavailable(channel.status()))
    return context.Fail(kRunFailed, absl::StrCat(channel.status().message(), "; it was waited for ",
                                                 absl::FormatDuration(kSystemDaemonTime),
                                                 ", and no daemon of your own takes its place unasked"));
  if (!channel.ok()) return context.Fail(kRunFailed, channel.status().message());
  const auto start = [&] {
    grpc::ClientContext client_context;
    SetDeadline(client_context, kCompileTime);
    return v1::Sessions::NewStub(*channel)->Start(&client_context, *request, response);
  };
  grpc::Status status = start();
  // It stopped while it was asked: the next one is. A session that was begun and not answered ends by itself.
  if (daemon.waits && IsBroken(status)) {
    channel = OpenAwaited(daemon);
    if (channel.ok()) status = start();
  }
  return status.ok() ? kOk : context.Fail(kRunFailed, RpcFailure(status).message);
}

}  // namespace

int Run(const VerbContext& context, const RunOptions& options) {
  if (context.command.empty()) {
    return context.Fail(kRunFailed, "no agent to run: write it behind '--', as in 'agentmon run -- claude'");
  }
  if (geteuid() == 0 && !options.allow_root) {
    return context.Fail(kRunFailed,
                        "an agent is not run as root: start it as its user, or add --allow-root if root "
                        "is what you mean");
  }
  const absl::StatusOr<ShimPrograms> shim = FindShim();
  if (!shim.ok()) return context.Fail(kRunFailed, shim.status().message());
  const absl::StatusOr<DaemonChoice> chosen = context.Daemon();
  if (!chosen.ok()) return context.Fail(kRunFailed, chosen.status().message());
  const DaemonChoice& daemon = *chosen;
  if (daemon.fell && !options.quiet)
    Complain(context.err_fd,
             "agentmon is not installed on this host: your own daemon records, and enforces less");
  v1::StartResponse response;
  if (const int failed = StartSession(context, options, daemon, &response); failed != kOk) return failed;

  absl::StatusOr<TokenPipe> token_pipe = MakeTokenPipe();
  if (!token_pipe.ok()) {
    DropUnusedSession(daemon, response.session());
    return context.Fail(kRunFailed, token_pipe.status().message());
  }
  const ShimCall call{daemon.socket, token_pipe->read_end.get(), response.session(), options.keep_fds,
                      context.command};
  const std::vector<std::string> programs = ProgramsToTry(*shim, response.mount_namespace());
  const absl::StatusOr<AgentEnd> end = options.exec
                                           ? Become(programs, call, *token_pipe, response.token())
                                           : RunAgent(daemon, programs, call, *token_pipe, response.token());
  if (!end.ok()) {
    DropUnusedSession(daemon, response.session());
    return context.Fail(kRunFailed, end.status().message());
  }
  if (!end->by_signal && end->code == kRunFailed) DropUnusedSession(daemon, response.session());
  if (!options.quiet && isatty(context.err_fd) == 1)
    WriteEndLine(context, daemon, response.session(), end->by_signal ? 128 + end->code : end->code);
  if (end->by_signal) DieBy(end->code);
  return end->code;
}

}  // namespace agentmon
