/* Unix sockets of sessions: connect, and datagrams to a named socket. The hooks came with Linux 6.7;
 * libbpf 1.1 does not know their names, the loader sets the attach types. */
#include "path_walk.bpf.h"
#include "ring.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define SUN_PATH_MAX 108
#define SUN_PATH_OFFSET 2 /* of sun_path in sockaddr_un */

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

/* Absolute and abstract names need no directory: they take the small record. */
struct unix_small {
  struct am_unix rec;
  am_u8 data[SUN_PATH_MAX];
};

struct unix_large {
  struct am_unix rec;
  am_u8 data[AM_PATH_MAX + NAME_MAX + 1 + SUN_PATH_MAX];
  struct path_state path; /* not part of the record */
};

struct unix_name {
  const am_u8 *bytes; /* kernel memory */
  am_u64 length;
  am_u8 first;
};

static __always_inline void read_name(struct bpf_sock_addr *ctx, struct unix_name *name) {
  struct bpf_sock_addr_kern *kern = bpf_cast_to_kern_ctx(ctx);
  am_u64 length = kern->uaddrlen;
  name->bytes = (const am_u8 *)kern->uaddr + SUN_PATH_OFFSET;
  name->length = length > SUN_PATH_OFFSET ? length - SUN_PATH_OFFSET : 0;
  name->first = 0;
  if (name->length > SUN_PATH_MAX) name->length = SUN_PATH_MAX;
  if (name->length) bpf_probe_read_kernel(&name->first, 1, name->bytes);
}

static __always_inline void fill_unix(struct am_unix *rec, struct task_struct *task, am_u64 session,
                                      struct bpf_sock_addr *ctx, am_u16 type) {
  fill_header(&rec->h, task, SOURCE_NETWORK, type, sizeof(*rec));
  rec->h.cgroup_id = session;
  rec->h.flags = AM_F_AS_ASKED | AM_F_REVERSED;
  rec->cwd_len = 0;
  rec->sock_type = ctx->type;
  rec->pad = 0;
}

static __always_inline am_u64 put_name(am_u8 *out, struct unix_name *name) {
  am_u64 length = name->length;
  barrier_var(length);
  if (length > SUN_PATH_MAX) length = SUN_PATH_MAX;
  return bpf_probe_read_kernel(out, length, name->bytes) ? 0 : length;
}

static __always_inline void emit_small(struct bpf_sock_addr *ctx, struct task_struct *task, am_u64 session,
                                       am_u16 type, struct unix_name *name) {
  struct unix_small *s = bpf_ringbuf_reserve(&events, sizeof(*s), 0);
  if (!s) {
    count_lost(type);
    return;
  }
  fill_unix(&s->rec, task, session, ctx, type);
  s->rec.name_len = put_name(s->data, name);
  s->rec.h.size += s->rec.name_len;
  bpf_ringbuf_submit(s, wake_flags());
}

static __always_inline void emit_large(struct bpf_sock_addr *ctx, struct task_struct *task, am_u64 session,
                                       am_u16 type, struct unix_name *name) {
  struct unix_large *s = bpf_ringbuf_reserve(&events, sizeof(*s), 0);
  if (!s) {
    count_lost(type);
    return;
  }
  am_u32 flags = 0;
  fill_unix(&s->rec, task, session, ctx, type);
  struct fs_struct *fs = BPF_CORE_READ(task, fs);
  am_u64 cwd = fs ? walk_path(s->data, &fs->pwd, &s->path, &flags) : 0;
  s->rec.cwd_len = cwd;
  s->rec.name_len = put_name(s->data + cwd, name);
  s->rec.h.flags |= flags;
  s->rec.h.size += cwd + s->rec.name_len;
  bpf_ringbuf_submit(s, wake_flags());
}

static __always_inline void on_unix(struct bpf_sock_addr *ctx, am_u16 type) {
  struct task_struct *task = (void *)bpf_get_current_task();
  am_u64 session = task_ancestor_id(task);
  if (!is_session(session)) return;
  struct unix_name name;
  read_name(ctx, &name);
  if (name.first == '/' || name.first == 0) {
    emit_small(ctx, task, session, type, &name);
  } else {
    emit_large(ctx, task, session, type, &name);
  }
}

SEC("cgroup/connect4")
int connect_unix(struct bpf_sock_addr *ctx) {
  on_unix(ctx, AM_UNIX_CONNECT);
  return 1;
}

SEC("cgroup/sendmsg4")
int sendmsg_unix(struct bpf_sock_addr *ctx) {
  on_unix(ctx, AM_UNIX_SEND);
  return 1;
}
