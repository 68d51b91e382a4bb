#include "daemon/rpc/policy_service.h"

#include <set>
#include <utility>

#include "common/base/refusal.h"
#include "common/policy/act.h"
#include "common/policy/policy_proto.h"

namespace agentmon {
namespace {

constexpr absl::Duration kCompileTime = absl::Seconds(30);

void AddEntry(const PolicyFile& file, bool floor, bool is_default, v1::ListPoliciesResponse& out) {
  v1::ListPoliciesResponse::Entry* entry = out.add_policies();
  entry->set_name(file.name);
  entry->set_path(file.path);
  entry->set_floor(floor);
  entry->set_is_default(is_default);
  if (file.document == nullptr) {
    policy::ToProto(file.diagnostics, *entry->mutable_problems());
    return;
  }
  entry->set_description(file.document->description);
  entry->set_posture(policy::ToProto(file.document->posture));
  entry->set_rules(static_cast<uint32_t>(file.document->rules.size()));
}

void AddTrace(const policy::Snapshot& snapshot, const policy::Trace& trace, v1::ExplainPolicyResponse& out) {
  for (const policy::TraceStep& step : trace) {
    const policy::CompiledLayer& layer = snapshot.layers()[step.layer];
    v1::PolicyTraceStep* line = out.add_trace();
    line->set_layer(layer.name);
    line->set_decision(policy::ToProto(step.decision));
    line->set_effective(policy::ToProto(step.effective));
    line->set_about(step.about);
    if (step.rule == nullptr) {
      line->set_rule(std::string(step.reason));
      continue;
    }
    line->set_rule(step.rule->name);
    line->set_file(layer.document->file);
    line->mutable_at()->set_line(step.rule->at.line);
    line->mutable_at()->set_column(step.rule->at.column);
  }
}

absl::StatusOr<v1::ExplainPolicyResponse> ExplainAct(const policy::Snapshot& snapshot,
                                                     const policy::Variables& variables,
                                                     const v1::PolicyAct& asked) {
  auto act = policy::ParseAct(asked.verb(), asked.subject(), variables);
  if (!act.ok()) return act.status();
  v1::ExplainPolicyResponse out;
  if ((*act)->env) {
    std::string why;
    const bool allowed = snapshot.EnvAllowed((*act)->text, &why);
    out.mutable_judgement()->set_decision(allowed ? v1::ALLOW : v1::DENY);
    out.set_effective(out.judgement().decision());
    out.set_message(why);
    return out;
  }
  (*act)->subject.depth = static_cast<int>(asked.depth());
  policy::Trace trace;
  const policy::Verdict verdict = Evaluate(snapshot, (*act)->subject, policy::EvaluateOptions(), &trace);
  *out.mutable_judgement() = policy::ToJudgement(snapshot, verdict, (*act)->subject);
  out.set_effective(policy::ToProto(verdict.effective));
  out.set_posture(policy::ToProto(verdict.posture));
  out.set_message(Describe(snapshot, verdict, (*act)->subject).message);
  AddTrace(snapshot, trace, out);
  return out;
}

// Relative paths and ~ of an act mean what they mean in the session.
policy::Variables VariablesOf(const PolicyRequest& request) {
  policy::Variables variables;
  variables.derived = {{"HOME", request.owner.home}, {"WORKSPACE", request.workspace}};
  return variables;
}

}  // namespace

grpc::Status PolicyService::List(grpc::ServerContext* context, const v1::ListPoliciesRequest*,
                                 v1::ListPoliciesResponse* response) {
  return Unary<v1::ListPoliciesResponse>(deps_, *context, Access::kUser, response, [&](const Caller&) {
    return CallCore<v1::ListPoliciesResponse>(deps_.core,
                                              [this]() -> absl::StatusOr<v1::ListPoliciesResponse> {
                                                const auto library = deps_.policies.library();
                                                v1::ListPoliciesResponse out;
                                                for (const PolicyFile& file : library->floor)
                                                  AddEntry(file, true, false, out);
                                                for (const auto& [name, file] : library->named) {
                                                  AddEntry(file, false, name == library->default_policy, out);
                                                }
                                                return out;
                                              });
  });
}

grpc::Status PolicyService::Get(grpc::ServerContext* context, const v1::GetPolicyRequest* request,
                                v1::GetPolicyResponse* response) {
  return Unary<v1::GetPolicyResponse>(deps_, *context, Access::kUser, response, [&](const Caller& caller) {
    return CallCore<v1::GetPolicyResponse>(
        deps_.core, [this, caller, which = request->session()]() -> absl::StatusOr<v1::GetPolicyResponse> {
          const auto id = deps_.manager.IdOf(caller, which);
          if (!id.ok()) return id.status();
          return deps_.policies.Layers(*id);
        });
  });
}

grpc::Status PolicyService::Validate(grpc::ServerContext* context, const v1::ValidatePolicyRequest* request,
                                     v1::ValidatePolicyResponse* response) {
  return Unary<v1::ValidatePolicyResponse>(
      deps_, *context, Access::kUser, response, [&](const Caller& caller) {
        return CallCoreAsync<v1::ValidatePolicyResponse>(
            deps_.core, kCompileTime,
            [this, caller, r = *request](CoreDone<v1::ValidatePolicyResponse> done) {
              deps_.policies.Compile(
                  caller.uid, r.workspace(), r.policy(),
                  [this, done](absl::StatusOr<Policies::PreparedPtr> prepared) {
                    if (!prepared.ok()) return done(prepared.status());
                    const CompiledPolicy& compiled = (*prepared)->compiled;
                    v1::ValidatePolicyResponse out;
                    out.set_ok(compiled.snapshot != nullptr);
                    policy::ToProto(compiled.diagnostics, *out.mutable_diagnostics());
                    if (compiled.snapshot != nullptr) {
                      const std::set<v1::Source> all{v1::PROCESS, v1::NETWORK, v1::FANOTIFY, v1::NOTIFY};
                      for (v1::RuleEnforcement& rule : deps_.policies.Enforcement(*compiled.snapshot, all)) {
                        *out.add_rules() = std::move(rule);
                      }
                    }
                    done(out);
                  });
            });
      });
}

grpc::Status PolicyService::Explain(grpc::ServerContext* context, const v1::ExplainPolicyRequest* request,
                                    v1::ExplainPolicyResponse* response) {
  return Unary<v1::ExplainPolicyResponse>(
      deps_, *context, Access::kAnyone, response, [&](const Caller& caller) {
        return CallCoreAsync<v1::ExplainPolicyResponse>(
            deps_.core, kCompileTime, [this, caller, r = *request](CoreDone<v1::ExplainPolicyResponse> done) {
              if (r.has_policy() && caller.role == Role::kAgent) {
                return done(
                    Refusal(absl::StatusCode::kPermissionDenied, "IN_A_SESSION",
                            "a process inside a session can have its own policy explained and no other"));
              }
              if (r.has_policy()) {
                return deps_.policies.Prepare(caller.uid, r.workspace(), r.policy(),
                                              [r, done](absl::StatusOr<Policies::PreparedPtr> prepared) {
                                                if (!prepared.ok()) return done(prepared.status());
                                                done(ExplainAct(*(*prepared)->compiled.snapshot,
                                                                VariablesOf((*prepared)->request), r.act()));
                                              });
              }
              const auto id = deps_.manager.IdOf(caller, r.session());
              if (!id.ok()) return done(id.status());
              const auto request = deps_.policies.RequestOf(*id);
              const auto snapshot = deps_.policies.SnapshotOf(*id);
              if (snapshot == nullptr) {
                return done(Refusal(absl::StatusCode::kNotFound, "NO_POLICY", "this session has no policy"));
              }
              done(ExplainAct(*snapshot, VariablesOf(request), r.act()));
            });
      });
}

grpc::Status PolicyService::Reload(grpc::ServerContext* context, const v1::ReloadPoliciesRequest*,
                                   v1::ReloadPoliciesResponse* response) {
  return Unary<v1::ReloadPoliciesResponse>(deps_, *context, Access::kAdmin, response, [&](const Caller&) {
    return CallCoreAsync<v1::ReloadPoliciesResponse>(
        deps_.core, kCompileTime,
        [this](CoreDone<v1::ReloadPoliciesResponse> done) { deps_.policies.Reload(done); });
  });
}

}  // namespace agentmon
