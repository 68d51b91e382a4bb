/* Opens of a session's processes, and descriptors that it is handed, as the policy's file rules say. */
#include "lsm_object.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* include/linux/fs.h */
#define FMODE_READ 0x1u
#define FMODE_WRITE 0x2u

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
  int refused;
  if (!session || !is_judged(file)) return 0;
  mode = BPF_CORE_READ(file, f_mode);
  asked = (mode & FMODE_READ ? OP_OPEN | OP_READ : 0) | (mode & FMODE_WRITE ? OP_WRITE : 0);
  if (!asked) return 0;
  s = lsm_take(session);
  if (!s) return -EACCES;
  dentry = BPF_CORE_READ(file, f_path.dentry);
  mount = BPF_CORE_READ(file, f_path.mnt);
  lsm_object(s, dentry, mount, asked, 0);
  refused = lsm_decide(s);
  if (refused) {
    s->rec.kind = mode & FMODE_WRITE ? KIND_OPEN_WRITE : KIND_OPEN;
    s->rec.open_flags = BPF_CORE_READ(file, f_flags);
    lsm_tell(s, dentry, mount, 0, 0);
  }
  lsm_give_back(s);
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
