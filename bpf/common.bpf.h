/* What every program includes, and where a session's cgroup is. */
#ifndef AGENTMON_BPF_COMMON_BPF_H
#define AGENTMON_BPF_COMMON_BPF_H

#include <linux/bpf.h>
#include <stddef.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "core_types.h"
#include "event_abi.h"

/* Depth of a session's directory below the root of the cgroup2 hierarchy. */
const volatile am_u32 session_level = 0;

/* The id of the cgroup's ancestor at this level, 0 when it is higher up. */
static __always_inline am_u64 cgroup_ancestor_id(struct cgroup *cgroup, am_u32 at) {
  struct cgroup *ancestor = 0;
  if (!cgroup || (am_u32)BPF_CORE_READ(cgroup, level) < at) return 0;
  bpf_probe_read_kernel(&ancestor, sizeof(ancestor),
                        (void *)cgroup + bpf_core_field_offset(struct cgroup, ancestors) + at * sizeof(ancestor));
  return ancestor ? BPF_CORE_READ(ancestor, kn, id) : 0;
}

static __always_inline am_u64 task_ancestor_id(struct task_struct *task) {
  return cgroup_ancestor_id(BPF_CORE_READ(task, cgroups, dfl_cgrp), session_level);
}

static __always_inline void fill_header(struct am_header *h, struct task_struct *task, am_u16 source,
                                        am_u16 type, am_u32 size) {
  h->type = type;
  h->source = source;
  h->size = size;
  h->flags = 0;
  h->uid = BPF_CORE_READ(task, real_cred, uid.val);
  h->boot_ns = bpf_ktime_get_boot_ns();
  h->start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
  h->pid = BPF_CORE_READ(task, tgid);
  h->tid = BPF_CORE_READ(task, pid);
}

#endif
