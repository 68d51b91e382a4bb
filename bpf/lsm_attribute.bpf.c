/* Times and extended attributes. These hooks know no mount: what is judged is where the file system has the object,
 * below the directories whose inodes the policy knows; the roots of all mounts that the session began with are. */
#include "lsm_object.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* include/linux/fs.h: a time that is set, to now or to another one. */
#define ATTR_ATIME_SET (1u << 7)
#define ATTR_MTIME_SET (1u << 8)
#define ATTR_TOUCH (1u << 17)

static __always_inline int judge_attribute(struct dentry *dentry) {
  am_u64 session = lsm_session();
  struct inode *inode;
  struct lsm_scratch *s;
  int refused;
  if (!session) return 0;
  inode = BPF_CORE_READ(dentry, d_inode);
  if (inode && (BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFCHR) return 0;
  s = lsm_take(session);
  if (!s) return -EACCES;
  lsm_object(s, dentry, 0, OP_WRITE, 0);
  refused = lsm_decide(s);
  if (refused) {
    s->rec.kind = KIND_WRITE;
    s->rec.open_flags = 0;
    lsm_tell(s, dentry, 0, 0, 0);
  }
  lsm_give_back(s);
  return refused ? -EACCES : 0;
}

SEC("lsm/inode_setattr")
int BPF_PROG(on_inode_setattr, struct dentry *dentry, struct iattr *attr, int ret) {
  if (ret) return ret < 0 ? ret : -EACCES;
  if (!(attr->ia_valid & (ATTR_ATIME_SET | ATTR_MTIME_SET | ATTR_TOUCH))) return 0;
  return judge_attribute(dentry);
}

SEC("lsm/inode_setxattr")
int BPF_PROG(on_inode_setxattr, const void *idmap, struct dentry *dentry, const char *name,
             const void *value, unsigned long size, int flags, int ret) {
  if (ret) return ret < 0 ? ret : -EACCES;
  return judge_attribute(dentry);
}

SEC("lsm/inode_removexattr")
int BPF_PROG(on_inode_removexattr, const void *idmap, struct dentry *dentry, const char *name,
             int ret) {
  if (ret) return ret < 0 ? ret : -EACCES;
  return judge_attribute(dentry);
}
