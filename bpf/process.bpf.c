/* Every fork, exec and exit of a session's processes, and of trees that are watched where they are.
 * A process outside pays one map look-up per fork, exec and exit, and nothing anywhere else. */
#include "path_walk.bpf.h"
#include "ring.bpf.h"
#include "siphash.h"

char LICENSE[] SEC("license") = "GPL";

const volatile am_u32 page_bytes = 4096;
/* sched_process_exit says since 6.16 whether the last thread exits. */
const volatile am_u8 exit_tells_group_dead = 0;
/* Of SipHash; random, the daemon's own. */
const volatile am_u64 permit_key[2] = {0, 0};

/* These are written by the daemon while the programs run. */
volatile am_u32 watch_count = 0; /* trees in `watched` */
volatile am_u32 collecting = 0;  /* record the edges of every fork and exit on the host */
volatile am_u32 verifying = 0;   /* there are, or were, sessions in `verified` */
am_u64 edges_lost = 0;

/* Both are preallocated: what is allocated in a hook may fail under a burst of forks. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 16384);
  __type(key, am_u32);   /* thread-group id */
  __type(value, am_u32); /* number of the watched tree */
} watched SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 16384);   /* the daemon empties it every few milliseconds */
  __type(key, struct am_key);   /* child */
  __type(value, struct am_key); /* parent */
} edges SEC(".maps");

/* Where there is no group_dead argument, two last threads may both see live == 0. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 4096);
  __type(key, struct am_key);
  __type(value, am_u8);
} exited SEC(".maps");

/* What the daemon has judged of an exec, before it lets it go on. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, AM_PERMITS_MAX);
  __type(key, am_u32); /* thread that asked, in the first pid namespace */
  __type(value, struct am_permit);
} permits SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, AM_SESSIONS_MAX);
  __type(key, am_u64); /* cgroup id */
  __type(value, struct am_verified);
} verified SEC(".maps");

#define ARGV_STEP 4096 /* no page is smaller */
#define ARGV_LOOKED_AT (AM_ARGV_MAX + AM_HEAD_MAX)

struct exec_scratch {
  struct am_exec rec;
  am_u8 data[3 * AM_PATH_MAX + ARGV_LOOKED_AT + ARGV_STEP];
  /* Not part of the record: here because the verifier does not follow what is in a map. */
  struct path_state path;
  am_u64 argv_from;
  am_u64 argv_length;
  am_u64 argv_copied;
  am_u64 argv_at; /* where in data */
  am_u8 word[AM_PATH_MAX];
};

/* One element per CPU: a per-CPU map cannot hold values of this size. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, am_u32);
  __type(value, struct exec_scratch);
} scratch SEC(".maps");

static __always_inline am_u64 watched_owner(am_u32 tgid) {
  am_u32 *number = bpf_map_lookup_elem(&watched, &tgid);
  return number ? AM_WATCHED | *number : 0;
}

/* Whose records the current task's are: a session's, a watched tree's, nobody's (0). */
static __always_inline am_u64 current_owner(am_u32 tgid) {
  am_u64 id = bpf_get_current_ancestor_cgroup_id(session_level);
  if (is_session(id)) return id;
  return watch_count ? watched_owner(tgid) : 0;
}

static __always_inline void process_key(struct am_key *key, struct task_struct *task) {
  key->start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
  key->pid = BPF_CORE_READ(task, tgid);
  key->pad = 0;
}

static __always_inline void record_edge(struct am_key *child, struct am_key *parent) {
  /* int: before 6.4 the upper half of the result is undefined. */
  int error = bpf_map_update_elem(&edges, child, parent, BPF_NOEXIST);
  if (error && error != -17 /* EEXIST */) __sync_fetch_and_add(&edges_lost, 1);
}

/* fork */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child) {
  am_u32 child_pid = child->tgid;
  if ((am_u32)child->pid != child_pid) return 0;
  if (collecting) {
    struct am_key child_key, parent_key;
    process_key(&child_key, child);
    process_key(&parent_key, parent);
    record_edge(&child_key, &parent_key);
  }
  am_u64 owner = current_owner(parent->tgid);
  if (owner & AM_WATCHED) {
    am_u32 number = owner;
    if (bpf_map_update_elem(&watched, &child_pid, &number, BPF_ANY)) count_lost(AM_FORK);
  } else if (!owner && child->cgroups != parent->cgroups) {
    /* Born into a session from outside (CLONE_INTO_CGROUP). */
    am_u64 id = task_ancestor_id(child);
    if (is_session(id)) owner = id;
  }
  if (!owner) return 0;
  struct am_fork *rec = bpf_ringbuf_reserve(&events, sizeof(*rec), 0);
  if (!rec) {
    count_lost(AM_FORK);
    return 0;
  }
  fill_header(&rec->h, parent, SOURCE_PROCESS, AM_FORK, sizeof(*rec));
  rec->h.cgroup_id = owner;
  rec->child_start_ns = child->start_boottime;
  rec->child_pid = child_pid;
  rec->pad = 0;
  bpf_ringbuf_submit(rec, wake_flags());
  return 0;
}

