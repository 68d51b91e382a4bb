/* What sessions' sockets do: connect, bind, datagrams without connect, listen. Attached to the
 * instance's base cgroup, so only sockets made in it run these programs; they always allow. */
#include <linux/in.h>

#include <bpf/bpf_endian.h>

#include "ring.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define AF_INET 2 /* <sys/socket.h> */
#define AF_INET6 10
#define ECANCELED 125

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

/* Where an outcome follows or the record is the outcome, the names are not merely asked for. */
static __always_inline void on_address(struct bpf_sock_addr *ctx, am_u16 type, int ipv6) {
  struct am_sock rec;
  if (!begin(&rec, type)) return;
  if (ipv6) {
    am_u32 *words = (am_u32 *)rec.address;
    rec.family = AF_INET6;
    words[0] = ctx->user_ip6[0];
    words[1] = ctx->user_ip6[1];
    words[2] = ctx->user_ip6[2];
    words[3] = ctx->user_ip6[3];
  } else {
    put_ipv4(&rec, ctx->user_ip4);
  }
  rec.port = bpf_ntohs((am_u16)ctx->user_port);
  rec.protocol = ctx->protocol;
  rec.cookie = bpf_get_socket_cookie(ctx);
  if (type == AM_CONNECT && rec.protocol == IPPROTO_TCP) {
    bpf_map_update_elem(&flows, &rec.cookie, &rec, BPF_ANY);
  } else {
    rec.h.flags = AM_F_AS_ASKED;
  }
  emit(&rec);
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx) {
  on_address(ctx, AM_CONNECT, 0);
  return 1;
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx) {
  on_address(ctx, AM_CONNECT, 1);
  return 1;
}

/* Runs for datagrams on sockets that are not connected only. */
SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx) {
  on_address(ctx, AM_SEND, 0);
  return 1;
}

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx) {
  on_address(ctx, AM_SEND, 1);
  return 1;
}

SEC("cgroup/bind4")
int bind4(struct bpf_sock_addr *ctx) {
  on_address(ctx, AM_BIND, 0);
  return 1;
}

SEC("cgroup/bind6")
int bind6(struct bpf_sock_addr *ctx) {
  on_address(ctx, AM_BIND, 1);
  return 1;
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
