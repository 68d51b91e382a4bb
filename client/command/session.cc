#include "client/command/session.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agentmon/v1/sessions.grpc.pb.h"
#include "client/exit_status.h"
#include "client/output/event_json.h"
#include "client/output/session_output.h"
#include "client/output/text.h"
#include "client/policy/policy_cli.h"

namespace agentmon {

int SessionList(const VerbContext& context, const SessionOptions& options) {
  int exit_status = kOk;
  const auto channel = context.Connect(&exit_status);
  if (channel == nullptr) return exit_status;
  v1::ListRequest request;
  request.set_ended(options.all);
  request.set_limit(options.all ? 1000 : 0);
  v1::ListResponse response;
  const auto stub = v1::Sessions::NewStub(channel);
  const grpc::Status status =
      context.Ask(kCallTime, [&](grpc::ClientContext* call) { return stub->List(call, request, &response); });
  if (!status.ok()) return context.FailRpc(status);
  if (context.json) {
    nlohmann::ordered_json sessions = nlohmann::ordered_json::array();
    for (const v1::Session& session : response.sessions()) sessions.push_back(SessionToJson(session));
    context.output->Line(DumpJson(sessions, 2));
  } else if (response.sessions().empty()) {
    Complain(context.err_fd, options.all ? "no sessions" : "no session is running (--all shows ended ones)");
  } else {
    WriteSessionTable({response.sessions().begin(), response.sessions().end()}, absl::Now(), context.paint(),
                      *context.output);
  }
  return kOk;
}

int SessionShow(const VerbContext& context, const SessionOptions& options) {
  int exit_status = kOk;
  const auto channel = context.Connect(&exit_status);
  if (channel == nullptr) return exit_status;
  v1::GetRequest request;
  request.set_session(options.id);
  v1::GetResponse response;
  const auto stub = v1::Sessions::NewStub(channel);
  const grpc::Status status =
      context.Ask(kCallTime, [&](grpc::ClientContext* call) { return stub->Get(call, request, &response); });
  if (!status.ok()) return context.FailRpc(status);
  if (context.json) {
    context.output->Line(DumpJson(SessionToJson(response.session()), 2));
  } else {
    WriteSession(response.session(), absl::Now(), context.paint(), *context.output);
  }
  return kOk;
}

int SessionStop(const VerbContext& context, const SessionOptions& options) {
  if (options.all == !options.id.empty()) {
    return context.Fail(kUsage,
                        "session stop: name one session, or give --all ('agentmon session list' shows them)");
  }
  int exit_status = kOk;
  const auto channel = context.Connect(&exit_status);
  if (channel == nullptr) return exit_status;
  v1::StopRequest request;
  request.set_session(options.id);
  request.set_all(options.all);
  const auto grace_ms = static_cast<int64_t>(options.grace * 1000);
  request.set_grace_ms(grace_ms <= 0 ? -1 : grace_ms);
  v1::StopResponse response;
  const auto stub = v1::Sessions::NewStub(channel);
  const grpc::Status status =
      context.Ask(kCallTime + absl::Seconds(options.grace),
                  [&](grpc::ClientContext* call) { return stub->Stop(call, request, &response); });
  if (!status.ok()) return context.FailRpc(status);
  if (context.json) {
    nlohmann::ordered_json out;
    out["stopped"] = nlohmann::ordered_json::array();
    for (const std::string& id : response.sessions()) out["stopped"].push_back(ToUtf8(id));
    context.output->Line(DumpJson(out, 2));
  } else {
    for (const std::string& id : response.sessions())
      context.output->Line(absl::StrCat("stopped ", Printable(id)));
    if (response.sessions().empty()) Complain(context.err_fd, "no session was running");
  }
  return kOk;
}

int SessionSetPolicy(const VerbContext& context, const SessionOptions& options) {
  if (options.policies.empty()) {
    return context.Fail(kUsage, "session set-policy: name a policy with --policy NAME|FILE");
  }
  int exit_status = kOk;
  const auto channel = context.Connect(&exit_status);
  if (channel == nullptr) return exit_status;
  const auto stub = v1::Sessions::NewStub(channel);
  v1::GetRequest get;
  get.set_session(options.id);
  v1::GetResponse got;
  grpc::ClientContext get_context;
  SetDeadline(get_context, kCallTime);
  if (const grpc::Status s = stub->Get(&get_context, get, &got); !s.ok()) return context.FailRpc(s);
  const auto choice =
      policy_cli::MakeChoice(policy_cli::ContextOf(got.session().workspace()), options.policies);
  if (!choice.ok()) return context.FailLines(kUsage, choice.status().message());
  v1::SetPolicyRequest request;
  request.set_session(got.session().id());
  *request.mutable_policy() = *choice;
  v1::SetPolicyResponse response;
  grpc::ClientContext client_context;
  SetDeadline(client_context, kCompileTime);
  const grpc::Status status = stub->SetPolicy(&client_context, request, &response);
  if (!status.ok()) return context.FailRpc(status);
  if (context.json) {
    context.output->Line(DumpJson(SessionToJson(response.session()), 2));
  } else {
    context.output->Line(absl::StrCat("session ", Printable(response.session().id()), ": ",
                                      PolicyLine(response.session().policy())));
  }
  return kOk;
}

}  // namespace agentmon
