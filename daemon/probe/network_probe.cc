#include "daemon/probe/network_probe.h"

#include <bpf/libbpf.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bpf/network.skel.h"
#include "bpf/unix.skel.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

// BPF_CGROUP_UNIX_CONNECT and _SENDMSG of Linux 6.7; the headers that we build with are older.
constexpr auto kUnixConnect = static_cast<bpf_attach_type>(49);
constexpr auto kUnixSendmsg = static_cast<bpf_attach_type>(50);

}  // namespace

NetworkProbe::NetworkProbe(BpfRing& ring, int base_cgroup_fd)
    : ring_(ring), base_cgroup_fd_(base_cgroup_fd) {}
NetworkProbe::~NetworkProbe() = default;

absl::StatusOr<std::unique_ptr<NetworkProbe>> NetworkProbe::Create(BpfRing& ring, int base_cgroup_fd,
                                                                   const std::string& instance,
                                                                   const Clock& clock) {
  std::unique_ptr<NetworkProbe> probe(new NetworkProbe(ring, base_cgroup_fd));
  RETURN_IF_ERROR(probe->LoadInet());
  if (probe->enforceable_.ok()) probe->enforceable_ = probe->MakeGate(instance, clock);
  probe->unix_status_ = probe->LoadUnix();
  return probe;
}

// What the kernel cannot judge it may still be able to record.
absl::Status NetworkProbe::LoadInet() {
  const auto load = [this](bool enforce, bool packets) {
    return LoadSkeleton<network_bpf>("network programs", [&](network_bpf* bpf) {
      bpf->rodata->net_enforce = enforce ? 1 : 0;
      bpf_program__set_autoload(bpf->progs.egress, packets);
      return ring_.Share(bpf);
    });
  };
  auto judging = load(true, true);
  packets_ = judging.status();
  if (!judging.ok()) judging = load(true, false);
  if (judging.ok()) {
    inet_ = std::move(*judging);
    return absl::OkStatus();
  }
  enforceable_ = judging.status();
  ASSIGN_OR_RETURN(inet_, load(false, false));
  return absl::OkStatus();
}

absl::Status NetworkProbe::MakeGate(const std::string& instance, const Clock& clock) {
  ASSIGN_OR_RETURN(pins_, BpfPins::Create(instance));
  NetworkMapFds fds;
  fds.slots = bpf_map__fd(inet_->maps.net_slots);
  fds.sessions = bpf_map__fd(inet_->maps.net_sessions);
  fds.rules = bpf_map__fd(inet_->maps.net_rules);
  fds.prefixes = bpf_map__fd(inet_->maps.net_prefixes);
  fds.opened = bpf_map__fd(inet_->maps.net_opened);
  fds.opened_lists = bpf_map__fd(inet_->maps.net_opened_lists);
  fds.redirected = bpf_map__fd(inet_->maps.net_redirected);
  ASSIGN_OR_RETURN(gate_, NetworkGate::Create(fds, clock));
  return absl::OkStatus();
}

std::string NetworkProbe::GroupOf(uint64_t cgroup_id) const {
  return own_links_.count(cgroup_id) == 0 ? "base" : absl::StrCat(cgroup_id);
}

absl::Status NetworkProbe::Hold(uint64_t cgroup_id) {
  const std::string group = GroupOf(cgroup_id);
  std::set<uint64_t>& sessions = held_[group];
  if (sessions.empty()) {
    const auto own = own_links_.find(cgroup_id);
    for (const NamedLink& link : own == own_links_.end() ? links_ : own->second) {
      if (!link.denies) continue;
      const absl::Status pinned = pins_->Pin(link.link.get(), group, link.name);
      if (pinned.ok()) continue;
      pins_->Remove(group);
      held_.erase(group);
      return pinned;
    }
  }
  sessions.insert(cgroup_id);
  return absl::OkStatus();
}

void NetworkProbe::LetGo(uint64_t cgroup_id) {
  const auto held = held_.find(GroupOf(cgroup_id));
  if (held == held_.end() || held->second.erase(cgroup_id) == 0 || !held->second.empty()) return;
  pins_->Remove(held->first);
  held_.erase(held);
}

absl::Status NetworkProbe::Enforce(uint64_t cgroup_id, std::shared_ptr<const policy::Snapshot> snapshot) {
  RETURN_IF_ERROR(enforceable_);
  const bool is_new = !gate_->Judges(cgroup_id);
  if (is_new) RETURN_IF_ERROR(Hold(cgroup_id));
  const absl::Status set = gate_->SetPolicy(cgroup_id, std::move(snapshot));
  if (is_new && !set.ok()) LetGo(cgroup_id);
  return set;
}

void NetworkProbe::RemoveCgroup(uint64_t cgroup_id) {
  if (gate_ != nullptr) {
    gate_->RemoveSession(cgroup_id);
    LetGo(cgroup_id);
  }
  if (permits_ != nullptr) permits_->Remove(cgroup_id);
  own_links_.erase(cgroup_id);
}

void NetworkProbe::DropEarlier() {
  if (pins_ != nullptr) pins_->RemoveEarlier();
}

