#include "client/command/attach.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "agentmon/v1/sessions.grpc.pb.h"
#include "client/exit_status.h"
#include "client/output/event_json.h"
#include "client/output/session_output.h"
#include "client/output/text.h"
#include "daemon/event/kinds.h"

namespace agentmon {

int Attach(const VerbContext& context, const AttachOptions& options) {
  v1::AdoptRequest request;
  request.set_pid(options.pid);
  request.set_name(options.name);
  const auto labels = ParseLabels(options.labels);
  if (!labels.ok()) return context.Fail(kUsage, labels.status().message());
  for (const auto& [key, value] : *labels) (*request.mutable_labels())[key] = value;
  int exit_status = kOk;
  const auto channel = context.Connect(&exit_status);
  if (channel == nullptr) return exit_status;
  v1::AdoptResponse response;
  const auto stub = v1::Sessions::NewStub(channel);
  const grpc::Status status = context.Ask(
      kCallTime, [&](grpc::ClientContext* call) { return stub->Adopt(call, request, &response); });
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
    for (const v1::SourceState& source : response.session().sources()) {
      if (!source.active())
        Complain(context.err_fd,
                 absl::StrCat(SourceName(source.source()), ": not seen in this session: ", source.why()));
    }
  }
  return kOk;
}

}  // namespace agentmon
