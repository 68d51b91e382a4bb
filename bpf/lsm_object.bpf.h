/* Verdicts on paths.
 *
 * The object's own path, up to the root of its mount namespace, is judged first. Then the paths under which the
 * inodes above it are known to the policy, where these are others: so a bind mount in a namespace of the agent's
 * own, or a name that somebody outside has changed, leads past nothing. The strictest counts. */
#ifndef AGENTMON_BPF_LSM_OBJECT_BPF_H
#define AGENTMON_BPF_LSM_OBJECT_BPF_H

#include "lsm.bpf.h"

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

static __noinline int lsm_judge_act(struct lsm_scratch *s) {
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
  am_u64 at, length = 0;
  if (!s) return 0;
  lsm_begin_record(s);
  at = lsm_path_text(s, s->data, dentry, mount, &flags);
  if (new_dentry) length = lsm_path_text(s, s->data + at, new_dentry, new_mount, &flags);
  s->rec.path_len = at;
  s->rec.new_path_len = length;
  s->rec.h.flags = flags;
  lsm_send_record(s, at + length);
  return 0;
}

#endif