absl::Status NetworkProbe::LoadUnix() {
  ASSIGN_OR_RETURN(unix_, LoadSkeleton<unix_bpf>("unix socket programs", [this](unix_bpf* bpf) {
                     bpf_program__set_expected_attach_type(bpf->progs.connect_unix, kUnixConnect);
                     bpf_program__set_expected_attach_type(bpf->progs.sendmsg_unix, kUnixSendmsg);
                     return ring_.Share(bpf);
                   }));
  ASSIGN_OR_RETURN(permits_, UnixPermits::Create(*unix_));
  return absl::OkStatus();
}

absl::Status NetworkProbe::JudgeUnix(uint64_t cgroup_id) {
  RETURN_IF_ERROR(unix_status_);
  if (gate_ == nullptr || !gate_->Judges(cgroup_id))
    return absl::FailedPreconditionError("the network programs of the session are not kept");
  return permits_->Add(cgroup_id);
}

absl::Status NetworkProbe::Attach(RecordSink& sink) {
  RETURN_IF_ERROR(ring_.Start(sink));
  if (absl::Status status = AttachInet(base_cgroup_fd_, links_); !status.ok()) {
    links_.clear();
    return status;
  }
  inactive_ = AttachUnix(base_cgroup_fd_, links_);
  if (!packets_.ok()) inactive_.push_back(absl::StrCat("packets: ", packets_.message()));
  return absl::OkStatus();
}

absl::Status NetworkProbe::AddCgroup(uint64_t cgroup_id, int cgroup_fd) {
  Links links;
  RETURN_IF_ERROR(AttachInet(cgroup_fd, links));
  AttachUnix(cgroup_fd, links);  // what is missing is known since Attach
  own_links_[cgroup_id] = std::move(links);
  return absl::OkStatus();
}

absl::Status NetworkProbe::AttachOne(bpf_program* program, int cgroup_fd, absl::string_view part,
                                     Links& links) {
  UniqueLink link(bpf_program__attach_cgroup(program, cgroup_fd));
  if (link == nullptr) return BpfError(errno, absl::StrCat("attach ", part));
  links.push_back({std::string(part), std::move(link), false});
  return absl::OkStatus();
}

absl::Status NetworkProbe::AttachInet(int cgroup_fd, Links& links) {
  RETURN_IF_ERROR(
      AttachOne(inet_->progs.on_sockops, cgroup_fd, "sockops", links));  // before the first connect
  RETURN_IF_ERROR(AttachOne(inet_->progs.bind4, cgroup_fd, "bind4", links));
  RETURN_IF_ERROR(AttachOne(inet_->progs.bind6, cgroup_fd, "bind6", links));
  const auto& progs = inet_->progs;
  const std::pair<bpf_program*, const char*> judging[] = {
      {progs.connect4, "connect4"},         {progs.connect6, "connect6"},
      {progs.sendmsg4, "sendmsg4"},         {progs.sendmsg6, "sendmsg6"},
      {progs.sock_create, "sock_create"},   {progs.recvmsg4, "recvmsg4"},
      {progs.recvmsg6, "recvmsg6"},         {progs.getpeername4, "getpeername4"},
      {progs.getpeername6, "getpeername6"}, {progs.egress, "egress"},
  };
  for (const auto& [program, part] : judging) {
    if (program == progs.egress && !packets_.ok()) continue;
    RETURN_IF_ERROR(AttachOne(program, cgroup_fd, part, links));
    links.back().denies = true;
  }
  return absl::OkStatus();
}

std::vector<std::string> NetworkProbe::AttachUnix(int cgroup_fd, Links& links) {
  std::vector<std::string> inactive;
  absl::Status connect = unix_status_, send = unix_status_;
  if (unix_ != nullptr) {
    connect = AttachOne(unix_->progs.connect_unix, cgroup_fd, "unix_connect", links);
    if (connect.ok()) links.back().denies = true;
    send = AttachOne(unix_->progs.sendmsg_unix, cgroup_fd, "unix_send", links);
    if (send.ok()) links.back().denies = true;
  }
  for (const auto& [part, status] : {std::pair("unix_connect", connect), std::pair("unix_send", send)}) {
    if (status.ok()) continue;
    const bool unknown = absl::IsInvalidArgument(status) || absl::IsNotFound(status);
    inactive.push_back(
        absl::StrCat(part, ": ", unknown ? "not in this kernel (needs 6.7)" : status.message()));
    if (unix_status_.ok() || unknown) unix_status_ = absl::UnavailableError(inactive.back());
  }
  return inactive;
}

ProbeStats NetworkProbe::Stats() const {
  ProbeStats stats;
  for (am_type type :
       {AM_CONNECT, AM_SOCK_RESULT, AM_BIND, AM_LISTEN, AM_SEND, AM_UNIX_CONNECT, AM_UNIX_SEND, AM_SOCKET}) {
    stats.records += ring_.records(type);
    stats.lost += ring_.Lost(type);
  }
  return stats;
}

}  // namespace agentmon
