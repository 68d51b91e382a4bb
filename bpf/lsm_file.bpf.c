/* Opens of a session's processes, and descriptors that it is handed, as the policy's file rules say; and whatever it
 * says, none that would move a process to a cgroup outside of the session. */
#include "lsm_object.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* include/linux/fs.h */
#define FMODE_READ 0x1u
#define FMODE_WRITE 0x2u

#define CGROUP2_SUPER_MAGIC 0x63677270 /* include/uapi/linux/magic.h */
#define CGROUPS_DEEP 32

struct cgroup_walk {
  struct dentry *at;
  am_u64 session;
  am_u32 found;
};

static long cgroup_step(am_u32 index, struct cgroup_walk *walk) {
  struct dentry *at = walk->at, *parent = BPF_CORE_READ(at, d_parent);
  if (parent == at) return 1;
  walk->at = parent;
  walk->found = BPF_CORE_READ(parent, d_inode, i_ino) == walk->session;
  return walk->found;
}

/* The file that processes are moved with, of a cgroup that is not the session's nor below it. */
static __always_inline int leads_out(struct file *file, am_u64 session) {
  struct cgroup_walk walk = {.session = session};
  struct dentry *dentry;
  am_u64 name[2] = {}, procs[2], threads[2];
  __builtin_memcpy(procs, "cgroup.procs\0\0\0", sizeof(procs));
  __builtin_memcpy(threads, "cgroup.threads\0", sizeof(threads));
  if (BPF_CORE_READ(file, f_inode, i_sb, s_magic) != CGROUP2_SUPER_MAGIC) return 0;
  dentry = BPF_CORE_READ(file, f_path.dentry);
  bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ(dentry, d_name.name));
  if ((name[0] != procs[0] || name[1] != procs[1]) && (name[0] != threads[0] || name[1] != threads[1])) return 0;
  walk.at = dentry;
  bpf_loop(CGROUPS_DEEP, cgroup_step, &walk, 0);
  return !walk.found;
}

/* Character devices are the broker's: which terminals are the session's own, only user space knows. */
static __always_inline int is_judged(struct file *file) {
  am_u32 type = BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT;
  return type != S_IFDIR && type != S_IFCHR;
}

static __always_inline int judge_file(struct file *file) {
  am_u64 session = lsm_session();
  struct lsm_scratch *s;
  struct dentry *dentry;
  struct vfsmount *mount;
  am_u32 mode, asked;
  int refused, out;
  if (!session || !is_judged(file)) return 0;
  mode = BPF_CORE_READ(file, f_mode);
  asked = (mode & FMODE_READ ? OP_OPEN | OP_READ : 0) | (mode & FMODE_WRITE ? OP_WRITE : 0);
  if (!asked) return 0;
  s = lsm_take(session);
  if (!s) return -EACCES;
  dentry = BPF_CORE_READ(file, f_path.dentry);
  mount = BPF_CORE_READ(file, f_path.mnt);
  lsm_object(s, dentry, mount, asked, 0);
  out = mode & FMODE_WRITE ? leads_out(file, session) : 0;
  refused = out;
  if (out) {
    s->error = EPERM;
    s->policy_id = 0;
    s->judge.layer = AM_LSM_OUTSIDE;
    s->judge.rank = AM_LSM_NO_RULE;
  } else {
    refused = lsm_decide(s);
  }
  if (refused) {
    s->rec.kind = mode & FMODE_WRITE ? KIND_OPEN_WRITE : KIND_OPEN;
    s->rec.open_flags = BPF_CORE_READ(file, f_flags);
    lsm_tell(s, dentry, mount, 0, 0);
  }
  lsm_give_back(s);
  if (out) return -EPERM;
  return refused ? -EACCES : 0;
}

SEC("lsm/file_open")
int BPF_PROG(on_file_open, struct file *file, int ret) {
  if (ret) return ret < 0 ? ret : -EACCES;
  return judge_file(file);
}

SEC("lsm/file_receive")
int BPF_PROG(on_file_receive, struct file *file, int ret) {
  if (ret) return ret < 0 ? ret : -EACCES;
  return judge_file(file);
}
