/* What all programs on the hooks of security modules share: maps, whose process it is, work areas, and the way
 * from an act to its verdict. A process outside of sessions pays one look-up. */
#ifndef AGENTMON_BPF_LSM_BPF_H
#define AGENTMON_BPF_LSM_BPF_H

#include "common.bpf.h"
#include "lsm_abi.h"
#include "path_walk.bpf.h"
#include "siphash.h"

#define EPERM 1
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
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, AM_LSM_POLICIES_MAX);
  __type(key, am_u32);
  __type(value, struct am_lsm_names);
} lsm_names SEC(".maps");

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
  am_u32 error; /* that the act ends with */
  am_u64 name_at;
  am_u8 text[NAME_MAX + 1 + 8]; /* what is hashed */
  am_u8 name[NAME_MAX + 1];     /* the last segment of the path */
  am_u64 affix_hash[2 * AM_LSM_LENGTHS]; /* ends, then starts; 0 = none */
  am_u64 state[AM_LSM_NAME_WORDS];       /* of a name's patterns */
  am_u64 name_from, name_count;          /* in text_of_name */
  am_u8 text_of_name[AM_LSM_NAME_BYTES + NAME_MAX + 1];
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

struct lsm_run {
  struct lsm_scratch *s;
};

static long __attribute__((unused)) lsm_layer_step(am_u32 index, struct lsm_run *run) {
  struct lsm_scratch *s = run->s;
  am_u32 answer;
  if (index >= s->policy.layers) return 1;
  answer = am_lsm_layer(&s->policy, &s->judge, index);
  s->verdict = answer & ~AM_LSM_FINAL;
  return answer != AM_LSM_PASS;
}

static __always_inline int lsm_refuse_deep(struct lsm_scratch *s) {
  s->judge.layer = AM_LSM_TOO_DEEP;
  s->judge.rank = AM_LSM_NO_RULE;
  return AM_LSM_DENY;
}

/* Of the policy in the scratch: lsm_object.bpf.h or lsm_name.bpf.h has it, and an object uses one of them. */
static int lsm_judge_act(struct lsm_scratch *s);

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
  s->verdict = lsm_judge_act(s);
  if (s->verdict == AM_LSM_MISSING) {
    s->verdict = AM_LSM_DENY;
    return 0;
  }
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
  s->error = EACCES;
  return s;
}

static __always_inline void lsm_give_back(struct lsm_scratch *s) {
  barrier();
  *(volatile am_u32 *)&s->busy = 0;
}

/* The record of what was stopped. */
static __always_inline void lsm_begin_record(struct lsm_scratch *s) {
  am_u64 session = s->rec.h.cgroup_id;
  fill_header(&s->rec.h, bpf_get_current_task_btf(), SOURCE_LSM, AM_DENIED, 0);
  s->rec.h.cgroup_id = session;
  s->rec.policy = s->policy_id;
  s->rec.layer = s->judge.layer;
  s->rec.rank = s->judge.rank;
  s->rec.error = s->error;
}

static __always_inline void lsm_send_record(struct lsm_scratch *s, am_u64 length) {
  am_u64 size = sizeof(s->rec) + length;
  s->rec.h.size = size;
  barrier_var(size);
  if (size > sizeof(s->rec) + sizeof(s->data)) size = sizeof(s->rec) + sizeof(s->data);
  if (bpf_ringbuf_output(&lsm_denials, &s->rec, size, 0)) count_lsm_lost(0);
}

#endif