/* exec */

struct argv_copy {
  am_u8 *out;
  struct exec_scratch *s;
};

static long copy_argv_page(am_u32 index, struct argv_copy *copy) {
  struct exec_scratch *s = copy->s;
  am_u64 at = s->argv_copied;
  am_u64 length = s->argv_length;
  if (at >= length || at >= ARGV_LOOKED_AT) return 1;
  am_u64 step = ARGV_STEP - ((s->argv_from + at) & (ARGV_STEP - 1));
  if (step > length - at) step = length - at;
  barrier_var(step);
  if (step > ARGV_STEP) return 1;
  if (bpf_probe_read_user(copy->out + at, step, (void *)(s->argv_from + at))) return 1;
  s->argv_copied = at + step;
  return 0;
}

/* Copies up to ARGV_LOOKED_AT bytes of the argument area; what cannot be read is cut off. */
static __always_inline am_u64 copy_argv(struct exec_scratch *s, am_u8 *out, am_u64 from, am_u64 length) {
  barrier_var(length);
  if (length > ARGV_LOOKED_AT) length = ARGV_LOOKED_AT;
  if (!bpf_probe_read_user(out, length, (void *)from)) return length;
  struct argv_copy copy = {.out = out, .s = s};
  s->argv_from = from;
  s->argv_length = length;
  s->argv_copied = 0;
  bpf_loop(ARGV_LOOKED_AT / ARGV_STEP + 1, copy_argv_page, &copy, 0);
  return s->argv_copied;
}

static __always_inline void fill_exec(struct exec_scratch *s, struct task_struct *task,
                                      struct linux_binprm *bprm) {
  struct am_exec *rec = &s->rec;
  am_u32 flags = AM_F_REVERSED;
  am_u64 at = walk_path(s->data, &bprm->file->f_path, &s->path, &flags);
  rec->exe_len = at;
  am_u64 length = walk_path(s->data + at, &task->fs->pwd, &s->path, &flags);
  rec->cwd_len = length;
  at += length;
  long copied = bpf_probe_read_kernel_str(s->data + at, AM_PATH_MAX, bprm->filename);
  length = copied > 0 ? copied - 1 : 0;
  barrier_var(length);
  if (length > AM_PATH_MAX - 1) length = AM_PATH_MAX - 1;
  rec->filename_len = length;
  at += length;
  am_u64 from = task->mm->arg_start;
  am_u64 total = task->mm->arg_end - from;
  rec->argv_total = total;
  length = copy_argv(s, s->data + at, from, total);
  s->argv_at = at;
  s->argv_copied = length;
  if (length > AM_ARGV_MAX) length = AM_ARGV_MAX;
  rec->argv_len = length;
  if (length < total) flags |= AM_F_ARGV_CUT;
  rec->argc = bprm->argc;
  rec->h.flags = flags;
  rec->h.size = sizeof(*rec) + at + length;
}

struct sip_run {
  struct exec_scratch *s;
  am_u64 at;
  struct am_sip sip;
};

static long add_word(am_u32 index, struct sip_run *run) {
  am_u64 at = run->at;
  barrier_var(at);
  if (at > sizeof(run->s->data) - 8) return 1;
  am_sip_word(&run->sip, *(am_u64 *)(run->s->data + at));
  run->at = at + 8;
  return 0;
}

static __noinline am_u64 hash_data(struct exec_scratch *s, am_u64 at, am_u64 length) {
  struct sip_run run = {.s = s, .at = at};
  if (!s) return 0;
  am_sip_start(&run.sip, permit_key[0], permit_key[1]);
  bpf_loop(length / 8, add_word, &run, 0);
  at = run.at;
  barrier_var(at);
  if (at > sizeof(s->data) - 8) return 0;
  return am_sip_end(&run.sip, *(am_u64 *)(s->data + at), length);
}

struct name_search {
  struct exec_scratch *s;
  am_u64 at; /* of a string of the area; at the end: of the string after the name */
  am_u64 name_hash;
  am_u64 name_bytes; /* NUL included */
  am_u64 found;
};

