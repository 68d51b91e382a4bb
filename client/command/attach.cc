#include "client/command/attach.h"

#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agentmon/v1/sessions.grpc.pb.h"
#include "client/exit_status.h"
#include "client/output/event_json.h"
#include "client/output/names.h"
#include "client/output/session_output.h"
#include "client/output/text.h"
#include "client/policy/policy_cli.h"
#include "daemon/event/kinds.h"

namespace agentmon {

namespace {

// One line for each reason.
void TellWhatIsNotSeen(const VerbContext& context, const v1::Session& session) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const v1::SourceState& source : session.sources()) {
    if (!source.active())
      by_reason[source.why()].push_back(
          absl::StrCat(SourceSees(source.source()), " (source ", SourceName(source.source()), ")"));
  }
  for (const auto& [why, what] : by_reason) {
    Complain(context.err_fd,
             absl::StrCat("not recorded in this session: ", absl::StrJoin(what, ", "), ": ", why));
  }
}

}  // namespace

int Attach(const VerbContext& context, const AttachOptions& options) {
  v1::AdoptRequest request;
  request.set_pid(options.pid);
  request.set_name(options.name);
  const auto labels = ParseLabels(options.labels);
  if (!labels.ok()) return context.Fail(kUsage, labels.status().message());
  for (const auto& [key, value] : *labels) (*request.mutable_labels())[key] = value;
  std::error_code error;
  const auto directory =
      std::filesystem::read_symlink(absl::StrCat("/proc/", options.pid, "/cwd"), error).string();
  const auto choice = policy_cli::MakeChoice(policy_cli::ContextOf(directory), options.policies);
  if (!choice.ok()) return context.FailLines(kUsage, choice.status().message());
  *request.mutable_policy() = *choice;
  int exit_status = kOk;
  const auto channel = context.Connect(&exit_status);
  if (channel == nullptr) return exit_status;
  v1::AdoptResponse response;
  const auto stub = v1::Sessions::NewStub(channel);
  const grpc::Status status = context.Ask(
      kCompileTime, [&](grpc::ClientContext* call) { return stub->Adopt(call, request, &response); });
  if (!status.ok()) return context.FailRpc(status);
  const std::string id = Printable(response.session().id());
  if (context.json) {
    nlohmann::ordered_json out;
    out["session"] = SessionToJson(response.session());
    out["moved"] = response.processes();
    context.output->Line(DumpJson(out, 2));
  } else {
    context.output->Line(absl::StrCat("session ", id, ": ", response.processes(),
                                      response.processes() == 1 ? " process" : " processes"));
    TellWhatIsNotSeen(context, response.session());
  }
  return kOk;
}

}  // namespace agentmon
