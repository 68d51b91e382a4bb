#include "daemon/event/flow_joiner.h"

#include <utility>
#include <vector>

namespace agentmon {
namespace {

constexpr int64_t kWaitNs = 1'000'000'000;
constexpr size_t kMaxFlows = 16384;

}  // namespace

void FlowJoiner::OnEvent(Event event) {
  // One that was denied never began, whatever else its socket tries.
  if (event.kind() != v1::CONNECT || event.net().flow() == 0 || event.judgement().enforced())
    return out_(std::move(event));
  const uint64_t flow = event.net().flow();
  const auto it = flows_.find(flow);
  if (event.net().result() == v1::Net::OK || event.net().result() == v1::Net::FAILED) {
    if (it == flows_.end()) {  // of an attempt that is not remembered: tells by itself, if it can
      if (!event.net().address().empty()) out_(std::move(event));
      return;
    }
    Event attempt = it->second.attempt;
    if (it->second.given_out) {
      attempt.set_boot_ns(event.boot_ns());
      attempt.set_wall_ns(event.wall_ns());
    }
    attempt.mutable_net()->set_result(event.net().result());
    attempt.mutable_net()->set_error(event.net().error());
    Forget(flow);
    return out_(std::move(attempt));
  }
  if (event.net().protocol() != "tcp") return out_(std::move(event));
  if (it != flows_.end()) {  // the socket tries again; how the first try ended was not told
    if (!it->second.given_out) out_(it->second.attempt);
    Forget(flow);
  }
  if (flows_.size() >= kMaxFlows) return out_(std::move(event));
  order_.push_back(flow);
  flows_[flow] = {std::move(event), false};
  ++waiting_;
}

void FlowJoiner::Forget(uint64_t flow) {
  const auto it = flows_.find(flow);
  if (!it->second.given_out) --waiting_;
  flows_.erase(it);
  if (waiting_ == 0) order_.clear();  // else it would grow while every flow is joined at once
}

void FlowJoiner::Flush(int64_t now_boot_ns) {
  for (size_t i = order_.size(); i > 0 && !order_.empty(); --i) {
    const uint64_t flow = order_.front();
    const auto it = flows_.find(flow);
    if (it != flows_.end() && !it->second.given_out) {
      if (now_boot_ns - it->second.attempt.boot_ns() < kWaitNs) return;
      it->second.given_out = true;
      --waiting_;
      it->second.attempt.mutable_net()->set_result(v1::Net::IN_PROGRESS);
      out_(it->second.attempt);
    }
    order_.pop_front();
  }
}

void FlowJoiner::GiveOutAll(const std::function<bool(const Event&)>& of) {
  std::vector<uint64_t> ended;
  for (const auto& [flow, state] : flows_) {
    if (of(state.attempt)) ended.push_back(flow);
  }
  for (const uint64_t flow : ended) {
    if (!flows_[flow].given_out) out_(flows_[flow].attempt);
    Forget(flow);
  }
}

void FlowJoiner::EndSession(const std::string& session) {
  GiveOutAll([&](const Event& event) { return event.session() == session; });
}

void FlowJoiner::EndAll() {
  GiveOutAll([](const Event&) { return true; });
}

}  // namespace agentmon
