/* The name of a (mount, dentry) pair, up to the root of its mount namespace. */
#ifndef AGENTMON_BPF_PATH_WALK_BPF_H
#define AGENTMON_BPF_PATH_WALK_BPF_H

#include "common.bpf.h"

#define NAME_MAX 255
/* Components are at least two bytes ("a\0"); crossing a mount costs a step of its own. */
#define PATH_STEPS (AM_PATH_MAX / 2 + 256)

/* Lives in a map or in the ring, not on the stack: the verifier follows every value of what is on
 * the stack and runs out of patience with the loop. */
struct path_state {
  am_u64 dentry;
  am_u64 vfsmount;
  am_u32 used;
  am_u32 cut;
};

struct path_walk {
  am_u8 *out; /* at least AM_PATH_MAX + NAME_MAX + 1 bytes */
  struct path_state *state;
};

/* Goes from the root of a mount to the place where it is mounted. 0 at the namespace's root. */
static __always_inline int cross_mount(struct path_state *state) {
  struct mount *mount = (void *)state->vfsmount - bpf_core_field_offset(struct mount, mnt);
  struct mount *parent = BPF_CORE_READ(mount, mnt_parent);
  if (!parent || parent == mount) return 0;
  state->dentry = (am_u64)BPF_CORE_READ(mount, mnt_mountpoint);
  state->vfsmount = (am_u64)parent + bpf_core_field_offset(struct mount, mnt);
  return 1;
}

static long path_step(am_u32 index, struct path_walk *walk) {
  struct path_state *state = walk->state;
  struct dentry *dentry = (void *)state->dentry;
  struct vfsmount *vfsmount = (void *)state->vfsmount;
  if ((am_u64)BPF_CORE_READ(vfsmount, mnt_root) == (am_u64)dentry) return !cross_mount(state);
  struct dentry *parent = BPF_CORE_READ(dentry, d_parent);
  am_u64 length = BPF_CORE_READ(dentry, d_name.len);
  const unsigned char *name = BPF_CORE_READ(dentry, d_name.name);
  am_u64 used = state->used;
  if (length > NAME_MAX) length = NAME_MAX;
  if (used > AM_PATH_MAX || used + length + 1 > AM_PATH_MAX) {
    state->cut = 1;
    return 1;
  }
  am_u8 *out = walk->out + used;
  if (bpf_probe_read_kernel(out, length, name)) return 1;
  /* A root without a mount (memfd, lazily unmounted) is its own parent; "/" is no component. */
  if (parent == dentry && length == 1 && out[0] == '/') return 1;
  out[length] = 0;
  state->used = used + length + 1;
  state->dentry = (am_u64)parent;
  return parent == dentry;
}

/* Writes components, innermost first, each ended by NUL; returns their size in bytes, at most
 * AM_PATH_MAX. An empty result is the root directory. */
static __always_inline am_u64 walk_path(am_u8 *out, struct path *path, struct path_state *state,
                                        am_u32 *flags) {
  struct path_walk walk = {.out = out, .state = state};
  state->dentry = (am_u64)BPF_CORE_READ(path, dentry);
  state->vfsmount = (am_u64)BPF_CORE_READ(path, mnt);
  state->used = 0;
  state->cut = 0;
  long steps = bpf_loop(PATH_STEPS, path_step, &walk, 0);
  if (state->cut || steps >= PATH_STEPS) *flags |= AM_F_PATH_CUT;
  am_u64 used = state->used;
  barrier_var(used);
  return used > AM_PATH_MAX ? AM_PATH_MAX : used;
}

#endif
