/* What a session's processes do to processes outside of it: signals, as the policy says, and looking into their memory
 * as a debugger does, never. Within the session nobody is asked. */
#include "lsm.bpf.h"

char LICENSE[] SEC("license") = "GPL";

struct kernel_siginfo;

#define PTRACE_MODE_ATTACH 0x2u /* include/linux/ptrace.h */
#define LAST_SIGNAL 64

static int lsm_judge_act(struct lsm_scratch *s) {
  am_u32 who = s->asked & (AM_LSM_TARGETS - 1), number = (s->implied - 1) & (LAST_SIGNAL - 1);
  if (s->policy.signals[who] >> number & 1) return AM_LSM_DENY;
  return AM_LSM_PASS;
}

/* The id of the session's cgroup that the process is in, or of another cgroup at that depth; 0: it is above. */
static __always_inline am_u64 session_of(struct task_struct *task) {
  am_u32 zero = 0;
  struct am_lsm_config *config = bpf_map_lookup_elem(&lsm_config, &zero);
  struct cgroup *cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp);
  struct cgroup *ancestor = 0;
  am_u64 level;
  if (!config || !cgroup) return 0;
  level = config->session_level;
  if ((am_u32)BPF_CORE_READ(cgroup, level) < level) return 0;
  bpf_probe_read_kernel(&ancestor, sizeof(ancestor),
                        (void *)cgroup + bpf_core_field_offset(struct cgroup, ancestors) + level * sizeof(ancestor));
  return ancestor ? BPF_CORE_READ(ancestor, kn, id) : 0;
}

static __always_inline am_u32 relations(struct task_struct *sender, struct task_struct *target) {
  int pid = BPF_CORE_READ(target, tgid);
  am_u32 who = 0;
  if (pid == 1 || pid == 2 || BPF_CORE_READ(target, flags) & PF_KTHREAD) who |= AM_LSM_SYSTEM;
  if (BPF_CORE_READ(sender, real_cred, uid.val) == BPF_CORE_READ(target, real_cred, uid.val)) who |= AM_LSM_SAME_USER;
  if (BPF_CORE_READ(sender, group_leader, real_parent, tgid) == pid) who |= AM_LSM_PARENT;
  return who;
}

/* In place of a path: who it was. */
static __always_inline void tell_target(struct lsm_scratch *s, am_u32 kind, int number, struct task_struct *target) {
  struct am_key key = {};
  key.pid = BPF_CORE_READ(target, tgid);
  key.start_ns = BPF_CORE_READ(target, group_leader, start_boottime);
  s->error = EPERM;
  lsm_begin_record(s);
  s->rec.kind = kind;
  s->rec.open_flags = number;
  __builtin_memcpy(s->data, &key, sizeof(key));
  s->rec.path_len = sizeof(key);
  s->rec.new_path_len = 0;
  lsm_send_record(s, sizeof(key));
}

/* Whether a signal is there to be had (0) may be asked. What the kernel itself sends, a terminal's too, does not come
 * here; with credentials of another time it is not the current process that sends. */
SEC("lsm/task_kill")
int BPF_PROG(on_task_kill, struct task_struct *target, struct kernel_siginfo *info, int number,
             const struct cred *cred, int ret) {
  am_u64 session;
  struct lsm_scratch *s;
  int refused;
  if (ret) return ret < 0 ? ret : -EPERM;
  if (number < 1 || number > LAST_SIGNAL || cred) return 0;
  session = lsm_session();
  if (!session || session_of(target) == session) return 0;
  s = lsm_take(session);
  if (!s) return -EPERM;
  s->judge.layer = 0;
  s->judge.rank = s->asked = relations(bpf_get_current_task_btf(), target);
  s->implied = number;
  refused = lsm_decide(s);
  s->judge.rank = s->asked; /* what the daemon asks its engine for */
  if (refused) tell_target(s, KIND_SIGNAL, number, target);
  lsm_give_back(s);
  return refused ? -EPERM : 0;
}

SEC("lsm/ptrace_access_check")
int BPF_PROG(on_ptrace_access_check, struct task_struct *target, unsigned int mode, int ret) {
  am_u64 session;
  struct lsm_scratch *s;
  if (ret) return ret < 0 ? ret : -EPERM;
  if (!(mode & PTRACE_MODE_ATTACH)) return 0;
  session = lsm_session();
  if (!session || session_of(target) == session) return 0;
  s = lsm_take(session);
  if (!s) return -EPERM;
  s->policy_id = 0;
  s->judge.layer = AM_LSM_OUTSIDE;
  s->judge.rank = AM_LSM_NO_RULE;
  tell_target(s, KIND_CALL, AM_LSM_CALL_PTRACE, target);
  lsm_give_back(s);
  return -EPERM;
}
