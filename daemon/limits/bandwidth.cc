#include "daemon/limits/bandwidth.h"

#include <bpf/bpf.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bpf/bandwidth.skel.h"
#include "bpf/bandwidth_abi.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace agentmon {
namespace {

constexpr int64_t kBurstNs = 100'000'000;
constexpr int64_t kLargestPacket = 65536;  // as the hooks see it, before it is cut for the device
constexpr uint32_t kMostPrograms = 64;     // the kernel's limit of one cgroup and hook

struct Hook {
  bpf_attach_type type;
  const char* program;
};
constexpr std::array<Hook, 2> kHooks{
    {{BPF_CGROUP_INET_EGRESS, "am_rate_out"}, {BPF_CGROUP_INET_INGRESS, "am_rate_in"}}};

using Skeleton = std::unique_ptr<bandwidth_bpf, decltype(&bandwidth_bpf__destroy)>;

absl::StatusOr<Skeleton> Load() {
  Skeleton skeleton(bandwidth_bpf__open(), &bandwidth_bpf__destroy);
  if (skeleton == nullptr) return ErrnoStatus(errno, "open the programs of the network rate");
  if (const int error = bandwidth_bpf__load(skeleton.get()); error != 0)
    return ErrnoStatus(-error, "load the programs of the network rate");
  return skeleton;
}

absl::StatusOr<UniqueFd> OpenDirectory(const std::string& directory) {
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", directory));
  return fd;
}

// Ours among the programs of this cgroup; invalid = there is none.
UniqueFd FindProgram(int cgroup, const Hook& hook, bpf_prog_info* info) {
  std::vector<uint32_t> ids(kMostPrograms);
  uint32_t count = kMostPrograms, flags = 0;
  if (bpf_prog_query(cgroup, hook.type, 0, &flags, ids.data(), &count) != 0) return UniqueFd();
  // What the kernel writes to besides: one number a map. It puts their count in the place of the room.
  const auto maps = info->map_ids;
  const uint32_t room = info->nr_map_ids;
  for (uint32_t i = 0; i < count; ++i) {
    UniqueFd program(bpf_prog_get_fd_by_id(ids[i]));
    uint32_t size = sizeof(*info);
    *info = {};
    info->map_ids = maps;
    info->nr_map_ids = room;
    if (program.valid() && bpf_obj_get_info_by_fd(program.get(), info, &size) == 0 &&
        std::strcmp(info->name, hook.program) == 0)
      return program;
  }
  return UniqueFd();
}

// A map of one of our programs on this cgroup, by its name.
UniqueFd FindMap(int cgroup, const char* name) {
  std::array<uint32_t, 8> ids{};
  bpf_prog_info program{};
  program.map_ids = reinterpret_cast<uintptr_t>(ids.data());
  program.nr_map_ids = ids.size();
  if (!FindProgram(cgroup, kHooks[0], &program).valid()) return UniqueFd();
  for (uint32_t i = 0; i < std::min<uint32_t>(program.nr_map_ids, ids.size()); ++i) {
    UniqueFd map(bpf_map_get_fd_by_id(ids[i]));
    bpf_map_info info{};
    uint32_t size = sizeof(info);
    if (map.valid() && bpf_obj_get_info_by_fd(map.get(), &info, &size) == 0 &&
        std::strcmp(info.name, name) == 0)
      return map;
  }
  return UniqueFd();
}

absl::Status WriteRate(int map, int64_t mbps) {
  am_rate rate{};
  rate.ns_per_kib = std::max<uint64_t>(1, 8'000 * 1024 / static_cast<uint64_t>(mbps));
  // Two of the largest packets must fit, or a low rate lets none through.
  rate.hard_ns = static_cast<uint64_t>(std::max(kBurstNs, 2 * kLargestPacket * 8'000 / mbps));
  rate.soft_ns = rate.hard_ns / 4;
  const uint32_t zero = 0;
  if (bpf_map_update_elem(map, &zero, &rate, BPF_ANY) != 0)
    return ErrnoStatus(errno, "write the network rate");
  return absl::OkStatus();
}

absl::Status Detach(int cgroup) {
  absl::Status status;
  for (const Hook& hook : kHooks) {
    bpf_prog_info info{};
    const UniqueFd program = FindProgram(cgroup, hook, &info);
    if (program.valid() && bpf_prog_detach2(program.get(), cgroup, hook.type) != 0)
      status.Update(ErrnoStatus(errno, absl::StrCat("take off ", hook.program)));
  }
  return status;
}

absl::Status Attach(int cgroup, int64_t mbps) {
  ASSIGN_OR_RETURN(const Skeleton skeleton, Load());
  RETURN_IF_ERROR(WriteRate(bpf_map__fd(skeleton->maps.am_rate), mbps));
  const std::array<const bpf_program*, 2> programs{skeleton->progs.am_rate_out, skeleton->progs.am_rate_in};
  for (size_t i = 0; i < kHooks.size(); ++i) {
    if (bpf_prog_attach(bpf_program__fd(programs[i]), cgroup, kHooks[i].type, BPF_F_ALLOW_MULTI) == 0)
      continue;
    const absl::Status status = ErrnoStatus(errno, absl::StrCat("attach ", kHooks[i].program));
    Detach(cgroup).IgnoreError();
    return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CanLimitBandwidth() {
  static const absl::Status& can = *new absl::Status(Load().status());
  return can;
}

absl::Status SetBandwidth(const std::string& directory, int64_t mbps) {
  ASSIGN_OR_RETURN(const UniqueFd cgroup, OpenDirectory(directory));
  if (mbps == 0) return Detach(cgroup.get());
  bpf_prog_info info{};
  const UniqueFd map = FindMap(cgroup.get(), "am_rate");
  if (map.valid() && FindProgram(cgroup.get(), kHooks[1], &info).valid()) return WriteRate(map.get(), mbps);
  RETURN_IF_ERROR(Detach(cgroup.get()));  // of one half, when setting it was interrupted
  return Attach(cgroup.get(), mbps);
}

uint64_t PacketsHeldBack(const std::string& directory) {
  const auto cgroup = OpenDirectory(directory);
  if (!cgroup.ok()) return 0;
  const UniqueFd map = FindMap(cgroup->get(), "am_flow");
  if (!map.valid()) return 0;
  am_flow flow{};
  uint64_t sum = 0;
  for (const uint32_t direction : {AM_FLOW_OUT, AM_FLOW_IN}) {
    if (bpf_map_lookup_elem(map.get(), &direction, &flow) == 0) sum += flow.held_back;
  }
  return sum;
}

}  // namespace agentmon
