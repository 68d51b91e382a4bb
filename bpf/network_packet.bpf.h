/* Packets that go elsewhere than to the destination that was judged. */
#ifndef AGENTMON_BPF_NETWORK_PACKET_BPF_H
#define AGENTMON_BPF_NETWORK_PACKET_BPF_H

#include <linux/in.h>

#include <bpf/bpf_endian.h>

#include "common.bpf.h"

#define ETH_P_IP 0x0800 /* <linux/if_ether.h> */
#define ETH_P_IPV6 0x86dd
#define LOOPBACK_IFINDEX 1 /* in every network namespace */
#define NEXTHDR_HOP 0 /* <net/ipv6.h> */
#define NEXTHDR_ROUTING 43
#define NEXTHDR_DEST 60
#define EXTENSIONS_MAX 4

/* A routing header names further stations, and the address in the header proper is the first of them. */
static __always_inline int has_route6(struct __sk_buff *skb) {
  am_u8 next = 0;
  am_u32 at = 40;
  if (bpf_skb_load_bytes(skb, 6, &next, 1)) return 1;
  for (int i = 0; i < EXTENSIONS_MAX; ++i) {
    am_u8 head[2];
    if (next == NEXTHDR_ROUTING) return 1;
    if (next != NEXTHDR_HOP && next != NEXTHDR_DEST) return 0;
    if (bpf_skb_load_bytes(skb, at, head, sizeof(head))) return 1;
    next = head[0];
    at += ((am_u32)head[1] + 1) * 8;
  }
  return 1;
}

/* Of options the source routes matter; programs have no other use for any. */
static __always_inline int has_options4(am_u8 version_and_words) { return (version_and_words & 15) > 5; }

/* A packet for this host that is bound to another device leaves the host. */
static __always_inline int goes_astray(struct __sk_buff *skb) {
  int leaves = skb->ifindex != LOOPBACK_IFINDEX;
  if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
    am_u32 to[4];
    if (has_route6(skb) || bpf_skb_load_bytes(skb, 24, to, sizeof(to))) return 1;
    return leaves && to[0] == 0 && to[1] == 0 && to[2] == 0 && to[3] == bpf_htonl(1);
  }
  if (skb->protocol == bpf_htons(ETH_P_IP)) {
    am_u8 version_and_words = 0, to = 0;
    if (bpf_skb_load_bytes(skb, 0, &version_and_words, 1) || bpf_skb_load_bytes(skb, 16, &to, 1)) return 1;
    return has_options4(version_and_words) || (leaves && to == 127);
  }
  return 0;
}

#endif
