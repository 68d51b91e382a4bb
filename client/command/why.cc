#include "client/command/why.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agentmon/v1/policy.grpc.pb.h"
#include "agentmon/v1/timeline.grpc.pb.h"
#include "client/exit_status.h"
#include "client/output/event_json.h"
#include "client/output/event_text.h"
#include "client/output/names.h"
#include "client/output/text.h"
#include "client/output/times.h"
#include "common/cli/usage_error.h"
#include "daemon/event/kinds.h"

namespace agentmon {
namespace {

using Json = nlohmann::ordered_json;

std::string RuleText(const v1::Judgement& judgement) {
  std::string text = Printable(judgement.rule());
  if (judgement.file() == judgement.layer() || judgement.file().empty())
    return absl::StrCat(text, ", ", judgement.layer());
  absl::StrAppend(&text, ", ", Printable(judgement.file()));
  if (judgement.line() != 0) absl::StrAppend(&text, ":", judgement.line());
  return absl::StrCat(text, " (", Printable(judgement.layer()), ")");
}

class Explainer {
 public:
  Explainer(const VerbContext& context, std::shared_ptr<grpc::Channel> channel)
      : context_(context), stub_(v1::Policy::NewStub(std::move(channel))) {}

  // What could be done in place of it; empty when nothing is known.
  std::string Instead(const v1::Event& event) const {
    if (event.judgement().decision() == v1::ASK) {
      return "this needs somebody's consent, and nobody could be asked: have the user do it outside of the "
             "session, or "
             "allow it in the policy";
    }
    if (!event.has_file() || !absl::StartsWith(event.file().path(), "/")) return "";
    const std::string& path = event.file().path();
    const bool read = Allowed(event.session(), "open", path), write = Allowed(event.session(), "write", path);
    if (read && !write) return "reading it is allowed, changing it is not";
    if (write && !read) return "writing it is allowed, reading it is not";
    return "";
  }

 private:
  bool Allowed(const std::string& session, const char* verb, const std::string& path) const {
    v1::ExplainPolicyRequest request;
    request.set_session(session);
    request.mutable_act()->set_verb(verb);
    request.mutable_act()->set_subject(path);
    v1::ExplainPolicyResponse response;
    const grpc::Status status = context_.Ask(
        kCallTime, [&](grpc::ClientContext* call) { return stub_->Explain(call, request, &response); });
    return status.ok() && (response.effective() == v1::ALLOW || response.effective() == v1::AUDIT);
  }

  const VerbContext& context_;
  std::unique_ptr<v1::Policy::Stub> stub_;
};

grpc::Status LastStopped(const VerbContext& context, v1::Timeline::Stub& stub, const WhyOptions& options,
                         std::vector<v1::Event>* events) {
  v1::QueryRequest request;
  request.mutable_filter()->set_session(options.session.empty() ? "*" : options.session);
  request.mutable_filter()->set_enforced(v1::EventFilter::YES);
  request.set_limit(options.last);
  return context.Ask(kCallTime, [&](grpc::ClientContext* call) {
    const auto reader = stub.Query(call, request);
    v1::QueryResponse response;
    while (reader->Read(&response))
      events->insert(events->end(), response.events().begin(), response.events().end());
    return reader->Finish();
  });
}

void Write(const VerbContext& context, const v1::Event& event, const std::string& instead) {
  const v1::Judgement& judgement = event.judgement();
  const auto line = [&](absl::string_view name, const std::string& value) {
    if (!value.empty()) context.output->Line(absl::StrCat("  ", name, value));
  };
  context.output->Line(absl::StrCat(KindName(event.kind()), " ", Subject(event), ": ",
                                    judgement.error() == 0 ? "stopped" : strerror(judgement.error())));
  line("when     ", absl::StrCat(Rfc3339Utc(event.wall_ns()), ", session ", event.session()));
  line("who      ", absl::StrCat(ProcessName(event), ", pid ", event.process().pid()));
  line("rule     ", RuleText(judgement));
  line("verdict  ", absl::StrCat(DecisionName(judgement.decision()), ", by ", judgement.mechanism()));
  line("message  ", Printable(judgement.message()));
  line("instead  ", instead);
}

}  // namespace

int Why(const VerbContext& context, const WhyOptions& options) {
  int exit_status = kOk;
  const auto channel = context.Connect(&exit_status);
  if (channel == nullptr) return exit_status;
  std::vector<v1::Event> events;
  const auto stub = v1::Timeline::NewStub(channel);
  if (const grpc::Status status = LastStopped(context, *stub, options, &events); !status.ok())
    return context.FailRpc(status);
  if (events.empty()) {
    Complain(context.err_fd,
             "nothing was stopped: an error that a program shows comes from the system, not from a policy");
    return kNegative;
  }
  const Explainer explainer(context, channel);
  for (auto event = events.rbegin(); event != events.rend(); ++event) {  // the last one first
    const std::string instead = explainer.Instead(*event);
    if (context.json) {
      Json row = EventToJson(*event);
      row["instead"] = instead;
      context.output->Line(DumpJson(row));
    } else {
      if (event != events.rbegin()) context.output->Line("");
      Write(context, *event, instead);
    }
  }
  return kOk;
}

}  // namespace agentmon
