/* What sessions' sockets do: connect, bind, datagrams without connect, listen. Attached to the
 * instance's base cgroup, so only sockets made in it run these programs. What a session's policy denies
 * fails with EPERM; of bind and listen no rule speaks. */
#include <linux/in.h>

#include <bpf/bpf_endian.h>

#include "ring.bpf.h"

#include "network_judge.bpf.h"
#include "network_packet.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define ECANCELED 125
#define DNS_PORT 53
#define SOCK_RAW 3
#define IPPROTO_ICMPV6 58 /* <netinet/in.h> */

/* TCP connects whose end is not known yet. sockops programs may run in an interrupt, in the middle
 * of any process: who it was is remembered here, by socket cookie. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, am_u64);
  __type(value, struct am_sock);
} flows SEC(".maps");

/* The header for the current task; 0 when it is in no session. Helpers that ask for the current
 * cgroup are refused to sockops before 6.10, reading the task is not. */
static __always_inline int begin(struct am_sock *rec, am_u16 type) {
  struct task_struct *task = (void *)bpf_get_current_task();
  am_u64 id = task_ancestor_id(task);
  if (!is_session(id)) return 0;
  __builtin_memset(rec, 0, sizeof(*rec));
  fill_header(&rec->h, task, SOURCE_NETWORK, type, sizeof(*rec));
  rec->h.cgroup_id = id;
  return 1;
}

static __always_inline void emit(struct am_sock *rec) {
  if (bpf_ringbuf_output(&events, rec, sizeof(*rec), wake_flags())) count_lost(rec->h.type);
}

static __always_inline void put_ipv4(struct am_sock *rec, am_u32 address) {
  rec->family = AF_INET;
  __builtin_memcpy(rec->address, &address, sizeof(address));
}

/* By cookie: so that who gets a query can tell whose it is. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, AM_NET_REDIRECTED_MAX);
  __type(key, am_u64);
  __type(value, struct am_net_redirected);
} net_redirected SEC(".maps");

/* By socket: so that replies come from the server that was asked. */
struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct am_net_redirected);
} net_led SEC(".maps");

static __always_inline void read_address(struct bpf_sock_addr *ctx, int ipv6, am_u8 *address) {
  am_u32 *words = (am_u32 *)address;
  if (ipv6) {
    words[0] = ctx->user_ip6[0];
    words[1] = ctx->user_ip6[1];
    words[2] = ctx->user_ip6[2];
    words[3] = ctx->user_ip6[3];
  } else {
    words[0] = ctx->user_ip4;
  }
}

static __always_inline void write_ip6(struct bpf_sock_addr *ctx, const am_u8 *address) {
  const am_u32 *words = (const am_u32 *)address;
  ctx->user_ip6[0] = words[0];
  ctx->user_ip6[1] = words[1];
  ctx->user_ip6[2] = words[2];
  ctx->user_ip6[3] = words[3];
}

/* Rewrites a destination on port 53. 0: this session, or this family of it, is not led anywhere, or it could
 * not be remembered what the program had asked for. */
static __always_inline int lead_to_resolver(struct bpf_sock_addr *ctx, struct am_net_session *session,
                                            const struct am_sock *rec, int ipv6) {
  am_u16 port = ipv6 ? session->port6 : session->port4;
  if (!port || !ctx->sk || (session->flags & AM_NET_SESSION_CLOSED)) return 0;
  struct am_net_redirected led = {
      .cgroup_id = rec->h.cgroup_id, .family = rec->family, .port = rec->port, .pid = rec->h.pid};
  __builtin_memcpy(led.server, rec->address, sizeof(led.server));
  struct am_net_redirected *own = bpf_sk_storage_get(&net_led, ctx->sk, &led, BPF_SK_STORAGE_GET_F_CREATE);
  if (!own) return 0;
  *own = led;
  if (bpf_map_update_elem(&net_redirected, &rec->cookie, &led, BPF_ANY)) return 0;
  if (ipv6) {
    am_u8 resolver[16];
    __builtin_memcpy(resolver, session->resolver6, sizeof(resolver));
    write_ip6(ctx, resolver);
  } else {
    am_u32 resolver;
    __builtin_memcpy(&resolver, session->resolver4, sizeof(resolver));
    ctx->user_ip4 = resolver;
  }
  ctx->user_port = bpf_htons(port);
  return 1;
}

