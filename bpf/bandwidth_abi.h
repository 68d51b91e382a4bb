/* What the programs of bandwidth.bpf.c and the daemon both know. */
#ifndef AGENTMON_BPF_BANDWIDTH_ABI_H
#define AGENTMON_BPF_BANDWIDTH_ABI_H

#include <linux/bpf.h>

enum { AM_FLOW_OUT = 0, AM_FLOW_IN = 1 };

struct am_rate {
  __u64 ns_per_kib; /* 0 = not limited */
  __u64 soft_ns;    /* how far ahead of the rate TCP is told to slow down */
  __u64 hard_ns;    /* and packets are dropped */
};

struct am_flow {
  struct bpf_spin_lock lock;
  __u32 pad;
  __u64 until_ns;  /* CLOCK_MONOTONIC: when all that went through would have been sent at the rate */
  __u64 held_back; /* packets that were dropped */
};

#endif