static long compare_string(am_u32 index, struct name_search *search) {
  struct exec_scratch *s = search->s;
  am_u64 at = search->at;
  barrier_var(at);
  if (at > sizeof(s->data) - AM_PATH_MAX) return 1;
  long bytes = bpf_probe_read_kernel_str(s->word, AM_PATH_MAX, s->data + at);
  if (bytes <= 0) return 1;
  search->at = at + bytes;
  if ((am_u64)bytes != search->name_bytes) return 0;
  search->found = hash_data(s, at, bytes - 1) == search->name_hash;
  return search->found;
}

/* A script's area: what each interpreter line has put in front, the file's name as it was asked for, and
 * then all arguments but the first. The bytes before those arguments, 0 = the name is not there. The first
 * place where it stands, and no later one: what somebody slips in behind it cannot pass for a head. */
static __always_inline am_u64 head_of_script(struct exec_scratch *s) {
  am_u64 name_at = s->rec.exe_len + s->rec.cwd_len;
  struct name_search search = {.s = s, .at = s->argv_at, .name_bytes = s->rec.filename_len + 1};
  search.name_hash = hash_data(s, name_at, s->rec.filename_len);
  bpf_loop(16, compare_string, &search, 0);
  return search.found ? search.at - s->argv_at : 0;
}

static __always_inline int is_rest(struct exec_scratch *s, am_u64 skipped, am_u64 bytes, am_u64 hash,
                                   int cut) {
  am_u64 rest = s->rec.argv_total - skipped;
  if (rest < bytes || (rest > bytes && !cut)) return 0;
  if (skipped + bytes > s->argv_copied) return 0;
  return hash_data(s, s->argv_at + skipped, bytes) == hash;
}

static __always_inline int as_judged(struct exec_scratch *s, struct am_permit *permit,
                                     struct linux_binprm *bprm) {
  int cut = permit->flags & AM_PERMIT_CUT;
  if (permit->tgid != s->rec.h.pid) return 0;
  if (permit->flags & AM_PERMIT_ANY) return 1;
  if (bprm->interp == bprm->filename) return is_rest(s, 0, permit->all_bytes, permit->all_hash, cut);
  am_u64 head = head_of_script(s);
  if (!head) return 0;
  if (is_rest(s, head, permit->tail_bytes, permit->tail_hash, cut)) return 1;
  /* A format of binfmt_misc with the flag P leaves the first argument where it is. */
  return (bprm->interp_flags & BINPRM_FLAGS_PRESERVE_ARGV0) &&
         is_rest(s, head, permit->all_bytes, permit->all_hash, cut);
}

/* A file of a mount that the kernel keeps for itself (memfd), without a link: it never had a name, and what was judged
 * was another one. Files that are deleted while they are started are none of these. */
static __always_inline int is_nameless(struct linux_binprm *bprm) {
  struct file *file = BPF_CORE_READ(bprm, file);
  struct vfsmount *vfsmount = BPF_CORE_READ(file, f_path.mnt);
  struct mount *mount = (void *)vfsmount - bpf_core_field_offset(struct mount, mnt);
  return !BPF_CORE_READ(file, f_inode, i_nlink) && (am_u64)BPF_CORE_READ(mount, mnt_ns) >= -4095ull;
}

/* Kills what runs with arguments that nobody has judged, before its first instruction. The flag that says
 * why, or 0. s: null where there is no room to look. */
static __always_inline am_u32 verify_exec(struct exec_scratch *s, am_u64 owner, am_u32 old_pid,
                                          struct linux_binprm *bprm) {
  struct am_verified *session = bpf_map_lookup_elem(&verified, &owner);
  if (!session) return 0;
  am_u32 why = 0;
  struct am_permit *permit = bpf_map_lookup_elem(&permits, &old_pid);
  if (!permit) {
    if (bpf_ktime_get_boot_ns() >= session->lenient_until_ns) why = AM_F_NO_PERMIT;
  } else {
    if (!s || !as_judged(s, permit, bprm)) why = AM_F_ARGV_OTHER;
    if (!(permit->flags & AM_PERMIT_ANY) && is_nameless(bprm)) why = AM_F_NAMELESS;
    bpf_map_delete_elem(&permits, &old_pid);
  }
  if (why) bpf_send_signal(SIGKILL);
  return why;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm) {
  am_u64 owner = current_owner(task->tgid);
  if (!owner) return 0;
  am_u32 cpu = bpf_get_smp_processor_id();
  struct exec_scratch *s = bpf_map_lookup_elem(&scratch, &cpu);
  if (!s) {
    count_lost(AM_EXEC);
    if (verifying) verify_exec(0, owner, old_pid, bprm);
    return 0;
  }
  fill_header(&s->rec.h, task, SOURCE_PROCESS, AM_EXEC, 0);
  s->rec.h.cgroup_id = owner;
  s->rec.ppid = BPF_CORE_READ(task, real_parent, tgid);
  s->rec.parent_start_ns = BPF_CORE_READ(task, real_parent, group_leader, start_boottime);
  s->rec.pad = 0;
  fill_exec(s, task, bprm);
  if (verifying) s->rec.h.flags |= verify_exec(s, owner, old_pid, bprm);
  am_u64 wake = wake_flags();
  am_u64 size = s->rec.h.size;
  barrier_var(size); /* or the compiler compares a copy, which the verifier does not take for a bound */
  if (size > offsetof(struct exec_scratch, path)) size = offsetof(struct exec_scratch, path);
  if (bpf_ringbuf_output(&events, s, size, wake)) count_lost(AM_EXEC);
  return 0;
}

