/* Holds what a session sends and what it gets to a number of bits a second, each. Loaded once for each session that has
 * such a limit, and attached to its own cgroup: the programs and their maps live as long as that, whatever becomes of the
 * daemon, which finds them by name (daemon/limits/bandwidth.cc).
 *
 * Packets are not delayed: `until_ns` is when all that went through would have been sent at the rate. What is far ahead of
 * that is dropped; what is somewhat ahead goes, and TCP is told to slow down (return value 3, Linux 4.20). */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "bandwidth_abi.h"

char LICENSE[] SEC("license") = "GPL";

#define LOOPBACK_IFINDEX 1 /* in every network namespace */

enum { EGRESS_DROP = 2, EGRESS_PASS_AND_SLOW = 3, PASS = 1, INGRESS_DROP = 0 };

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct am_rate);
} am_rate SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 2); /* out, in */
  __type(key, __u32);
  __type(value, struct am_flow);
} am_flow SEC(".maps");

static __always_inline int look(struct __sk_buff *skb, __u32 direction, int slow, int drop) {
  __u32 zero = 0;
  struct am_rate *rate = bpf_map_lookup_elem(&am_rate, &zero);
  struct am_flow *flow = bpf_map_lookup_elem(&am_flow, &direction);
  if (!rate || !flow || !rate->ns_per_kib || skb->ifindex == LOOPBACK_IFINDEX) return PASS;
  __u64 cost_ns = ((__u64)skb->len * rate->ns_per_kib) >> 10;
  __u64 soft_ns = rate->soft_ns, hard_ns = rate->hard_ns;
  __u64 now_ns = bpf_ktime_get_ns();
  int verdict = PASS;
  bpf_spin_lock(&flow->lock);
  __u64 until_ns = (flow->until_ns > now_ns ? flow->until_ns : now_ns) + cost_ns;
  if (until_ns - now_ns > hard_ns) {
    flow->held_back++;
    verdict = drop;
  } else {
    if (until_ns - now_ns > soft_ns) verdict = slow;
    flow->until_ns = until_ns;
  }
  bpf_spin_unlock(&flow->lock);
  return verdict;
}

SEC("cgroup_skb/egress")
int am_rate_out(struct __sk_buff *skb) { return look(skb, AM_FLOW_OUT, EGRESS_PASS_AND_SLOW, EGRESS_DROP); }

SEC("cgroup_skb/ingress")
int am_rate_in(struct __sk_buff *skb) { return look(skb, AM_FLOW_IN, PASS, INGRESS_DROP); }
