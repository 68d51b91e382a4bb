#include "daemon/enforce/shim_plan.h"

#include <signal.h>

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/kernel/landlock.h"
#include "common/kernel/refused_calls.h"
#include "common/policy/builtin.h"
#include "common/policy/env_names.h"
#include "common/policy/evaluate.h"

namespace agentmon {
namespace {

using policy::CompiledLayer;
using policy::LayerKind;

constexpr CallFamily kAlwaysRefused[] = {
    CallFamily::kBpf,     CallFamily::kKernelModules, CallFamily::kIoUring,     CallFamily::kPerf,
    CallFamily::kKeyring, CallFamily::kHandles,       CallFamily::kPersonality, CallFamily::kTerminal,
    CallFamily::kSockets, CallFamily::kSystem};

// What root needs for the files, users and processes of its own work. None of them leads past a policy:
// CAP_DAC_READ_SEARCH would, by handles, and reads are in CAP_DAC_OVERRIDE anyway.
constexpr const char* kRootKeeps[] = {"CAP_CHOWN",  "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID",
                                      "CAP_SETUID", "CAP_SETGID",       "CAP_KILL",   "CAP_NET_BIND_SERVICE"};

bool Stops(const CompiledLayer& layer) {
  return layer.kind != LayerKind::kBuiltin &&
         policy::UnderPosture(policy::Decision::kDeny, layer.posture) == policy::Decision::kDeny;
}

bool AnyStops(const policy::Snapshot& snapshot) {
  return std::any_of(snapshot.layers().begin(), snapshot.layers().end(), Stops);
}

// In the plan a leading "!" keeps, and "=" begins a bound.
std::string Quoted(absl::string_view pattern) {
  return absl::StartsWith(pattern, "!") || absl::StartsWith(pattern, "=") ? absl::StrCat("\\", pattern)
                                                                          : std::string(pattern);
}

// What Snapshot::EnvAllowed says of this layer, as a filter: its denials, then what it allows, then
// everything else.
void AddEnvironmentFilter(const CompiledLayer& layer, v1::ShimPlan& plan) {
  std::vector<std::string> lines;
  const policy::EnvRules& env = layer.document->env;
  for (const policy::Text& denied : env.deny) lines.push_back(Quoted(denied.value));
  if (layer.env.allow_list) {
    for (const policy::Text& allowed : env.allow) lines.push_back(absl::StrCat("!", allowed.value));
    lines.push_back("*");
  } else if (layer.kind == LayerKind::kBase) {
    for (const absl::string_view name : policy::SecretEnvPatterns()) lines.emplace_back(name);
  }
  lines.erase(std::remove_if(lines.begin(), lines.end(),
                             [](const std::string& line) { return line.empty() || line == "!"; }),
              lines.end());
  if (lines.empty()) return;
  if (!plan.unset_environment().empty()) plan.add_unset_environment("");
  for (const absl::string_view own : policy::OwnEnvNames()) {
    plan.add_unset_environment(absl::StrCat("!", own));
  }
  for (std::string& line : lines) plan.add_unset_environment(std::move(line));
}

void AddBound(const policy::Snapshot& snapshot, absl::string_view key, int64_t policy::EnvRules::*bound,
              v1::ShimPlan& plan) {
  int64_t strictest = 0;
  for (const CompiledLayer& layer : snapshot.layers()) {
    const int64_t own = layer.document->env.*bound;
    if (Stops(layer) && own != 0) strictest = strictest == 0 ? own : std::min(strictest, own);
  }
  if (strictest != 0) plan.add_unset_environment(absl::StrCat("=", key, "=", strictest));
}

void PlanEnvironment(const policy::Snapshot& snapshot, v1::ShimPlan& plan) {
  for (const CompiledLayer& layer : snapshot.layers()) {
    if (Stops(layer)) AddEnvironmentFilter(layer, plan);
  }
  AddBound(snapshot, "max_bytes", &policy::EnvRules::max_bytes, plan);
  AddBound(snapshot, "max_keys", &policy::EnvRules::max_keys, plan);
  for (const auto& [name, value] : snapshot.env_inject()) {
    v1::NameValue* variable = plan.add_set_environment();
    variable->set_name(name);
    variable->set_value(value);
  }
}

void PlanCalls(const policy::Snapshot& snapshot, const ShimPlanOptions& options, v1::ShimPlan& plan) {
  CallFamilies families;
  for (const CallFamily family : kAlwaysRefused) families.Add(family);
  if (options.fanotify_backend || options.broker_alone) families.Add(CallFamily::kNamespace);
  for (const CompiledLayer& layer : snapshot.layers()) {
    if (!Stops(layer)) continue;
    if (layer.document->seccomp.ptrace) families.Add(CallFamily::kPtrace);
    if (layer.document->seccomp.mount_namespace) families.Add(CallFamily::kNamespace);
  }
  for (int i = 0; i < kCallFamilies; ++i) {
    const auto family = static_cast<CallFamily>(i);
    if (families.Has(family)) plan.add_refuse_calls(std::string(CallFamilyName(family)));
  }
}

// Processes of a session may signal each other whatever this says.
bool DeniesSignalsOut(const policy::Snapshot& snapshot) {
  const policy::Subject out =
      policy::SignalSubject(SIGTERM, policy::kTargetExternal | policy::kTargetUser | policy::kTargetProcess);
  return policy::Evaluate(snapshot, out, {}).Stops();
}

void PlanUnixCanary(absl::string_view control, v1::Canary::Act act, const std::string& subject,
                    v1::ShimPlan& plan) {
  v1::Canary* canary = plan.add_canaries();
  canary->set_control(std::string(control));
  canary->set_act(act);
  canary->set_subject(subject);
  canary->add_errors(EACCES);
}

// One that the policy stops and that does nothing to whom it reaches.
void PlanSignal(const policy::Snapshot& snapshot, v1::ShimPlan& plan) {
  for (const int harmless : {SIGURG, SIGWINCH, SIGCONT}) {
    const policy::Subject out = policy::SignalSubject(
        harmless, policy::kTargetExternal | policy::kTargetUser | policy::kTargetParent);
    if (!policy::Evaluate(snapshot, out, {}).Stops()) continue;
    v1::Canary* canary = plan.add_canaries();
    canary->set_control(kLsmSignalControl);
    canary->set_act(v1::Canary::SIGNAL);
    canary->set_subject(absl::StrCat(harmless));
    canary->add_errors(EPERM);
    return;
  }
}

void PlanCanaries(const policy::Snapshot& snapshot, const ShimPlanOptions& options, v1::ShimPlan& plan) {
  for (const std::string& family : plan.refuse_calls()) {
    v1::Canary* canary = plan.add_canaries();
    canary->set_control(absl::StrCat("call.", family));
    canary->set_act(v1::Canary::CALL);
    canary->set_subject(family);
    canary->add_errors(EPERM);
  }
  if (options.fanotify_backend && !options.canary_file.empty()) {
    v1::Canary* read = plan.add_canaries();
    read->set_control("file_read");
    read->set_act(v1::Canary::OPEN_READ);
    read->set_subject(options.canary_file);
    read->add_errors(EPERM);
  }
  if (options.network_backend || options.network_calls) {
    for (const auto act : {v1::Canary::CONNECT, v1::Canary::SEND}) {
      v1::Canary* connect = plan.add_canaries();
      connect->set_control(options.network_backend ? "network" : kNetworkCallsControl);
      connect->set_act(act);
      connect->set_subject(absl::StrCat(policy::kCanaryAddress, ":", policy::kCanaryPort));
      connect->add_errors(EPERM);
    }
  }
  if (options.lsm_backend && !options.lsm_canary_file.empty()) {
    v1::Canary* read = plan.add_canaries();
    read->set_control(kLsmControl);
    read->set_act(v1::Canary::OPEN_READ);
    read->set_subject(options.lsm_canary_file);
    read->add_errors(EACCES);
  }
  const UnixCanaries& sockets = options.unix_canaries;
  if (plan.ask_unix()) {
    PlanUnixCanary(kUnixControl, v1::Canary::UNIX_CONNECT, sockets.path, plan);
    PlanUnixCanary(kUnixControl, v1::Canary::UNIX_CONNECT, sockets.name, plan);
    PlanUnixCanary(kUnixControl, v1::Canary::UNIX_SEND, sockets.Datagrams(), plan);
  }
  if (options.lsm_sockets && !sockets.path.empty())
    PlanUnixCanary(kLsmUnixControl, v1::Canary::UNIX_CONNECT, sockets.path, plan);
  if (!plan.landlock_scope() || options.landlock_abi < kLandlockScopeAbi) {
    if (options.lsm_signals) PlanSignal(snapshot, plan);
    return;
  }
  v1::Canary* canary = plan.add_canaries();
  canary->set_control("signal");
  canary->set_act(v1::Canary::SIGNAL);
  canary->add_errors(EPERM);
}

}  // namespace

v1::ShimPlan MakeShimPlan(const policy::Snapshot& snapshot, const ShimPlanOptions& options) {
  v1::ShimPlan plan;
  PlanEnvironment(snapshot, plan);
  plan.set_keep_privileges(options.keep_privileges);
  if (!AnyStops(snapshot)) return plan;
  plan.set_drop_capabilities(true);
  if (options.root) {
    for (const char* name : kRootKeeps) plan.add_keep_capabilities(name);
  }
  plan.set_close_directories(true);
  // Filters and domains stay on a program that gains privileges, and only root may lay them on one.
  if (options.keep_privileges) {
    PlanCanaries(snapshot, options, plan);
    return plan;
  }
  // /proc/PID/root of a process outside reaches mounts that have no marks; a domain closes it. A daemon of
  // the same user could be traced without one.
  plan.set_landlock_scope(
      ((options.fanotify_backend || options.broker_alone) && options.landlock_abi >= kLandlockReferAbi) ||
      (options.landlock_abi >= kLandlockScopeAbi && DeniesSignalsOut(snapshot)));
  plan.set_ask_unix(options.unix_backend && StopsUnixSockets(snapshot));
  plan.set_judge_network(options.network_calls);
  PlanCalls(snapshot, options, plan);
  PlanCanaries(snapshot, options, plan);
  return plan;
}

// Where one does, the built-in layer is another one.
bool StopsConnections(const policy::Snapshot& snapshot) {
  return policy::ClosesNameServices(*snapshot.layers().front().document);
}

bool StopsUnixSockets(const policy::Snapshot& snapshot) {
  const auto stops = [](policy::Decision decision) {
    return policy::Strictness(decision) >= policy::Strictness(policy::Decision::kRedirect);
  };
  return std::any_of(snapshot.layers().begin(), snapshot.layers().end(), [&](const CompiledLayer& layer) {
    if (layer.kind == LayerKind::kBuiltin) return policy::ClosesNameServices(*layer.document);
    if (!Stops(layer)) return false;
    if (stops(layer.defaults[static_cast<size_t>(policy::DefaultFor::kUnixSocket)])) return true;
    const std::vector<policy::Rule>& rules = layer.document->rules;
    return std::any_of(rules.begin(), rules.end(), [&](const policy::Rule& rule) {
      return rule.kind == policy::RuleKind::kUnix && stops(rule.decision) &&
             (rule.operations & policy::kJudgedUnixOps) != 0;
    });
  });
}

bool RequiresEnforcement(const policy::Snapshot& snapshot) {
  return std::any_of(snapshot.layers().begin(), snapshot.layers().end(), [](const CompiledLayer& layer) {
    return Stops(layer) && layer.enforcement == policy::Enforcement::kRequired;
  });
}

}  // namespace agentmon