/* exit */

struct thread_sum {
  am_u64 node;
  am_u64 head;
  am_u64 cpu_ns;
};

static long add_thread(am_u32 index, struct thread_sum *sum) {
  if (!sum->node || sum->node == sum->head) return 1;
  struct task_struct *task = (void *)sum->node - bpf_core_field_offset(struct task_struct, thread_node);
  sum->cpu_ns += BPF_CORE_READ(task, se.sum_exec_runtime);
  sum->node = (am_u64)BPF_CORE_READ(task, thread_node.next);
  return 0;
}

/* Run time of threads that were reaped and of those that still stand in the list. */
static __always_inline am_u64 group_cpu_ns(struct task_struct *task) {
  struct signal_struct *signal = task->signal;
  struct thread_sum sum = {.cpu_ns = signal->sum_sched_runtime};
  sum.node = (am_u64)signal->thread_head.next;
  sum.head = (am_u64)signal + bpf_core_field_offset(struct signal_struct, thread_head);
  bpf_loop(65536, add_thread, &sum, 0);
  return sum.cpu_ns;
}

struct child_walk {
  struct am_key parent;
  am_u64 node;
  am_u64 head;
};

static long record_child(am_u32 index, struct child_walk *walk) {
  if (!walk->node || walk->node == walk->head) return 1;
  struct task_struct *child = (void *)walk->node - bpf_core_field_offset(struct task_struct, sibling);
  struct am_key key;
  process_key(&key, child);
  record_edge(&key, &walk->parent);
  am_u64 next = (am_u64)BPF_CORE_READ(child, sibling.next);
  /* Taken off the list under us, it points to itself: begin again. The loop's bound ends it. */
  if (next == walk->node) {
    struct list_head *head = (void *)walk->head;
    next = (am_u64)BPF_CORE_READ(head, next);
  }
  walk->node = next;
  return 0;
}

/* The children of an exiting task are about to get another parent. */
static __always_inline void record_children(struct task_struct *task) {
  struct child_walk walk = {};
  walk.node = (am_u64)task->children.next;
  walk.head = (am_u64)task + bpf_core_field_offset(struct task_struct, children);
  process_key(&walk.parent, task);
  bpf_loop(65536, record_child, &walk, 0);
}

static __always_inline int last_thread(struct task_struct *task, unsigned long long *ctx) {
  if (exit_tells_group_dead) return ctx[1] & 1;
  if (task->signal->live.counter != 0) return 0;
  struct am_key key;
  am_u8 one = 1;
  process_key(&key, task);
  return bpf_map_update_elem(&exited, &key, &one, BPF_NOEXIST) == 0;
}

SEC("tp_btf/sched_process_exit")
int on_exit(unsigned long long *ctx) {
  struct task_struct *task = (void *)ctx[0];
  if (collecting) record_children(task);
  am_u32 tgid = task->tgid;
  am_u64 owner = current_owner(tgid);
  if (owner && verifying) {
    am_u32 tid = task->pid;
    bpf_map_delete_elem(&permits, &tid); /* of an exec that failed */
  }
  if (!owner || !last_thread(task, ctx)) return 0;
  if (owner & AM_WATCHED) bpf_map_delete_elem(&watched, &tgid);
  struct am_exit *rec = bpf_ringbuf_reserve(&events, sizeof(*rec), 0);
  if (!rec) {
    count_lost(AM_EXIT);
    return 0;
  }
  fill_header(&rec->h, task, SOURCE_PROCESS, AM_EXIT, sizeof(*rec));
  rec->h.cgroup_id = owner;
  int status = task->group_leader->exit_code;
  if (task->signal->flags & SIGNAL_GROUP_EXIT) status = task->signal->group_exit_code;
  rec->wait_status = status;
  if ((status & 0x7f) && (status & 0x80)) rec->h.flags = AM_F_CORE;
  rec->cpu_ns = group_cpu_ns(task);
  rec->peak_rss_bytes = (am_u64)task->signal->maxrss * page_bytes;
  rec->pad = 0;
  bpf_ringbuf_submit(rec, wake_flags());
  return 0;
}
