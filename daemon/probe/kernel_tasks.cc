#include "daemon/probe/kernel_tasks.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <cerrno>

#include "bpf/iterators.skel.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace agentmon {

KernelTasks::KernelTasks() = default;
KernelTasks::~KernelTasks() = default;

absl::StatusOr<std::unique_ptr<KernelTasks>> KernelTasks::Create(uint32_t session_level) {
  std::unique_ptr<KernelTasks> tasks(new KernelTasks);
  ASSIGN_OR_RETURN(tasks->bpf_, LoadSkeleton<iterators_bpf>("task iterator", [=](iterators_bpf* bpf) {
                     bpf->rodata->session_level = session_level;
                     bpf_program__set_autoload(bpf->progs.cgroup_level, false);
                     return absl::OkStatus();
                   }));
  tasks->link_.reset(bpf_program__attach_iter(tasks->bpf_->progs.list_tasks, nullptr));
  if (tasks->link_ == nullptr) return BpfError(errno, "attach the task iterator");
  return tasks;
}

absl::StatusOr<std::vector<am_task>> KernelTasks::List() const {
  UniqueFd iter(bpf_iter_create(bpf_link__fd(link_.get())));
  if (!iter.valid()) return BpfError(errno, "start the task iterator");
  std::vector<am_task> tasks;
  size_t bytes = 0;
  while (true) {
    tasks.resize(bytes / sizeof(am_task) + 256);
    char* to = reinterpret_cast<char*>(tasks.data()) + bytes;
    const ssize_t got = read(iter.get(), to, tasks.size() * sizeof(am_task) - bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return ErrnoStatus(errno, "read the task iterator");
    if (got == 0) break;
    bytes += static_cast<size_t>(got);
  }
  tasks.resize(bytes / sizeof(am_task));
  return tasks;
}

}  // namespace agentmon
