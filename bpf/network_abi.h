/* What the network programs and the daemon share in maps: the rules of policies on destinations, and which
 * session has which policy. docs/decisions/0051-network-rules-in-one-trie.md.
 *
 * A policy has a number that is never used again. All that belongs to it is written before a session points
 * to it, and nothing of it is changed until no program can still look at it. */
#ifndef AGENTMON_BPF_NETWORK_ABI_H
#define AGENTMON_BPF_NETWORK_ABI_H

#include "event_abi.h"

#define AM_NET_RULES_MAX 524288u    /* of all policies and opened addresses */
#define AM_NET_PREFIXES_MAX 524288u /* of all policies */
#define AM_NET_LIST_MAX 4096u       /* rules that one address can meet */
#define AM_NET_OPENED_MAX 131072u   /* addresses that a name has opened, in all sessions */
#define AM_NET_REDIRECTED_MAX 32768u

/* One condition of a rule. A list of them holds the layers one after another, each in the order of its file:
 * the first that matches decides for its layer, and a layer that denies decides for all. */
struct am_net_rule {
  am_u64 until_ns; /* CLOCK_BOOTTIME; 0 = always. Of an address that a name has opened */
  am_u32 policy;   /* whose it is: another one means that the list is gone */
  am_u32 rule;     /* index in its layer's file, or AM_NET_BY_* */
  am_u16 low, high;
  am_u8 protocols; /* AM_NET_TCP, AM_NET_UDP; 0 = all, others too */
  am_u8 layer;     /* index in the snapshot */
  am_u8 flags;     /* AM_NET_RULE_* */
  am_u8 pad;
};
#define AM_NET_TCP 1u
#define AM_NET_UDP 2u
#define AM_NET_RULE_DENY 1u
#define AM_NET_RULE_FINAL 2u /* no layer after it has a say */

/* In place of a rule's index. */
#define AM_NET_BY_DEFAULT 0xffffffffu
#define AM_NET_BY_POSTURE 0xfffffffeu /* isolate */
#define AM_NET_BY_FAILURE 0xfffffffdu /* something that must be there is not */
#define AM_NET_BY_KIND 0xfffffffcu    /* a socket whose traffic no hook sees */
#define AM_NET_BY_ROUTE 0xfffffffbu   /* a packet that leads elsewhere than what was judged */

/* Keys of the longest-prefix map: number and family count as the first 64 bits of the prefix. */
struct am_net_key {
  am_u32 prefix_bits;
  am_u32 policy;
  am_u32 family; /* AF_INET: the first four bytes */
  am_u8 address[16];
};

struct am_net_list { /* a run of rules */
  am_u32 first;
  am_u32 count;
};

/* An address that names have opened to one session under one policy; its list is the trie's, and more. */
struct am_net_opened_key {
  am_u64 cgroup_id;
  am_u32 policy;
  am_u32 family;
  am_u8 address[16];
};

/* Changed in place, and the first word of it is what a reload switches. */
struct am_net_session {
  am_u32 policy;
  am_u32 flags; /* AM_NET_SESSION_* */
  am_u64 cgroup_id;
  am_u8 resolver6[16]; /* where port 53 is led; port 0 = nowhere */
  am_u8 resolver4[4];
  am_u16 port4, port6; /* host order */
};
#define AM_NET_SESSION_CLOSED 1u /* its policy could not be written: everything is denied */
#define AM_NET_SESSION_NAMES 2u  /* addresses may have been opened */
#define AM_NET_SESSION_RAW 4u    /* something is denied: no sockets whose traffic no hook sees */
#define AM_NET_SESSION_ECHO 8u   /* and what no rule speaks of is denied: no ping sockets either */

struct am_net_redirected { /* by socket cookie */
  am_u64 cgroup_id;
  am_u8 server[16]; /* that the program named last; as in am_sock */
  am_u16 family;
  am_u16 port; /* host order */
  am_u32 pid;  /* thread-group id of who did */
};

AM_ABI_ASSERT(struct am_net_rule, 24);
AM_ABI_ASSERT(struct am_net_key, 28);
AM_ABI_ASSERT(struct am_net_list, 8);
AM_ABI_ASSERT(struct am_net_opened_key, 32);
AM_ABI_ASSERT(struct am_net_session, 40);
AM_ABI_ASSERT(struct am_net_redirected, 32);

#endif
