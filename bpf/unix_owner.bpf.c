/* Which unix sockets are served from inside of sessions, and by which. */
#include "common.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define SUN_PATH_OFFSET 2 /* of sun_path in sockaddr_un */
#define SUN_PATH_MAX 108
#define SOCK_DGRAM 2
#define TCP_LISTEN 10 /* <net/tcp_states.h> */

/* One am_own_socket for each. A socket that accept(2) returns has the name of the listening one and was made by its client:
 * of connections only those that listen count. Network namespace of the reader. */
SEC("iter/unix")
int list_own(struct bpf_iter__unix *ctx) {
  struct unix_sock *peer = ctx->unix_sk;
  struct sock *sock = (struct sock *)peer;
  struct am_own_socket row = {};
  if (!peer) return 0;
  if (BPF_CORE_READ(sock, sk_type) != SOCK_DGRAM && BPF_CORE_READ(sock, __sk_common.skc_state) != TCP_LISTEN)
    return 0;
  row.type = BPF_CORE_READ(sock, sk_type);
  row.cgroup_id = cgroup_ancestor_id(BPF_CORE_READ(sock, sk_cgrp_data.cgroup), session_level);
  struct unix_address *address = BPF_CORE_READ(peer, addr);
  if (!row.cgroup_id || !address) return 0;
  struct dentry *dentry = BPF_CORE_READ(peer, path.dentry);
  if (dentry) {
    row.ino = BPF_CORE_READ(dentry, d_inode, i_ino);
    row.dev = BPF_CORE_READ(dentry, d_inode, i_sb, s_dev);
  } else {
    am_u64 length = (am_u32)BPF_CORE_READ(address, len);
    if (length <= SUN_PATH_OFFSET + 1) return 0;
    length -= SUN_PATH_OFFSET + 1;
    barrier_var(length);
    if (length > SUN_PATH_MAX) return 0;
    row.name_len = length;
    const am_u8 *name = (const am_u8 *)address + bpf_core_field_offset(struct unix_address, name) + SUN_PATH_OFFSET + 1;
    if (bpf_probe_read_kernel(row.name, length, name)) return 0;
  }
  bpf_seq_write(ctx->meta->seq, &row, sizeof(row));
  return 0;
}
