/* Verdicts on whole names: of sockets. What a name is tried against is one automaton for all patterns of a policy. */
#ifndef AGENTMON_BPF_LSM_NAME_BPF_H
#define AGENTMON_BPF_LSM_NAME_BPF_H

#include "lsm.bpf.h"
#include "lsm_names.h"

struct lsm_name_run {
  struct lsm_scratch *s;
  const struct am_lsm_names *names;
};

/* Written from its end to its start, since a walk goes from the object to the root. */
static long lsm_text_step(am_u32 index, struct lsm_name_run *run) {
  struct lsm_scratch *s = run->s;
  struct dentry *dentry = (void *)s->path.dentry;
  struct vfsmount *vfsmount = (void *)s->path.vfsmount;
  struct dentry *parent = BPF_CORE_READ(dentry, d_parent);
  const unsigned char *name;
  am_u64 length, at;
  if ((am_u64)BPF_CORE_READ(vfsmount, mnt_root) == (am_u64)dentry) return !cross_mount(&s->path);
  if (parent == dentry) return 1;
  length = BPF_CORE_READ(dentry, d_name.len);
  name = BPF_CORE_READ(dentry, d_name.name);
  if (length > NAME_MAX) length = NAME_MAX;
  at = s->name_from - length - 1;
  barrier_var(at);
  if (at >= AM_LSM_NAME_BYTES || bpf_probe_read_kernel(s->text_of_name + at + 1, length, name)) {
    s->deep = 1;
    return 1;
  }
  s->text_of_name[at] = '/';
  s->name_from = at;
  s->path.dentry = (am_u64)parent;
  return 0;
}

/* The text of a path. It ends where text_of_name does. */
static __always_inline void lsm_name_of_path(struct lsm_scratch *s, struct path *path) {
  struct lsm_name_run run = {.s = s};
  s->path.dentry = (am_u64)BPF_CORE_READ(path, dentry);
  s->path.vfsmount = (am_u64)BPF_CORE_READ(path, mnt);
  s->deep = 0;
  s->name_from = AM_LSM_NAME_BYTES;
  if (bpf_loop(AM_LSM_NAME_BYTES, lsm_text_step, &run, 0) >= AM_LSM_NAME_BYTES) s->deep = 1;
  s->name_count = AM_LSM_NAME_BYTES - s->name_from;
}

static long lsm_byte_step(am_u32 index, struct lsm_name_run *run) {
  struct lsm_scratch *s = run->s;
  if (index >= s->name_count) return 1;
  am_lsm_names_step(s->state, run->names, s->text_of_name[(s->name_from + index) & (AM_LSM_NAME_BYTES - 1)]);
  return 0;
}

static long lsm_pattern_step(am_u32 index, struct lsm_name_run *run) {
  const struct am_lsm_pattern *pattern = &run->names->pattern[index & (AM_LSM_NAME_PATTERNS - 1)];
  if (index >= run->names->patterns) return 1;
  am_lsm_add(&run->s->judge, &pattern->match, am_lsm_names_match(run->s->state, pattern));
  return 0;
}

static __noinline int lsm_judge_act(struct lsm_scratch *s) {
  struct lsm_name_run run = {.s = s};
  struct lsm_run layers = {.s = s};
  am_u32 id;
  if (!s) return 0;
  if (s->deep) return lsm_refuse_deep(s);
  id = s->policy_id;
  run.names = bpf_map_lookup_elem(&lsm_names, &id);
  if (!run.names) return AM_LSM_MISSING;
  for (am_u32 w = 0; w < AM_LSM_NAME_WORDS; w++) s->state[w] = run.names->start[w];
  bpf_loop(AM_LSM_NAME_BYTES, lsm_byte_step, &run, 0);
  am_lsm_begin(&s->judge, s->asked, 0, 0);
  bpf_loop(AM_LSM_NAME_PATTERNS, lsm_pattern_step, &run, 0);
  s->verdict = AM_LSM_PASS;
  bpf_loop(AM_LSM_LAYERS, lsm_layer_step, &layers, 0);
  return s->verdict;
}

static __noinline int lsm_tell_name(struct lsm_scratch *s) {
  am_u64 length, from;
  if (!s) return 0;
  lsm_begin_record(s);
  length = s->name_count;
  from = s->name_from & (AM_LSM_NAME_BYTES - 1);
  barrier_var(length);
  if (length > AM_LSM_NAME_BYTES) length = AM_LSM_NAME_BYTES;
  if (from + length > AM_LSM_NAME_BYTES) length = AM_LSM_NAME_BYTES - from;
  barrier_var(length);
  if (length > AM_LSM_NAME_BYTES || bpf_probe_read_kernel(s->data, length, s->text_of_name + from)) length = 0;
  s->rec.path_len = length;
  s->rec.new_path_len = 0;
  lsm_send_record(s, length);
  return 0;
}

#endif
