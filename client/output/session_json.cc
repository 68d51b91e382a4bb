#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "client/output/event_json.h"
#include "client/output/names.h"
#include "client/output/session_output.h"
#include "client/output/text.h"
#include "client/output/times.h"
#include "daemon/event/kinds.h"

namespace agentmon {
namespace {

using Json = nlohmann::ordered_json;

Json SourcesToJson(const google::protobuf::RepeatedPtrField<v1::SourceState>& sources) {
  Json out = Json::array();
  for (const v1::SourceState& source : sources) {
    Json one;
    one["source"] = SourceName(source.source());
    one["active"] = source.active();
    if (!source.why().empty()) one["why"] = ToUtf8(source.why());
    one["counts"] = ToUtf8(source.counts());
    one["events"] = source.events();
    one["lost"] = source.lost();
    out.push_back(std::move(one));
  }
  return out;
}

Json TimeOrNull(int64_t unix_ns) { return unix_ns == 0 ? Json() : Json(Rfc3339Utc(unix_ns)); }

}  // namespace

Json SessionToJson(const v1::Session& session) {
  Json out;
  out["id"] = ToUtf8(session.id());
  out["name"] = ToUtf8(session.name());
  out["uid"] = session.uid();
  out["state"] = StateName(session.state());
  out["origin"] = OriginName(session.origin());
  SetBytes(out, "workspace", session.workspace());
  out["labels"] = Json::object();
  for (const auto& [key, value] :
       std::map<std::string, std::string>(session.labels().begin(), session.labels().end())) {
    out["labels"][ToUtf8(key)] = ToUtf8(value);
  }
  out["started"] = TimeOrNull(session.started_ns());
  out["ended"] = TimeOrNull(session.ended_ns());
  if (!session.end_reason().empty()) out["end_reason"] = ToUtf8(session.end_reason());
  SetWords(out, "command", session.command());
  out["processes"] = session.processes();
  out["events"] = session.events();
  out["denials"] = session.denials();
  out["denials_not_enforced"] = session.denials_not_enforced();
  out["first_pid"] = session.first_process().pid();
  out["first_start_ns"] = session.first_process().start_ns();
  out["cgroup"] = ToUtf8(session.cgroup());
  if (!session.unit().empty()) out["unit"] = ToUtf8(session.unit());
  out["limits"] = Json::array();
  for (const std::string& limit : session.limits()) out["limits"].push_back(ToUtf8(limit));
  if (session.has_usage()) SetUsage(out["usage"], session.usage());
  out["sources"] = SourcesToJson(session.sources());
  out["controls"] = Json::array();
  for (const v1::ControlState& control : session.controls()) {
    Json one;
    one["control"] = ToUtf8(control.name());
    one["mechanism"] = ToUtf8(control.mechanism());
    one["active"] = control.active();
    if (!control.why().empty()) one["why"] = ToUtf8(control.why());
    out["controls"].push_back(std::move(one));
  }
  out["policy"] = PolicyToJson(session.policy());
  return out;
}

Json PolicyToJson(const v1::PolicyState& policy) {
  Json out;
  out["generation"] = policy.generation();
  out["not_enforced"] = policy.not_enforced();
  if (!policy.problem().empty()) out["problem"] = ToUtf8(policy.problem());
  out["layers"] = Json::array();
  for (const v1::PolicyState::Layer& layer : policy.layers()) {
    out["layers"].push_back({{"kind", LayerName(layer.kind())},
                             {"name", ToUtf8(layer.name())},
                             {"file", ToUtf8(layer.file())},
                             {"posture", PostureName(layer.posture())},
                             {"rules", layer.rules()}});
  }
  out["rules"] = Json::array();
  for (const v1::RuleEnforcement& rule : policy.rules()) {
    out["rules"].push_back({{"layer", ToUtf8(rule.layer())},
                            {"rule", ToUtf8(rule.rule())},
                            {"file", ToUtf8(rule.file())},
                            {"line", rule.at().line()},
                            {"enforced", HowName(rule.how())},
                            {"mechanism", ToUtf8(rule.mechanism())},
                            {"why", ToUtf8(rule.why())}});
  }
  return out;
}

Json StatusToJson(const v1::StatusResponse& status) {
  Json out;
  out["version"] = ToUtf8(status.version());
  out["pid"] = status.pid();
  out["started"] = TimeOrNull(status.started_ns());
  out["role"] = ToUtf8(status.role());
  out["kernel"] = ToUtf8(status.kernel());
  out["socket"] = ToUtf8(status.socket());
  out["state_dir"] = ToUtf8(status.state_dir());
  out["sessions"] = status.sessions();
  out["sources"] = SourcesToJson(status.sources());
  Json& store = out["store"];
  store["state"] = ToUtf8(status.store().state());
  store["events"] = status.store().events();
  store["bytes"] = status.store().bytes();
  store["waiting"] = status.store().waiting();
  store["lost"] = status.store().lost();
  store["oldest"] = TimeOrNull(status.store().oldest_ns());
  out["sessions_not_enforced"] = status.sessions_not_enforced();
  out["default_policy"] = ToUtf8(status.default_policy());
  out["floor"] = Json::array();
  for (const std::string& file : status.floor()) out["floor"].push_back(ToUtf8(file));
  out["warnings"] = Json::array();
  for (const std::string& warning : status.warnings()) out["warnings"].push_back(ToUtf8(warning));
  return out;
}

}  // namespace agentmon
