/* Changes of names, sizes, modes and owners by a session's processes. Most of these calls are made by the broker in
 * their place; what comes here are those that are asked by nobody: of attached processes, and by ways past it. */
#include "lsm_object.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define NAMED (OP_OPEN | OP_READ | OP_WRITE) /* the object gets another name */

struct act {
  am_u32 kind;
  am_u32 asked;
  am_u32 implied;
};

static __always_inline int is_type(struct dentry *dentry, am_u32 type) {
  struct inode *inode = BPF_CORE_READ(dentry, d_inode);
  return inode && (BPF_CORE_READ(inode, i_mode) & S_IFMT) == type;
}

/* One object, or two of which both are judged: new_dentry may be null. */
static __always_inline int judge_act(struct act act, struct dentry *dentry, struct vfsmount *mount,
                                     struct dentry *new_dentry, struct vfsmount *new_mount) {
  am_u64 session = lsm_session();
  struct lsm_scratch *s;
  int refused;
  if (!session || is_type(dentry, S_IFCHR)) return 0;
  s = lsm_take(session);
  if (!s) return -EACCES;
  if (act.asked == OP_RENAME && is_type(dentry, S_IFDIR)) act.implied |= OP_BELOW;
  lsm_object(s, dentry, mount, act.asked, act.implied);
  refused = lsm_decide(s);
  if (!refused && new_dentry) {
    lsm_object(s, new_dentry, new_mount, act.asked, OP_WRITE | OP_CREATE);
    refused = lsm_decide(s);
  }
  if (refused) {
    s->rec.kind = act.kind;
    s->rec.open_flags = 0;
    lsm_tell(s, dentry, mount, new_dentry, new_mount);
  }
  lsm_give_back(s);
  return refused ? -EACCES : 0;
}

#define PASS_ON(ret) \
  if (ret) return ret < 0 ? ret : -EACCES

SEC("lsm/path_unlink")
int BPF_PROG(on_path_unlink, const struct path *dir, struct dentry *dentry, int ret) {
  PASS_ON(ret);
  return judge_act((struct act){KIND_DELETE, OP_DELETE, OP_WRITE}, dentry, dir->mnt, 0, 0);
}

SEC("lsm/path_rmdir")
int BPF_PROG(on_path_rmdir, const struct path *dir, struct dentry *dentry, int ret) {
  PASS_ON(ret);
  return judge_act((struct act){KIND_RMDIR, OP_RMDIR, OP_WRITE}, dentry, dir->mnt, 0, 0);
}

SEC("lsm/path_mkdir")
int BPF_PROG(on_path_mkdir, const struct path *dir, struct dentry *dentry, unsigned short mode, int ret) {
  PASS_ON(ret);
  return judge_act((struct act){KIND_MKDIR, OP_MKDIR, OP_WRITE | OP_CREATE}, dentry, dir->mnt, 0, 0);
}

SEC("lsm/path_symlink")
int BPF_PROG(on_path_symlink, const struct path *dir, struct dentry *dentry, const char *target, int ret) {
  PASS_ON(ret);
  return judge_act((struct act){KIND_SYMLINK, OP_SYMLINK, OP_WRITE | OP_CREATE}, dentry, dir->mnt, 0, 0);
}

SEC("lsm/path_mknod")
int BPF_PROG(on_path_mknod, const struct path *dir, struct dentry *dentry, unsigned short mode, unsigned int dev,
             int ret) {
  PASS_ON(ret);
  am_u32 type = mode & S_IFMT;
  /* An open that creates comes here as well. */
  if (!type || type == S_IFREG) return judge_act((struct act){KIND_CREATE, OP_CREATE, OP_WRITE}, dentry, dir->mnt, 0, 0);
  return judge_act((struct act){KIND_MKNOD, OP_MKNOD, OP_WRITE | OP_CREATE}, dentry, dir->mnt, 0, 0);
}

SEC("lsm/path_link")
int BPF_PROG(on_path_link, struct dentry *old_dentry, const struct path *dir, struct dentry *dentry, int ret) {
  PASS_ON(ret);
  return judge_act((struct act){KIND_LINK, OP_LINK, NAMED}, old_dentry, dir->mnt, dentry, dir->mnt);
}

SEC("lsm/path_rename")
int BPF_PROG(on_path_rename, const struct path *old_dir, struct dentry *old_dentry, const struct path *new_dir,
             struct dentry *new_dentry, unsigned int flags, int ret) {
  PASS_ON(ret);
  return judge_act((struct act){KIND_RENAME, OP_RENAME, NAMED}, old_dentry, old_dir->mnt, new_dentry, new_dir->mnt);
}

SEC("lsm/path_truncate")
int BPF_PROG(on_path_truncate, const struct path *path, int ret) {
  PASS_ON(ret);
  return judge_act((struct act){KIND_TRUNCATE, OP_WRITE, 0}, path->dentry, path->mnt, 0, 0);
}

SEC("lsm/path_chmod")
int BPF_PROG(on_path_chmod, const struct path *path, unsigned short mode, int ret) {
  PASS_ON(ret);
  return judge_act((struct act){KIND_CHMOD, OP_CHMOD, OP_WRITE}, path->dentry, path->mnt, 0, 0);
}

SEC("lsm/path_chown")
int BPF_PROG(on_path_chown, const struct path *path, unsigned long long uid, unsigned long long gid, int ret) {
  PASS_ON(ret);
  return judge_act((struct act){KIND_CHOWN, OP_CHOWN, OP_WRITE}, path->dentry, path->mnt, 0, 0);
}