static __always_inline void judge(struct bpf_sock_addr *ctx, struct am_sock *rec, int ipv6) {
  struct am_net_session *session = net_session_of(rec->h.cgroup_id);
  if (!session) return;
  int dns = rec->port == DNS_PORT && (rec->protocol == IPPROTO_TCP || rec->protocol == IPPROTO_UDP);
  if (dns && lead_to_resolver(ctx, session, rec, ipv6)) {
    rec->verdict = AM_VERDICT_LED;
    return;
  }
  struct net_destination to = {.family = rec->family, .port = rec->port};
  __builtin_memcpy(to.address, rec->address, sizeof(to.address));
  to.protocol = rec->protocol == IPPROTO_TCP ? AM_NET_TCP : rec->protocol == IPPROTO_UDP ? AM_NET_UDP : 0;
  normalise(&to);
  struct net_verdict verdict = {};
  judge_destination(session, rec->h.cgroup_id, &to, &verdict);
  rec->verdict = verdict.verdict;
  rec->layer = verdict.layer;
  rec->policy = verdict.policy;
  rec->rule = verdict.rule;
}

/* 1 = go on. Where an outcome follows or the record is the outcome, the names are not merely asked for. */
static __always_inline int on_address(struct bpf_sock_addr *ctx, am_u16 type, int ipv6) {
  struct am_sock rec;
  if (!begin(&rec, type)) return 1;
  rec.family = ipv6 ? AF_INET6 : AF_INET;
  read_address(ctx, ipv6, rec.address);
  rec.port = bpf_ntohs((am_u16)ctx->user_port);
  rec.protocol = ctx->protocol;
  rec.cookie = bpf_get_socket_cookie(ctx);
  if (type != AM_BIND) judge(ctx, &rec, ipv6);
  if (rec.verdict != AM_VERDICT_DENIED) {
    if (type == AM_CONNECT && rec.protocol == IPPROTO_TCP) {
      bpf_map_update_elem(&flows, &rec.cookie, &rec, BPF_ANY);
    } else {
      rec.h.flags = AM_F_AS_ASKED;
    }
  }
  emit(&rec);
  return rec.verdict != AM_VERDICT_DENIED;
}

/* Also for the connect that a send with MSG_FASTOPEN implies. */
SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx) { return on_address(ctx, AM_CONNECT, 0); }

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx) { return on_address(ctx, AM_CONNECT, 1); }

/* Runs for datagrams that name their destination; those of a connected socket need not. */
SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx) { return on_address(ctx, AM_SEND, 0); }

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx) { return on_address(ctx, AM_SEND, 1); }

SEC("cgroup/bind4")
int bind4(struct bpf_sock_addr *ctx) { return on_address(ctx, AM_BIND, 0); }

SEC("cgroup/bind6")
int bind6(struct bpf_sock_addr *ctx) { return on_address(ctx, AM_BIND, 1); }

/* What comes from the resolver is shown as coming from the server that was asked. On an IPv6 socket that
 * spoke IPv4, both are in the mapped form. */
static __always_inline void show_server(struct bpf_sock_addr *ctx, int ipv6) {
  if (!net_enforce || !ctx->sk) return;
  struct am_net_redirected *led = bpf_sk_storage_get(&net_led, ctx->sk, 0, 0);
  if (!led) return;
  struct am_net_session *session = net_session_of(led->cgroup_id);
  if (!session || session->cgroup_id != led->cgroup_id) return;
  am_u16 port = bpf_ntohs((am_u16)ctx->user_port);
  am_u32 from[4] = {}, v4, v6[4];
  read_address(ctx, ipv6, (am_u8 *)from);
  __builtin_memcpy(&v4, session->resolver4, sizeof(v4));
  __builtin_memcpy(v6, session->resolver6, sizeof(v6));
  int mapped = ipv6 && from[0] == 0 && from[1] == 0 && from[2] == bpf_htonl(0xffff);
  int ours = ipv6 && !mapped ? port == session->port6 && from[0] == v6[0] && from[1] == v6[1] &&
                                   from[2] == v6[2] && from[3] == v6[3]
                             : port == session->port4 && from[mapped ? 3 : 0] == v4;
  if (!ours || !port) return;
  am_u32 server[4];
  __builtin_memcpy(server, led->server, sizeof(server));
  if (!ipv6) {
    if (led->family != AF_INET) return;
    ctx->user_ip4 = server[0];
  } else {
    if (led->family == AF_INET) {
      server[3] = server[0];
      server[0] = server[1] = 0;
      server[2] = bpf_htonl(0xffff);
    }
    write_ip6(ctx, (am_u8 *)server);
  }
  ctx->user_port = bpf_htons(led->port);
}

SEC("cgroup/recvmsg4")
int recvmsg4(struct bpf_sock_addr *ctx) {
  show_server(ctx, 0);
  return 1;
}

SEC("cgroup/recvmsg6")
int recvmsg6(struct bpf_sock_addr *ctx) {
  show_server(ctx, 1);
  return 1;
}

SEC("cgroup/getpeername4")
int getpeername4(struct bpf_sock_addr *ctx) {
  show_server(ctx, 0);
  return 1;
}

SEC("cgroup/getpeername6")
int getpeername6(struct bpf_sock_addr *ctx) {
  show_server(ctx, 1);
  return 1;
}

