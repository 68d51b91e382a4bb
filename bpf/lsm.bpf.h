/* Verdicts on paths for the hooks of security modules. A process outside of sessions pays one look-up.
 *
 * The object's own path, up to the root of its mount namespace, is judged first. Then the paths under which the
 * inodes above it are known to the policy, where these are others: so a bind mount in a namespace of the agent's
 * own, or a name that somebody outside has changed, leads past nothing. The strictest counts. */
#ifndef AGENTMON_BPF_LSM_BPF_H
#define AGENTMON_BPF_LSM_BPF_H

#include "common.bpf.h"
#include "lsm_abi.h"
#include "path_walk.bpf.h"
#include "siphash.h"

#define EACCES 13
#define SOURCE_LSM 6 /* agentmon.v1.Source */

/* include/uapi/linux/stat.h */
#define S_IFMT 0170000
#define S_IFCHR 0020000
#define S_IFDIR 0040000
#define S_IFREG 0100000

/* agentmon.v1.EventKind and policy::FileOp; the daemon asserts that they are these. */
#include "lsm_numbers.h"

/* The daemon makes these once, pins them, and every object uses them. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, am_u32);
  __type(value, struct am_lsm_config);
} lsm_config SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, AM_SESSIONS_MAX);
  __type(key, am_u64); /* cgroup id */
  __type(value, struct am_lsm_session);
} lsm_sessions SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, AM_LSM_POLICIES_MAX);
  __type(key, am_u32);
  __type(value, struct am_lsm_policy);
} lsm_policies SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, AM_LSM_NODES_MAX);
  __type(key, struct am_lsm_key);
  __type(value, struct am_lsm_node);
} lsm_nodes SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, AM_LSM_ALIASES_MAX);
  __type(key, struct am_lsm_inode);
  __type(value, struct am_lsm_alias);
} lsm_aliases SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, AM_LSM_RING_BYTES);
} lsm_denials SEC(".maps");

/* [0] denials that found no room in the ring, [1] acts refused because no scratch was free. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 2);
  __type(key, am_u32);
  __type(value, am_u64);
} lsm_lost SEC(".maps");

struct am_lsm_hit {
  struct am_lsm_inode inode;
  am_u64 hash;  /* of the path under which it is known */
  am_u32 below; /* segments of the object's path below it */
  am_u32 judged;
};

struct lsm_scratch {
  am_u32 busy;
  am_u32 policy_id;
  struct am_denied rec;
  am_u8 data[2 * AM_PATH_MAX + NAME_MAX + 1];
  /* Not part of the record. */
  struct path_state path;
  struct am_lsm_policy policy;
  struct am_lsm_judge judge;
  struct am_lsm_alias alias;
  struct am_lsm_hit hit[AM_LSM_HITS];
  am_u64 segment[AM_LSM_DEPTH]; /* of the walk, innermost first */
  am_u64 dentry, vfsmount;      /* what the act is on */
  am_u32 hits, count, asked, implied;
  am_u32 through_mounts; /* the walk goes on where a mount ends */
  am_u32 bound;          /* it left a mount whose root is not that of its file system */
  am_u32 deep, internal;
  am_u32 verdict, name_bytes;
  am_u64 name_at;
  am_u8 text[NAME_MAX + 1 + 8]; /* what is hashed */
  am_u8 name[NAME_MAX + 1];     /* the last segment of the path */
  am_u64 affix_hash[2 * AM_LSM_LENGTHS]; /* ends, then starts; 0 = none */
};

/* Several for each CPU: where the kernel may be preempted, so may a program that has one. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 8);
  __type(key, am_u32);
  __type(value, struct lsm_scratch);
} lsm_scratches SEC(".maps");

static __always_inline const struct am_lsm_node *am_lsm_find(am_u32 policy, am_u32 kind, am_u64 hash) {
  struct am_lsm_key key = {.hash = hash, .policy = policy, .kind = kind};
  return bpf_map_lookup_elem(&lsm_nodes, &key);
}

#include "lsm_judge.h"

static __always_inline void count_lsm_lost(am_u32 what) {
  am_u64 *count = bpf_map_lookup_elem(&lsm_lost, &what);
  if (count) __sync_fetch_and_add(count, 1);
}

/* Hashes: SipHash of up to 255 bytes that stand in one of the buffers. Functions that are not static are verified
 * once, and not for each of their callers. */

