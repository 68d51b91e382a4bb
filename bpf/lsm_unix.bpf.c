/* Unix sockets that a session's processes connect or send to. What is judged is the object that the kernel is about to
 * reach, by the path that it was bound to and where that is now, or by its abstract name: links, other mounts and
 * names that are swapped meanwhile lead to the same. */
#include "lsm_name.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define SUN_PATH_OFFSET 2 /* in sockaddr_un */
#define SUN_PATH_MAX 108
#define SOCK_DGRAM 2
#define TCP_LISTEN 10 /* <net/tcp_states.h> */

/* 0: nobody could reach it by a name; a pair, or one that is handed on by descriptor. */
static __always_inline int name_of_socket(struct lsm_scratch *s, struct unix_sock *peer) {
  struct unix_address *address = BPF_CORE_READ(peer, addr);
  const am_u8 *name;
  am_u64 length;
  s->deep = 0;
  if (!address) return 0;
  if (BPF_CORE_READ(peer, path.dentry)) {
    lsm_name_of_path(s, (void *)peer + bpf_core_field_offset(struct unix_sock, path));
    return 1;
  }
  length = (am_u32)BPF_CORE_READ(address, len);
  if (length <= SUN_PATH_OFFSET) return 0;
  name = (const am_u8 *)address + bpf_core_field_offset(struct unix_address, name) + SUN_PATH_OFFSET;
  length -= SUN_PATH_OFFSET;
  barrier_var(length);
  if (length > SUN_PATH_MAX || bpf_probe_read_kernel(s->text_of_name, length, name)) s->deep = 1;
  s->text_of_name[0] = '@'; /* in place of the NUL */
  s->name_from = 0;
  s->name_count = length;
  return 1;
}

/* Whoever made it confined itself: rules are about what lies outside of the session. A socket that accept(2) returns was
 * made by its client, so of connections only those that listen count. */
static __always_inline int is_own(struct sock *peer, am_u64 session) {
  am_u32 zero = 0;
  struct am_lsm_config *config = bpf_map_lookup_elem(&lsm_config, &zero);
  if (!config) return 0;
  if (BPF_CORE_READ(peer, sk_type) != SOCK_DGRAM && BPF_CORE_READ(peer, __sk_common.skc_state) != TCP_LISTEN) return 0;
  return cgroup_ancestor_id(BPF_CORE_READ(peer, sk_cgrp_data.cgroup), config->session_level) == session;
}

static __always_inline int judge_socket(struct sock *peer, am_u32 asked) {
  am_u64 session = lsm_session();
  struct lsm_scratch *s;
  int refused = 0;
  if (!session || !peer || is_own(peer, session)) return 0;
  s = lsm_take(session);
  if (!s) return -EACCES;
  s->asked = asked;
  s->implied = 0;
  if (name_of_socket(s, (struct unix_sock *)peer)) refused = lsm_decide(s);
  if (refused) {
    s->rec.kind = asked & OP_UNIX_CONNECT ? KIND_UNIX_CONNECT : KIND_UNIX_SEND;
    s->rec.open_flags = BPF_CORE_READ(peer, sk_type) == SOCK_DGRAM;
    lsm_tell_name(s);
  }
  lsm_give_back(s);
  return refused ? -EACCES : 0;
}

/* Connecting a datagram socket and sending on it are one hook. Where the call does not say which it is, both are
 * asked. */
static __always_inline am_u32 datagram_operations(struct sock *from, struct sock *to) {
  /* What goes to the socket that it is connected to is asked again: the policy may have changed. */
  if ((am_u64)BPF_CORE_READ((struct unix_sock *)from, peer) == (am_u64)to) return OP_UNIX_CONNECT;
#ifdef __TARGET_ARCH_x86
  struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
  am_u64 call = BPF_CORE_READ(regs, orig_ax);
  if (call == 42) return OP_UNIX_CONNECT;                              /* connect */
  if (call == 44 || call == 46 || call == 307) return OP_UNIX_SENDTO; /* sendto, sendmsg, sendmmsg */
#endif
  return OP_UNIX_CONNECT | OP_UNIX_SENDTO;
}

SEC("lsm/unix_stream_connect")
int BPF_PROG(on_unix_stream_connect, struct sock *sock, struct sock *other, struct sock *newsk, int ret) {
  if (ret) return ret < 0 ? ret : -EACCES;
  return judge_socket(other, OP_UNIX_CONNECT);
}

SEC("lsm/unix_may_send")
int BPF_PROG(on_unix_may_send, struct socket *sock, struct socket *other, int ret) {
  struct sock *from, *to;
  if (ret) return ret < 0 ? ret : -EACCES;
  from = BPF_CORE_READ(sock, sk);
  to = BPF_CORE_READ(other, sk);
  return judge_socket(to, datagram_operations(from, to));
}
