/* What every program that makes records shares: the ring, the count of what did not fit, the
 * sessions. */
#ifndef AGENTMON_BPF_RING_BPF_H
#define AGENTMON_BPF_RING_BPF_H

#include "common.bpf.h"

/* agentmon.v1.Source */
#define SOURCE_PROCESS 1
#define SOURCE_NETWORK 2

/* The daemon makes these four maps once and every object uses them (bpf_map__reuse_fd). */
struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, AM_RING_BYTES);
} events SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, am_u32);
  __type(value, struct am_ring_state);
} ring_state SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, AM_TYPE_COUNT);
  __type(key, am_u32);
  __type(value, am_u64);
} lost SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, AM_SESSIONS_MAX);
  __type(key, am_u64); /* cgroup id */
  __type(value, am_u32);
} sessions SEC(".maps");

static __always_inline void count_lost(am_u32 type) {
  am_u64 *count = bpf_map_lookup_elem(&lost, &type);
  if (count) ++*count;
}

/* The consumer arms the wake-up before it goes to sleep; while it is awake it looks by itself every
 * few milliseconds, so that a busy session does not wake it once per record. */
static __always_inline am_u64 wake_flags(void) {
  am_u32 zero = 0;
  struct am_ring_state *state = bpf_map_lookup_elem(&ring_state, &zero);
  if (!state || !*(volatile am_u32 *)&state->armed) return BPF_RB_NO_WAKEUP;
  state->armed = 0;
  return BPF_RB_FORCE_WAKEUP;
}

static __always_inline int is_session(am_u64 cgroup_id) {
  return cgroup_id && bpf_map_lookup_elem(&sessions, &cgroup_id);
}

#endif