struct lsm_sip {
  struct lsm_scratch *s;
  struct am_sip sip;
  am_u64 words;
};

static long lsm_word(am_u32 index, struct lsm_sip *run) {
  am_u64 at = index * 8;
  if (index >= run->words || at > NAME_MAX - 7) return 1;
  am_sip_word(&run->sip, *(am_u64 *)(run->s->text + at));
  return 0;
}

/* Of the first bytes of text. */
__noinline am_u64 lsm_hash(struct lsm_scratch *s, am_u64 length) {
  am_u32 zero = 0;
  struct am_lsm_config *config = bpf_map_lookup_elem(&lsm_config, &zero);
  struct lsm_sip run = {.s = s};
  am_u64 at;
  if (!config || !s || length > NAME_MAX) return 0;
  am_sip_start(&run.sip, config->key[0], config->key[1]);
  run.words = length / 8;
  if (run.words) bpf_loop(run.words, lsm_word, &run, 0);
  at = length & ~7ull;
  barrier_var(at);
  if (at > NAME_MAX - 7) return 0;
  return am_sip_end(&run.sip, *(am_u64 *)(s->text + at), length);
}

/* Walks */

static __always_inline void note_inode(struct lsm_scratch *s, struct dentry *dentry) {
  struct inode *inode = BPF_CORE_READ(dentry, d_inode);
  struct am_lsm_inode key = {.policy = s->policy_id};
  struct am_lsm_alias *alias;
  am_u32 at = s->hits;
  if (!inode || at >= AM_LSM_HITS) return;
  key.ino = BPF_CORE_READ(inode, i_ino);
  key.dev = BPF_CORE_READ(inode, i_sb, s_dev);
  alias = bpf_map_lookup_elem(&lsm_aliases, &key);
  if (!alias) return;
  s->hit[at].inode = key;
  s->hit[at].hash = alias->hash;
  s->hit[at].below = s->count;
  s->hit[at].judged = 0;
  s->hits = at + 1;
}

struct lsm_run {
  struct lsm_scratch *s;
};

static long lsm_step(am_u32 index, struct lsm_run *run) {
  struct lsm_scratch *s = run->s;
  struct dentry *dentry = (void *)s->path.dentry;
  struct vfsmount *vfsmount = (void *)s->path.vfsmount;
  struct dentry *parent = BPF_CORE_READ(dentry, d_parent);
  note_inode(s, dentry);
  if (s->through_mounts && (am_u64)BPF_CORE_READ(vfsmount, mnt_root) == (am_u64)dentry) {
    if (parent != dentry) s->bound = 1;
    return !cross_mount(&s->path);
  }
  if (parent == dentry) return 1;
  am_u64 length = BPF_CORE_READ(dentry, d_name.len);
  const unsigned char *name = BPF_CORE_READ(dentry, d_name.name);
  am_u32 count = s->count;
  if (length > NAME_MAX) length = NAME_MAX;
  if (count >= AM_LSM_DEPTH || bpf_probe_read_kernel(s->text, length, name)) {
    s->deep = 1;
    return 1;
  }
  s->segment[count & (AM_LSM_DEPTH - 1)] = lsm_hash(s, length);
  if (!count) {
    bpf_probe_read_kernel(s->name, length, name);
    s->name_bytes = length;
  }
  s->count = count + 1;
  s->path.dentry = (am_u64)parent;
  return 0;
}

/* Hashes of what the name begins and ends with, in the lengths that the policy speaks of. */
static long lsm_affix_step(am_u32 index, struct lsm_run *run) {
  struct lsm_scratch *s = run->s;
  am_u32 at = index & (AM_LSM_LENGTHS - 1);
  am_u32 suffix = index < AM_LSM_LENGTHS;
  am_u64 length = suffix ? s->policy.suffix[at] : s->policy.prefix[at];
  am_u64 bytes = s->name_bytes;
  am_u64 from;
  s->affix_hash[index & (2 * AM_LSM_LENGTHS - 1)] = 0;
  if (!length || length > bytes || length > AM_LSM_AFFIX) return 0;
  from = suffix ? bytes - length : 0;
  barrier_var(from);
  barrier_var(length);
  if (from > NAME_MAX || length > AM_LSM_AFFIX) return 0;
  if (bpf_probe_read_kernel(s->text, length, s->name + from)) return 0;
  s->affix_hash[index & (2 * AM_LSM_LENGTHS - 1)] = lsm_hash(s, length);
  return 0;
}

