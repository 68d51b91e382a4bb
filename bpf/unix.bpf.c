/* Unix sockets of sessions: connect, and datagrams to a named socket. The hooks came with Linux 6.7;
 * libbpf 1.1 does not know their names, the loader sets the attach types.
 *
 * In a session whose policy stops some of them, a call needs a permit of the daemon, which has looked its name
 * up and judged what that leads to. The name is then replaced by one that means just that and that nobody in the
 * session can change, so that it does not matter what other threads do meanwhile. */
#include "path_walk.bpf.h"
#include "ring.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define SUN_PATH_MAX AM_UNIX_NAME_MAX
#define SUN_PATH_OFFSET 2 /* of sun_path in sockaddr_un */

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;
extern int bpf_sock_addr_set_sun_path(struct bpf_sock_addr_kern *sa_kern, const am_u8 *sun_path,
                                      am_u32 sun_path__sz) __ksym;

#define EACCES 13

/* Sessions in which a call needs a permit, by cgroup. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, AM_SESSIONS_MAX);
  __type(key, am_u64);
  __type(value, am_u32);
} unix_judged SEC(".maps");

/* By thread. One that has no room any more is a call that is refused. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 4096);
  __type(key, am_u32);
  __type(value, struct am_unix_permit);
} unix_permits SEC(".maps");

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
  rec->verdict = bpf_map_lookup_elem(&unix_judged, &session) ? AM_VERDICT_DENIED : AM_VERDICT_NONE;
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

static __always_inline void record(struct bpf_sock_addr *ctx, struct task_struct *task, am_u64 session,
                                   am_u16 type) {
  struct unix_name name;
  read_name(ctx, &name);
  if (name.first == '/' || name.first == 0) {
    emit_small(ctx, task, session, type, &name);
  } else {
    emit_large(ctx, task, session, type, &name);
  }
}

/* The permit has one use less. */
static __always_inline void use_up(struct am_unix_permit *permit, am_u32 thread) {
  if (permit->uses > 1) {
    --permit->uses;
  } else if (permit->after) {
    permit->uses = 1;
    permit->error = permit->after;
    permit->after = 0;
  } else {
    bpf_map_delete_elem(&unix_permits, &thread);
  }
}

/* Not recorded here: who gave the permit has recorded it. 0 = there is none; else what the hook answers. */
static __always_inline int use_permit(struct bpf_sock_addr *ctx, struct task_struct *task, am_u64 session,
                                      int *answer) {
  am_u32 thread = BPF_CORE_READ(task, pid);
  struct am_unix_permit *permit = bpf_map_lookup_elem(&unix_permits, &thread);
  if (!permit || permit->cgroup_id != session || permit->until_ns < bpf_ktime_get_boot_ns()) return 0;
  if (permit->type && permit->type != ctx->type) return 0;
  am_u32 error = permit->error, length = permit->length;
  if (!error) {
    if (length < 1 || length > AM_UNIX_NAME_MAX) return 0;
    if (bpf_sock_addr_set_sun_path(bpf_cast_to_kern_ctx(ctx), permit->name, length)) return 0;
    *answer = 1;
  } else {
    bpf_set_retval(error > 4095 ? -EACCES : -(int)error);
    *answer = 0;
  }
  use_up(permit, thread);
  return 1;
}

/* 1 = go on. */
static __always_inline int on_unix(struct bpf_sock_addr *ctx, am_u16 type) {
  struct task_struct *task = (void *)bpf_get_current_task();
  am_u64 session = task_ancestor_id(task);
  if (!is_session(session)) return 1;
  if (!bpf_map_lookup_elem(&unix_judged, &session)) {
    record(ctx, task, session, type);
    return 1;
  }
  int answer = 0;
  if (use_permit(ctx, task, session, &answer)) return answer;
  record(ctx, task, session, type);
  bpf_set_retval(-EACCES);
  return 0;
}

SEC("cgroup/connect4")
int connect_unix(struct bpf_sock_addr *ctx) { return on_unix(ctx, AM_UNIX_CONNECT); }

SEC("cgroup/sendmsg4")
int sendmsg_unix(struct bpf_sock_addr *ctx) { return on_unix(ctx, AM_UNIX_SEND); }
