#include "daemon/probe/unix_permits.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>

#include <cerrno>

#include "bpf/unix.skel.h"
#include "common/base/status.h"

namespace agentmon {

absl::StatusOr<std::shared_ptr<UnixPermits>> UnixPermits::Create(const unix_bpf& bpf) {
  std::shared_ptr<UnixPermits> permits(new UnixPermits);
  permits->judged_.Reset(fcntl(bpf_map__fd(bpf.maps.unix_judged), F_DUPFD_CLOEXEC, 3));
  permits->permits_.Reset(fcntl(bpf_map__fd(bpf.maps.unix_permits), F_DUPFD_CLOEXEC, 3));
  if (!permits->judged_.valid() || !permits->permits_.valid())
    return ErrnoStatus(errno, "keep the maps of unix sockets");
  return permits;
}

absl::Status UnixPermits::Add(uint64_t cgroup_id) {
  const uint32_t judged = 1;
  if (bpf_map_update_elem(judged_.get(), &cgroup_id, &judged, BPF_ANY) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "have the unix sockets of a session judged");
}

void UnixPermits::Remove(uint64_t cgroup_id) { bpf_map_delete_elem(judged_.get(), &cgroup_id); }

bool UnixPermits::Put(pid_t tid, const am_unix_permit& permit) {
  const auto key = static_cast<uint32_t>(tid);
  return bpf_map_update_elem(permits_.get(), &key, &permit, BPF_ANY) == 0;
}

void UnixPermits::Forget(pid_t tid) {
  const auto key = static_cast<uint32_t>(tid);
  bpf_map_delete_elem(permits_.get(), &key);
}

}  // namespace agentmon