#define LSM_STEPS (AM_LSM_DEPTH * 2 + 64)

__noinline int lsm_walk(struct lsm_scratch *s, am_u32 through_mounts) {
  struct lsm_run run = {.s = s};
  if (!s) return 0;
  s->path.dentry = s->dentry;
  s->path.vfsmount = s->vfsmount;
  s->through_mounts = through_mounts;
  s->count = s->hits = s->name_bytes = 0;
  if (bpf_loop(LSM_STEPS, lsm_step, &run, 0) >= LSM_STEPS) s->deep = 1;
  if (s->policy.suffix[0] | s->policy.prefix[0]) bpf_loop(2 * AM_LSM_LENGTHS, lsm_affix_step, &run, 0);
  return 0;
}

/* Judging */

struct lsm_matches {
  struct lsm_scratch *s;
  const struct am_lsm_node *node;
  am_u32 index;
};

static long lsm_below_step(am_u32 i, struct lsm_matches *matches) {
  am_lsm_add_below(&matches->s->judge, matches->node, i);
  return 0;
}

static long lsm_node_step(am_u32 i, struct lsm_matches *matches) {
  am_lsm_add_node(&matches->s->judge, matches->node, i, matches->index);
  return 0;
}

static __always_inline void add_below(struct lsm_scratch *s, am_u32 kind, am_u64 hash) {
  struct lsm_matches matches = {.s = s, .node = am_lsm_find(s->policy_id, kind, hash)};
  if (matches.node) bpf_loop(AM_LSM_MATCHES, lsm_below_step, &matches, 0);
}

struct lsm_levels {
  struct lsm_scratch *s;
  am_u64 depth; /* segments of the alias, which come first */
  am_u64 total;
};

/* From the root inwards: index N is the path of the first N segments. */
static long lsm_level_step(am_u32 index, struct lsm_levels *levels) {
  struct lsm_scratch *s = levels->s;
  struct lsm_matches matches = {.s = s, .index = index};
  if (index > levels->total) return 1;
  if (index > 0) {
    am_u64 at = index - 1, segment;
    segment = at < levels->depth ? s->alias.segment[at & (AM_LSM_ALIAS_DEPTH - 1)]
                                 : s->segment[(levels->total - 1 - at) & (AM_LSM_DEPTH - 1)];
    add_below(s, AM_LSM_SEGMENT, segment);
    if (index == levels->total) add_below(s, AM_LSM_NAME, segment);
    s->judge.hash = am_lsm_mix(s->judge.hash, segment);
  }
  matches.node = am_lsm_find(s->policy_id, AM_LSM_NODE, s->judge.hash);
  if (matches.node) {
    bpf_loop(AM_LSM_MATCHES, lsm_node_step, &matches, 0);
    if (index < levels->total) s->judge.roots |= 1ull << (matches.node->root & 63);
  }
  /* An inode that is known under the very path it has needs no second look. */
  if (!levels->depth) {
    for (am_u32 h = 0; h < AM_LSM_HITS; h++)
      s->hit[h].judged |= (s->hit[h].hash == s->judge.hash) & (s->hit[h].below + index == levels->total);
  }
  return 0;
}

static long lsm_affix_match_step(am_u32 index, struct lsm_run *run) {
  am_u64 hash = run->s->affix_hash[index & (2 * AM_LSM_LENGTHS - 1)];
  if (hash) add_below(run->s, index < AM_LSM_LENGTHS ? AM_LSM_SUFFIX : AM_LSM_PREFIX, hash);
  return 0;
}

static long lsm_layer_step(am_u32 index, struct lsm_run *run) {
  struct lsm_scratch *s = run->s;
  am_u32 answer;
  if (index >= s->policy.layers) return 1;
  answer = am_lsm_layer(&s->policy, &s->judge, index);
  s->verdict = answer & ~AM_LSM_FINAL;
  return answer != AM_LSM_PASS;
}

/* Judges the walk's innermost `below` segments, behind the alias's path where depth is not 0. The verdict stands
 * in the scratch. */
