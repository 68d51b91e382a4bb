#include "daemon/app/second_line.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "daemon/app/directories.h"
#include "daemon/event/kinds.h"

namespace agentmon {
namespace {

constexpr absl::Duration kCountAfter = absl::Seconds(1);
constexpr absl::Duration kTimeout = absl::Seconds(1);
// The first session after a boot waits for the kernel to load what nftables needs.
constexpr absl::Duration kTryTimeout = absl::Seconds(8);
constexpr uint16_t kFirstGroup = 16719;  // no other program is known to use it or its neighbours

}  // namespace

SecondLine::SecondLine(Options options, TaskRunner& core, const Clock& clock, NetworkGate& gate)
    : core_(core) {
  auto log = NflogProbe::Create(core, clock, kFirstGroup,
                                [&gate](uint64_t cgroup_id, const policy::Subject& subject, int error) {
                                  return gate.DescribePacket(cgroup_id, subject, error);
                                });
  log_status_ = log.status();
  if (log.ok()) log_ = *std::move(log);
  ruleset_.table =
      options.instance == kMainInstance ? "agentmon" : absl::StrCat("agentmon-", options.instance);
  ruleset_.level = options.session_level;
  ruleset_.stop_routes = options.stop_routes;
  if (log_ != nullptr) ruleset_.log_group = log_->group();
  backstop_ =
      std::make_unique<NetworkBackstop>(NetworkBackstop::Options{ruleset_, options.cgroup_mount}, clock);
  gate.SetBackstop(backstop_.get());
}

SecondLine::~SecondLine() { *alive_ = false; }

void SecondLine::Start(RecordSink& sink, Untold untold) {
  untold_ = std::move(untold);
  if (log_ == nullptr) return;
  log_->OnPacket([this](uint64_t cgroup_id) { CountSoon(cgroup_id); });
  log_status_ = log_->Attach(sink);
  if (!log_status_.ok()) LogWarning("packets that nftables stops are not told: ", log_status_.message());
}

// The kernel tells a limited number; its counter has all.
void SecondLine::CountSoon(uint64_t cgroup_id) {
  bool& due = counts_[cgroup_id].due;
  if (due) return;
  due = true;
  core_.PostAfter(kCountAfter, [this, cgroup_id, alive = alive_] {
    if (!*alive || counts_.count(cgroup_id) == 0) return;
    counts_[cgroup_id].due = false;
    backstop_->CountStopped(cgroup_id, [this, cgroup_id, alive](absl::StatusOr<uint64_t> stopped) {
      if (!stopped.ok()) return;
      core_.Post([this, cgroup_id, alive, packets = *stopped] {
        if (*alive) OnCounted(cgroup_id, packets);
      });
    });
  });
}

void SecondLine::OnCounted(uint64_t cgroup_id, uint64_t stopped) {
  log_->Drain();  // what was counted has been told by then
  const auto it = counts_.find(cgroup_id);
  if (it == counts_.end()) return;
  const uint64_t known = log_->Told(cgroup_id) + it->second.untold;
  if (stopped <= known) return;
  it->second.untold += stopped - known;
  log_->CountLost(stopped - known);
  untold_(cgroup_id, stopped - known);
  CountSoon(cgroup_id);
}

void SecondLine::RemoveSession(uint64_t cgroup_id) {
  if (log_ == nullptr) return;
  log_->Drain();
  log_->Forget(cgroup_id);
  counts_.erase(cgroup_id);
}

std::function<void(absl::Status)> SecondLine::Once(std::function<void(absl::Status)> done) const {
  auto once = std::make_shared<std::function<void(absl::Status)>>(std::move(done));
  return [once, alive = alive_](absl::Status status) {
    if (!*alive || *once == nullptr) return;
    std::exchange(*once, nullptr)(std::move(status));
  };
}

void SecondLine::Try(uint64_t cgroup_id, UniqueFd socket, std::function<void(absl::Status)> done) {
  const auto answer = Once(std::move(done));
  backstop_->Try(cgroup_id, std::move(socket), [this, answer](absl::Status status) {
    core_.Post([answer, status = std::move(status)] { answer(status); });
  });
  core_.PostAfter(kTryTimeout,
                  [answer] { answer(absl::DeadlineExceededError("nftables did not answer in time")); });
}

void SecondLine::Follow(std::function<void()> done) {
  const auto answer = Once([done = std::move(done)](const absl::Status&) { done(); });
  backstop_->AfterChanges([this, answer] { core_.Post([answer] { answer(absl::OkStatus()); }); });
  core_.PostAfter(kTimeout, [answer] { answer(absl::OkStatus()); });
}

void SecondLine::Plan(uint64_t cgroup_id, bool apply, std::function<void(absl::StatusOr<std::string>)> done) {
  backstop_->Plan(cgroup_id, apply, [this, done = std::move(done)](absl::StatusOr<std::string> plan) {
    core_.Post([done, plan = std::move(plan)] { done(plan); });
  });
}

absl::StatusOr<std::string> SecondLine::PlanOf(const policy::Snapshot& snapshot) const {
  ASSIGN_OR_RETURN(const NetworkRules lists, CompileNetworkRules(snapshot));
  ASSIGN_OR_RETURN(const PacketRules rules, CompilePacketRules(lists));
  if (!lists.stops) return std::string("# this policy denies nothing of the network\n");
  const NftRuleset ruleset(ruleset_);
  NftSession session;
  session.cgroup = "CGROUP-OF-THE-SESSION";
  session.policy = 1;
  session.rules = &rules;
  return ruleset.AddTable() + ruleset.AddPolicy(session.policy, rules) + ruleset.AddSession(session);
}

v1::SourceState SecondLine::State() const {
  v1::SourceState state;
  state.set_source(v1::NFLOG);
  state.set_counts("at least");
  absl::Status status = backstop_->status();
  const bool stops = status.ok();
  if (stops) status = log_status_;
  state.set_active(status.ok());
  if (!status.ok())
    state.set_why(
        absl::StrCat(stops ? "packets are stopped and counted, but not told: " : "", status.message()));
  if (log_ != nullptr) {
    state.set_events(log_->Stats().records);
    state.set_lost(log_->Stats().lost);
  }
  return state;
}

}  // namespace agentmon