/* Runs for inet sockets only. What is refused: all of whose traffic no hook above would see. */
SEC("cgroup/sock_create")
int sock_create(struct bpf_sock *ctx) {
  struct am_sock rec;
  if (!begin(&rec, AM_SOCKET)) return 1;
  struct am_net_session *session = net_session_of(rec.h.cgroup_id);
  if (!session) return 1;
  rec.protocol = ctx->protocol;
  int stream = rec.protocol == IPPROTO_TCP || rec.protocol == IPPROTO_UDP || rec.protocol == IPPROTO_UDPLITE;
  int echo = rec.protocol == IPPROTO_ICMP || rec.protocol == IPPROTO_ICMPV6;
  int raw = ctx->type == SOCK_RAW || !(stream || echo);
  if (!raw && !echo) return 1;
  if (!(session->flags & (raw ? AM_NET_SESSION_RAW : AM_NET_SESSION_ECHO))) return 1;
  rec.family = ctx->family;
  rec.port = ctx->type;
  rec.verdict = AM_VERDICT_DENIED;
  rec.policy = session->policy;
  rec.rule = AM_NET_BY_KIND;
  emit(&rec);
  return 0;
}

/* Each packet of a session's sockets. What was judged is where the program sends to; options of a socket, or of
 * one message, send the packet elsewhere. */
SEC("cgroup_skb/egress")
int egress(struct __sk_buff *skb) {
  am_u64 id = bpf_skb_ancestor_cgroup_id(skb, session_level);
  struct am_net_session *session = id ? net_session_of(id) : 0;
  if (!session || !(session->flags & AM_NET_SESSION_RAW) || !goes_astray(skb)) return 1;
  struct am_sock rec;
  int own = begin(&rec, AM_SEND);
  /* Sent later, in the middle of any process. */
  if (!own || rec.h.cgroup_id != id) {
    count_lost(AM_SEND);
    return 0;
  }
  int ipv6 = skb->protocol == bpf_htons(ETH_P_IPV6);
  rec.family = ipv6 ? AF_INET6 : AF_INET;
  if (ipv6) {
    bpf_skb_load_bytes(skb, 24, rec.address, 16);
  } else {
    bpf_skb_load_bytes(skb, 16, rec.address, 4);
  }
  rec.verdict = AM_VERDICT_DENIED;
  rec.policy = session->policy;
  rec.rule = AM_NET_BY_ROUTE;
  emit(&rec);
  return 0;
}

static __always_inline void emit_result(struct bpf_sock_ops *ctx, int error) {
  am_u64 cookie = bpf_get_socket_cookie(ctx);
  struct am_sock *flow = bpf_map_lookup_elem(&flows, &cookie);
  if (!flow) return;
  struct am_sock_result rec = {.sock = *flow, .error = error};
  rec.sock.h.type = AM_SOCK_RESULT;
  rec.sock.h.size = sizeof(rec);
  rec.sock.h.boot_ns = bpf_ktime_get_boot_ns();
  if (bpf_ringbuf_output(&events, &rec, sizeof(rec), wake_flags())) count_lost(AM_SOCK_RESULT);
  bpf_map_delete_elem(&flows, &cookie);
}

static __always_inline int socket_error(struct bpf_sock_ops *ctx) {
  struct bpf_sock *sk = ctx->sk;
  struct sock *full = sk ? (struct sock *)bpf_skc_to_tcp_sock(sk) : 0;
  int error = full ? BPF_CORE_READ(full, sk_err) : 0;
  return error ? error : ECANCELED; /* closed by the program before there was an answer */
}

/* Runs in the process that calls listen(2), after it succeeded. */
static __always_inline void on_listen(struct bpf_sock_ops *ctx) {
  struct am_sock rec;
  if (!begin(&rec, AM_LISTEN)) return;
  if (ctx->family == AF_INET6) {
    am_u32 *words = (am_u32 *)rec.address;
    rec.family = AF_INET6;
    words[0] = ctx->local_ip6[0];
    words[1] = ctx->local_ip6[1];
    words[2] = ctx->local_ip6[2];
    words[3] = ctx->local_ip6[3];
  } else {
    put_ipv4(&rec, ctx->local_ip4);
  }
  rec.port = ctx->local_port;
  rec.protocol = IPPROTO_TCP;
  rec.cookie = bpf_get_socket_cookie(ctx);
  emit(&rec);
}

SEC("sockops")
int on_sockops(struct bpf_sock_ops *ctx) {
  switch (ctx->op) {
    case BPF_SOCK_OPS_TCP_CONNECT_CB:
      bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
      break;
    case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
      emit_result(ctx, 0);
      break;
    case BPF_SOCK_OPS_STATE_CB:
      if (ctx->args[0] == BPF_TCP_SYN_SENT && ctx->args[1] == BPF_TCP_CLOSE) emit_result(ctx, socket_error(ctx));
      break;
    case BPF_SOCK_OPS_TCP_LISTEN_CB:
      on_listen(ctx);
      break;
  }
  return 1;
}