__noinline int lsm_judge(struct lsm_scratch *s, am_u64 depth, am_u64 below, am_u64 named) {
  struct lsm_run run = {.s = s};
  struct lsm_levels levels = {.s = s, .depth = depth, .total = depth + below};
  if (!s) return 0;
  am_lsm_begin(&s->judge, s->asked, s->implied, levels.total);
  bpf_loop(AM_LSM_DEPTH + AM_LSM_ALIAS_DEPTH + 1, lsm_level_step, &levels, 0);
  /* After all directories above the object are known. */
  if (named && (s->policy.suffix[0] | s->policy.prefix[0]))
    bpf_loop(2 * AM_LSM_LENGTHS, lsm_affix_match_step, &run, 0);
  s->verdict = AM_LSM_PASS;
  bpf_loop(AM_LSM_LAYERS, lsm_layer_step, &run, 0);
  return 0;
}

static long lsm_hit_step(am_u32 index, struct lsm_run *run) {
  struct lsm_scratch *s = run->s;
  struct am_lsm_hit *hit = &s->hit[index & (AM_LSM_HITS - 1)];
  struct am_lsm_alias *alias;
  if (index >= s->hits || hit->judged) return 0;
  alias = bpf_map_lookup_elem(&lsm_aliases, &hit->inode);
  if (!alias || alias->depth > AM_LSM_ALIAS_DEPTH) return 0;
  s->alias = *alias;
  lsm_judge(s, s->alias.depth, hit->below, hit->below != 0);
  return s->verdict == AM_LSM_DENY;
}

static __always_inline void judge_hits(struct lsm_scratch *s) {
  struct lsm_run run = {.s = s};
  bpf_loop(AM_LSM_HITS, lsm_hit_step, &run, 0);
}

/* A mount that the kernel keeps for itself (pipes, memory files) has no path. */
static __always_inline int is_internal(struct lsm_scratch *s) {
  struct mount *mount = (void *)s->path.vfsmount - bpf_core_field_offset(struct mount, mnt);
  return (am_u64)BPF_CORE_READ(mount, mnt_ns) >= -4095ull; /* an error in a pointer's place */
}

static __always_inline int lsm_refuse_deep(struct lsm_scratch *s) {
  s->judge.layer = AM_LSM_TOO_DEEP;
  s->judge.rank = AM_LSM_NO_RULE;
  return AM_LSM_DENY;
}

static __noinline int lsm_judge_object(struct lsm_scratch *s) {
  if (!s) return 0;
  s->bound = s->deep = 0;
  s->verdict = AM_LSM_PASS;
  if (s->vfsmount) {
    lsm_walk(s, 1);
    if (is_internal(s)) return AM_LSM_PASS;
    if (s->deep) return lsm_refuse_deep(s);
    lsm_judge(s, 0, s->count, 1);
    if (s->verdict == AM_LSM_DENY) return AM_LSM_DENY;
    judge_hits(s);
    if (s->verdict == AM_LSM_DENY || !s->bound) return s->verdict;
  }
  /* The object where its file system has it. */
  lsm_walk(s, 0);
  if (s->deep) return lsm_refuse_deep(s);
  judge_hits(s);
  return s->verdict;
}

/* What is allowed by entries that were taken away meanwhile is judged again: an old policy's entries go only
 * after the session's pointer has been switched. */
static long lsm_attempt(am_u32 index, struct lsm_run *run) {
  struct lsm_scratch *s = run->s;
  am_u64 id = s->rec.h.cgroup_id;
  struct am_lsm_session *session = bpf_map_lookup_elem(&lsm_sessions, &id);
  struct am_lsm_policy *policy;
  am_u32 used;
  s->verdict = AM_LSM_PASS;
  if (!session) return 1;
  used = session->policy;
  s->policy_id = used;
  policy = bpf_map_lookup_elem(&lsm_policies, &used);
  s->verdict = AM_LSM_DENY;
  s->judge.layer = 0;
  s->judge.rank = AM_LSM_NO_RULE;
  if (!policy) return 0; /* switched in between; after the last try: no */
  s->policy = *policy;
  s->verdict = lsm_judge_object(s);
  if (s->verdict == AM_LSM_DENY) return 1;
  session = bpf_map_lookup_elem(&lsm_sessions, &id);
  if (!session || session->policy == used) return 1;
  s->verdict = AM_LSM_DENY;
  return 0;
}

