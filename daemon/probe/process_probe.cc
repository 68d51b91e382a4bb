#include "daemon/probe/process_probe.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bpf/process.skel.h"
#include "common/base/log.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

// Since 6.16 the exit trace point has a second argument: the last thread exits.
bool ExitTellsGroupDead() {
  std::unique_ptr<btf, void (*)(btf*)> kernel(btf__load_vmlinux_btf(), btf__free);
  if (kernel == nullptr) return false;
  const int id = btf__find_by_name_kind(kernel.get(), "btf_trace_sched_process_exit", BTF_KIND_TYPEDEF);
  if (id < 0) return false;
  const btf_type* type = btf__type_by_id(kernel.get(), btf__type_by_id(kernel.get(), id)->type);
  if (type == nullptr || !btf_is_ptr(type)) return false;
  type = btf__type_by_id(kernel.get(), type->type);
  return type != nullptr && btf_is_func_proto(type) && btf_vlen(type) >= 3;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessProbe>> ProcessProbe::Create(BpfRing& ring) {
  std::unique_ptr<ProcessProbe> probe(new ProcessProbe(ring));
  RETURN_IF_ERROR(probe->Load());
  return probe;
}

absl::Status ProcessProbe::Load() {
  ASSIGN_OR_RETURN(const PermitKey key, NewPermitKey());
  ASSIGN_OR_RETURN(bpf_, LoadSkeleton<process_bpf>("process programs", [this, &key](process_bpf* bpf) {
                     bpf->rodata->page_bytes = static_cast<uint32_t>(sysconf(_SC_PAGESIZE));
                     bpf->rodata->exit_tells_group_dead = ExitTellsGroupDead();
                     bpf->rodata->permit_key[0] = key.words[0];
                     bpf->rodata->permit_key[1] = key.words[1];
                     bpf_map__set_max_entries(bpf->maps.scratch,
                                              static_cast<uint32_t>(libbpf_num_possible_cpus()));
                     return ring_.Share(bpf);
                   }));
  ASSIGN_OR_RETURN(tasks_, KernelTasks::Create(ring_.session_level()));
  auto verifier = ExecVerifier::Create(*bpf_, key);
  if (!verifier.ok()) {
    LogWarning("arguments of execs are not verified: ", verifier.status().message());
  } else {
    verifier_ = *std::move(verifier);
  }
  return absl::OkStatus();
}

ProcessProbe::ProcessProbe(BpfRing& ring) : ring_(ring) {}
ProcessProbe::~ProcessProbe() = default;

absl::Status ProcessProbe::Attach(RecordSink& sink) {
  RETURN_IF_ERROR(ring_.Start(sink));
  if (const int error = process_bpf::attach(bpf_.get()); error != 0) {
    process_bpf::detach(bpf_.get());
    return BpfError(-error, "attach process programs");
  }
  return absl::OkStatus();
}

absl::Status ProcessProbe::Verify(uint64_t cgroup_id, absl::Duration lenient) {
  if (verifier_ == nullptr) return absl::OkStatus();
  bpf_->bss->verifying = 1;  // for ever: permits may be left
  return verifier_->Add(cgroup_id, lenient);
}

void ProcessProbe::Unverify(uint64_t cgroup_id) {
  if (verifier_ != nullptr) verifier_->Remove(cgroup_id);
}

ProbeStats ProcessProbe::Stats() const {
  ProbeStats stats;
  for (am_type type : {AM_EXEC, AM_FORK, AM_EXIT}) {
    stats.records += ring_.records(type);
    stats.lost += ring_.Lost(type);
  }
  for (const bpf_program* program : {bpf_->progs.on_exec, bpf_->progs.on_fork, bpf_->progs.on_exit}) {
    stats.lost += RecursionMisses(program);
  }
  return stats;
}

}  // namespace agentmon
