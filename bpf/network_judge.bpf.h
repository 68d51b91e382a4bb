/* What a session's policy says of a destination. */
#ifndef AGENTMON_BPF_NETWORK_JUDGE_BPF_H
#define AGENTMON_BPF_NETWORK_JUDGE_BPF_H

#include <linux/in.h>

#include "common.bpf.h"
#include "network_abi.h"

#define AF_INET 2 /* <sys/socket.h> */
#define AF_INET6 10

/* Where the kernel lacks bpf_loop (before 5.17) nothing is judged: the verifier then never sees the call. */
const volatile am_u32 net_enforce = 0;

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, AM_SESSIONS_MAX);
  __type(key, am_u64);   /* cgroup id */
  __type(value, am_u32); /* index in net_sessions */
} net_slots SEC(".maps");

/* An array, because an element of a hash is not changed in place: it is replaced, and the old one may be
 * somebody else's while it is still being read. Mapped, because only a store of the daemon's own is sure to
 * switch a word as one. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, AM_SESSIONS_MAX);
  __type(key, am_u32);
  __type(value, struct am_net_session);
} net_sessions SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, AM_NET_RULES_MAX);
  __type(key, am_u32);
  __type(value, struct am_net_rule);
} net_rules SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_LPM_TRIE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, AM_NET_PREFIXES_MAX);
  __type(key, struct am_net_key);
  __type(value, struct am_net_list);
} net_prefixes SEC(".maps");

/* Elements stay as they are from their first to their last moment, for the reason above. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, AM_NET_OPENED_MAX);
  __type(key, struct am_net_opened_key);
  __type(value, am_u32); /* index in net_opened_lists */
} net_opened SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, AM_NET_OPENED_MAX);
  __type(key, am_u32);
  __type(value, struct am_net_list);
} net_opened_lists SEC(".maps");

struct net_destination {
  am_u32 family; /* AF_INET for what is IPv4 in IPv6, too */
  am_u8 address[16];
  am_u16 port; /* host order */
  am_u8 protocol; /* AM_NET_* */
};

struct net_walk {
  am_u64 now_ns;
  am_u32 first;
  am_u32 policy;
  am_u32 rule;
  am_u16 port;
  am_u8 protocol;
  am_u8 layer;
  am_u8 decided; /* this layer has decided already */
  am_u8 denied;
  am_u8 failed;
};

static long judge_rule(am_u32 i, struct net_walk *walk) {
  am_u32 at = walk->first + i;
  struct am_net_rule *rule = bpf_map_lookup_elem(&net_rules, &at);
  if (!rule || rule->policy != walk->policy) {
    walk->failed = 1;
    return 1;
  }
  if (rule->layer == walk->decided) return 0;
  if (rule->protocols && !(rule->protocols & walk->protocol)) return 0;
  if (walk->port < rule->low || walk->port > rule->high) return 0;
  if (rule->until_ns && walk->now_ns >= rule->until_ns) return 0;
  walk->layer = rule->layer;
  walk->rule = rule->rule;
  if (rule->flags & AM_NET_RULE_DENY) {
    walk->denied = 1;
    return 1;
  }
  if (rule->flags & AM_NET_RULE_FINAL) return 1;
  walk->decided = rule->layer;
  return 0;
}

static __always_inline struct am_net_session *net_session_of(am_u64 cgroup_id) {
  if (!net_enforce) return 0;
  am_u32 *slot = bpf_map_lookup_elem(&net_slots, &cgroup_id);
  if (!slot) return 0;
  am_u32 at = *slot;
  return bpf_map_lookup_elem(&net_sessions, &at);
}

/* The list that holds for the destination; count 0 = there is none, which is a failure. */
static __always_inline struct am_net_list find_list(const struct net_destination *to, am_u64 cgroup_id,
                                                    am_u32 policy, am_u32 flags) {
  struct am_net_list none = {};
  if (flags & AM_NET_SESSION_NAMES) {
    struct am_net_opened_key key = {.cgroup_id = cgroup_id, .policy = policy, .family = to->family};
    __builtin_memcpy(key.address, to->address, sizeof(key.address));
    am_u32 *at = bpf_map_lookup_elem(&net_opened, &key);
    struct am_net_list *list = at ? bpf_map_lookup_elem(&net_opened_lists, at) : 0;
    if (list) {
      /* One word: it is switched as one. */
      am_u64 word = *(volatile am_u64 *)list;
      struct am_net_list copy = {.first = (am_u32)word, .count = (am_u32)(word >> 32)};
      return copy;
    }
  }
  struct am_net_key key = {.policy = policy, .family = to->family};
  key.prefix_bits = 64 + (to->family == AF_INET ? 32 : 128);
  __builtin_memcpy(key.address, to->address, sizeof(key.address));
  struct am_net_list *list = bpf_map_lookup_elem(&net_prefixes, &key);
  return list ? *list : none;
}

struct net_verdict {
  am_u32 policy;
  am_u32 rule;
  am_u8 layer;
  am_u8 verdict; /* AM_VERDICT_* */
};

/* Fails closed. A policy that goes away meanwhile has been replaced before: then the other one is asked. */
static __always_inline void judge_destination(struct am_net_session *session, am_u64 cgroup_id,
                                              const struct net_destination *to, struct net_verdict *out) {
  out->verdict = AM_VERDICT_DENIED;
  out->rule = AM_NET_BY_FAILURE;
#pragma unroll
  for (int tries = 0; tries < 2; ++tries) {
    am_u64 word = *(volatile am_u64 *)session;
    am_u32 policy = (am_u32)word, flags = (am_u32)(word >> 32);
    out->policy = policy;
    if ((flags & AM_NET_SESSION_CLOSED) || session->cgroup_id != cgroup_id) return;
    struct am_net_list list = find_list(to, cgroup_id, policy, flags);
    if (list.count == 0) continue;
    struct net_walk walk = {.first = list.first,
                            .policy = policy,
                            .now_ns = (flags & AM_NET_SESSION_NAMES) ? bpf_ktime_get_boot_ns() : 0,
                            .port = to->port,
                            .protocol = to->protocol,
                            .decided = 0xff};
    bpf_loop(list.count, judge_rule, &walk, 0);
    if (walk.failed) continue;
    out->layer = walk.layer;
    out->rule = walk.rule;
    out->verdict = walk.denied ? AM_VERDICT_DENIED : AM_VERDICT_ALLOWED;
    return;
  }
}

/* As common/policy/address.cc has it: mapped, NAT64 and compatible addresses are IPv4; the unspecified ones
 * lead to the loopback. */
static __always_inline void normalise(struct net_destination *to) {
  am_u32 *words = (am_u32 *)to->address;
  if (to->family == AF_INET6) {
    int zero = words[0] == 0 && words[1] == 0;
    int embeds = (zero && words[2] == bpf_htonl(0xffff)) ||
                 (words[0] == bpf_htonl(0x0064ff9b) && words[1] == 0 && words[2] == 0) ||
                 (zero && words[2] == 0 && to->address[12] != 0);
    if (embeds) {
      to->family = AF_INET;
      words[0] = words[3];
      words[1] = words[2] = words[3] = 0;
    } else if (zero && words[2] == 0 && words[3] == 0) {
      words[3] = bpf_htonl(1);
    }
  }
  if (to->family == AF_INET && words[0] == 0) words[0] = bpf_htonl(0x7f000001);
}

#endif