static __always_inline int lsm_decide(struct lsm_scratch *s) {
  struct lsm_run run = {.s = s};
  bpf_loop(4, lsm_attempt, &run, 0);
  return s->verdict == AM_LSM_DENY;
}

/* Around a program's work */

/* The id of the session's cgroup, 0 for a process that is in none that is enforced here. */
static __always_inline am_u64 lsm_session(void) {
  am_u32 zero = 0;
  struct am_lsm_config *config = bpf_map_lookup_elem(&lsm_config, &zero);
  am_u64 id;
  if (!config) return 0;
  id = bpf_get_current_ancestor_cgroup_id(config->session_level);
  return id && bpf_map_lookup_elem(&lsm_sessions, &id) ? id : 0;
}

struct lsm_claim {
  am_u32 cpu;
  am_u32 got;
};

static long lsm_claim_step(am_u32 index, struct lsm_claim *claim) {
  am_u32 slot = claim->cpu * 4 + index;
  struct lsm_scratch *s = bpf_map_lookup_elem(&lsm_scratches, &slot);
  if (!s || __sync_val_compare_and_swap(&s->busy, 0, 1)) return 0;
  claim->got = slot + 1;
  return 1;
}

static __always_inline struct lsm_scratch *lsm_take(am_u64 session) {
  struct lsm_claim claim = {.cpu = bpf_get_smp_processor_id()};
  struct lsm_scratch *s;
  am_u32 slot;
  bpf_loop(4, lsm_claim_step, &claim, 0);
  slot = claim.got - 1;
  s = claim.got ? bpf_map_lookup_elem(&lsm_scratches, &slot) : 0;
  if (!s) {
    count_lsm_lost(1);
    return 0;
  }
  s->rec.h.cgroup_id = session;
  return s;
}

static __always_inline void lsm_give_back(struct lsm_scratch *s) {
  barrier();
  *(volatile am_u32 *)&s->busy = 0;
}

static __always_inline void lsm_object(struct lsm_scratch *s, struct dentry *dentry, struct vfsmount *mount,
                                       am_u32 asked, am_u32 implied) {
  s->dentry = (am_u64)dentry;
  s->vfsmount = (am_u64)mount;
  s->asked = asked;
  s->implied = implied & ~asked;
}

static __always_inline am_u64 lsm_path_text(struct lsm_scratch *s, am_u8 *out, struct dentry *dentry,
                                            struct vfsmount *mount, am_u32 *flags) {
  struct path_walk walk = {.out = out, .state = &s->path};
  am_u64 used;
  s->path.dentry = (am_u64)dentry;
  s->path.vfsmount = (am_u64)mount;
  s->path.used = s->path.cut = 0;
  long steps = bpf_loop(PATH_STEPS, path_step, &walk, 0);
  if (s->path.cut || steps >= PATH_STEPS) *flags |= AM_F_PATH_CUT;
  used = s->path.used;
  barrier_var(used);
  return used > AM_PATH_MAX ? AM_PATH_MAX : used;
}

/* The record of what was stopped; the second name may be null. */
static __noinline int lsm_tell(struct lsm_scratch *s, struct dentry *dentry, struct vfsmount *mount,
                               struct dentry *new_dentry, struct vfsmount *new_mount) {
  am_u32 flags = AM_F_REVERSED;
  am_u64 session, at, length = 0, size;
  if (!s) return 0;
  session = s->rec.h.cgroup_id;
  fill_header(&s->rec.h, bpf_get_current_task_btf(), SOURCE_LSM, AM_DENIED, 0);
  s->rec.h.cgroup_id = session;
  s->rec.policy = s->policy_id;
  s->rec.layer = s->judge.layer;
  s->rec.rank = s->judge.rank;
  s->rec.error = EACCES;
  at = lsm_path_text(s, s->data, dentry, mount, &flags);
  if (new_dentry) length = lsm_path_text(s, s->data + at, new_dentry, new_mount, &flags);
  s->rec.path_len = at;
  s->rec.new_path_len = length;
  s->rec.h.flags = flags;
  size = sizeof(s->rec) + at + length;
  s->rec.h.size = size;
  barrier_var(size);
  if (size > sizeof(s->rec) + sizeof(s->data)) size = sizeof(s->rec) + sizeof(s->data);
  if (bpf_ringbuf_output(&lsm_denials, &s->rec, size, 0)) count_lsm_lost(0);
  return 0;
}

#endif
