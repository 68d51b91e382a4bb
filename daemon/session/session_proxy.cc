// The proxy of sessions whose connections the kernel does not judge: the door to it is in their environment.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/log.h"
#include "common/policy/builtin.h"
#include "daemon/enforce/shim_plan.h"
#include "daemon/session/session_state.h"

namespace agentmon {
namespace {

constexpr const char* kProxyVariables[] = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
                                           "http_proxy", "https_proxy", "all_proxy"};

std::string EnvironmentOf(const ProcFs& proc, pid_t pid) {
  return ReadWholeFile(absl::StrCat(proc.root(), "/", pid, "/environ")).value_or("");
}

bool HasProxy(absl::string_view environment) {
  for (const absl::string_view word : absl::StrSplit(environment, '\0')) {
    for (const absl::string_view name : kProxyVariables) {
      if (absl::StartsWith(word, name) && word.size() > name.size() + 1 && word[name.size()] == '=')
        return true;
    }
  }
  return false;
}

// ALL_PROXY names HTTP, too: some programs do not begin where it names SOCKS and they lack a module for that.
void AddDoor(const ProxyDoor& door, v1::ShimPlan& plan) {
  for (const absl::string_view name : kProxyVariables) {
    v1::NameValue* variable = plan.add_set_environment();
    variable->set_name(std::string(name));
    variable->set_value(door.Url());
  }
  const std::string forbidden = absl::StrCat(policy::kCanaryAddress, ":", policy::kCanaryPort);
  v1::Canary* canary = plan.add_canaries();
  canary->set_control(kProxyControl);
  canary->set_act(v1::Canary::ASK_PROXY);
  canary->set_subject(absl::StrCat("127.0.0.1:", door.port, " CONNECT ", forbidden, " HTTP/1.1\r\nHost: ",
                                   forbidden, "\r\nProxy-Authorization: ", door.Authorization(), "\r\n\r\n"));
  canary->add_errors(EACCES);
}

}  // namespace

ProxiedSession SessionManager::Proxied(const SessionState& state) const {
  ProxiedSession session;
  session.cgroup_id = state.cgroup_id;
  session.gate = deps_.policies.GateOf(state.info.id());
  session.members = [listeners = deps_.listeners, id = state.info.id()] { return listeners->Processes(id); };
  return session;
}

void SessionManager::PlanProxy(const StatePtr& state, const policy::Snapshot& snapshot) {
  if (!StopsConnections(snapshot)) return;
  ProxiedSession session = Proxied(*state);
  session.had_proxy = HasProxy(EnvironmentOf(proc_, state->shim_pid));
  if (session.had_proxy) {
    LogInfo("session ", state->info.id(), ": its proxy is agentmon's; the one that was set is not used");
  }
  const std::shared_ptr<Gate> session_gate = session.gate;
  const auto door = deps_.observation.OpenProxy(std::move(session), std::nullopt);
  if (!door.ok()) {
    v1::ControlState* control = state->info.add_controls();
    control->set_name(kProxyControl);
    control->set_mechanism("proxy");
    control->set_why(std::string(door.status().message()));
    return;
  }
  session_gate->SetProxy(door->port);
  AddDoor(*door, state->plan);
  v1::SourceState* source = state->info.add_sources();
  source->set_source(v1::PROXY);
  source->set_active(true);
  source->set_counts("exact");
}

// Its programs know the door by their environment, and so do we. One that is not there any more, or is in
// somebody else's hands, leads nowhere.
void SessionManager::RecoverProxy(const StatePtr& state) {
  for (v1::ControlState& control : *state->info.mutable_controls()) {
    if (control.name() != kProxyControl || !control.active()) continue;
    absl::Status opened = absl::NotFoundError("no process of the session has it in its environment");
    for (const pid_t pid : deps_.listeners->Processes(state->info.id())) {
      const std::optional<ProxyDoor> door = FindProxyDoor(EnvironmentOf(proc_, pid));
      if (!door.has_value()) continue;
      opened = deps_.observation.OpenProxy(Proxied(*state), *door).status();
      if (opened.ok()) deps_.policies.GateOf(state->info.id())->SetProxy(door->port);
      break;
    }
    if (opened.ok()) return;
    LogError("session ", state->info.id(), ": its proxy is gone: ", opened.message());
    control.set_active(false);
    control.set_why(absl::StrCat("its proxy is gone with the daemon that had it: ", opened.message()));
    SetSource(state, v1::PROXY, opened);
  }
}

}  // namespace agentmon
