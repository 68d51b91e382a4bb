/* What the daemon asks the kernel: its task table, and how deep a cgroup lies. */
#include "common.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* One am_task for each process (not thread). */
SEC("iter/task")
int list_tasks(struct bpf_iter__task *ctx) {
  struct task_struct *task = ctx->task;
  if (!task || task->pid != task->tgid) return 0;
  struct am_task row = {};
  row.key.start_ns = task->start_boottime;
  row.key.pid = task->tgid;
  row.parent.start_ns = BPF_CORE_READ(task, real_parent, group_leader, start_boottime);
  row.parent.pid = BPF_CORE_READ(task, real_parent, tgid);
  row.cgroup_id = task_ancestor_id(task);
  row.uid = BPF_CORE_READ(task, real_cred, uid.val);
  row.kernel_thread = (task->flags & PF_KTHREAD) != 0;
  row.alive = BPF_CORE_READ(task, signal, live.counter) > 0;
  bpf_seq_write(ctx->meta->seq, &row, sizeof(row));
  return 0;
}

/* The level of one cgroup, as a little-endian u32. Kernel 6.1. */
SEC("iter/cgroup")
int cgroup_level(struct bpf_iter__cgroup *ctx) {
  struct cgroup *cgroup = ctx->cgroup;
  if (!cgroup) return 0;
  am_u32 level = cgroup->level;
  bpf_seq_write(ctx->meta->seq, &level, sizeof(level));
  return 0;
}
