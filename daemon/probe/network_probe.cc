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

absl::StatusOr<std::unique_ptr<NetworkProbe>> NetworkProbe::Create(BpfRing& ring, int base_cgroup_fd) {
  std::unique_ptr<NetworkProbe> probe(new NetworkProbe(ring, base_cgroup_fd));
  ASSIGN_OR_RETURN(probe->inet_, LoadSkeleton<network_bpf>(
                                     "network programs", [&](network_bpf* bpf) { return ring.Share(bpf); }));
  probe->unix_status_ = probe->LoadUnix();
  return probe;
}

absl::Status NetworkProbe::LoadUnix() {
  ASSIGN_OR_RETURN(unix_, LoadSkeleton<unix_bpf>("unix socket programs", [this](unix_bpf* bpf) {
                     bpf_program__set_expected_attach_type(bpf->progs.connect_unix, kUnixConnect);
                     bpf_program__set_expected_attach_type(bpf->progs.sendmsg_unix, kUnixSendmsg);
                     return ring_.Share(bpf);
                   }));
  return absl::OkStatus();
}

absl::Status NetworkProbe::Attach(RecordSink& sink) {
  RETURN_IF_ERROR(ring_.Start(sink));
  if (absl::Status status = AttachInet(base_cgroup_fd_, links_); !status.ok()) {
    links_.clear();
    return status;
  }
  inactive_ = AttachUnix(base_cgroup_fd_, links_);
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
  links.push_back(std::move(link));
  return absl::OkStatus();
}

absl::Status NetworkProbe::AttachInet(int cgroup_fd, Links& links) {
  RETURN_IF_ERROR(
      AttachOne(inet_->progs.on_sockops, cgroup_fd, "sockops", links));  // before the first connect
  RETURN_IF_ERROR(AttachOne(inet_->progs.connect4, cgroup_fd, "connect4", links));
  RETURN_IF_ERROR(AttachOne(inet_->progs.connect6, cgroup_fd, "connect6", links));
  RETURN_IF_ERROR(AttachOne(inet_->progs.sendmsg4, cgroup_fd, "sendmsg4", links));
  RETURN_IF_ERROR(AttachOne(inet_->progs.sendmsg6, cgroup_fd, "sendmsg6", links));
  RETURN_IF_ERROR(AttachOne(inet_->progs.bind4, cgroup_fd, "bind4", links));
  return AttachOne(inet_->progs.bind6, cgroup_fd, "bind6", links);
}

std::vector<std::string> NetworkProbe::AttachUnix(int cgroup_fd, Links& links) {
  std::vector<std::string> inactive;
  absl::Status connect = unix_status_, send = unix_status_;
  if (unix_ != nullptr) {
    connect = AttachOne(unix_->progs.connect_unix, cgroup_fd, "unix_connect", links);
    send = AttachOne(unix_->progs.sendmsg_unix, cgroup_fd, "unix_send", links);
  }
  for (const auto& [part, status] : {std::pair("unix_connect", connect), std::pair("unix_send", send)}) {
    if (status.ok()) continue;
    const bool unknown = absl::IsInvalidArgument(status) || absl::IsNotFound(status);
    inactive.push_back(
        absl::StrCat(part, ": ", unknown ? "not in this kernel (needs 6.7)" : status.message()));
  }
  return inactive;
}

ProbeStats NetworkProbe::Stats() const {
  ProbeStats stats;
  for (am_type type :
       {AM_CONNECT, AM_SOCK_RESULT, AM_BIND, AM_LISTEN, AM_SEND, AM_UNIX_CONNECT, AM_UNIX_SEND}) {
    stats.records += ring_.records(type);
    stats.lost += ring_.Lost(type);
  }
  return stats;
}

}  // namespace agentmon
