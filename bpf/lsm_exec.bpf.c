/* Programs that a session's processes start, and files that they map as code: by the object that the kernel has
 * opened, as the policy's rules on commands say of it whatever its arguments are. */
#include "lsm_object.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define PROT_EXEC 0x4u /* include/uapi/asm-generic/mman-common.h */
#define VM_EXEC 0x4ul  /* include/linux/mm.h */

static long capital_step(am_u32 index, struct lsm_run *run) {
  am_u8 letter = run->s->text[index & NAME_MAX];
  run->s->asked |= letter >= 'A' && letter <= 'Z';
  return 0;
}

/* Nothing may stand between the look at the length and its use: Linux 6.1 forgets it over a call. */
static __always_inline int read_text(struct lsm_scratch *s, am_u64 length, const void *from) {
  barrier_var(length);
  if (length > NAME_MAX) return -1;
  return bpf_probe_read_kernel(s->text, length, from);
}

/* Was the file asked for by its own name? Under another one, rules that allow may be about that. Rules on names
 * know no capitals: a name that has some counts as another one. */
static __noinline int is_other_name(struct lsm_scratch *s, struct linux_binprm *bprm, struct dentry *dentry) {
  const char *asked;
  struct lsm_run run = {.s = s};
  am_u64 length, hash;
  long bytes;
  if (!s) return 1;
  length = BPF_CORE_READ(dentry, d_name.len);
  if (read_text(s, length, BPF_CORE_READ(dentry, d_name.name))) return 1;
  s->asked = 0;
  bpf_loop(length, capital_step, &run, 0);
  if (s->asked) return 1;
  asked = BPF_CORE_READ(bprm, filename);
  /* An interpreter is asked for by a file, and judged by what it is. */
  if (BPF_CORE_READ(bprm, interp) != asked) return 0;
  hash = lsm_hash(s, length);
  bytes = bpf_probe_read_kernel_str(s->text_of_name, AM_LSM_NAME_BYTES, asked);
  if (bytes <= (long)length || bytes >= (long)AM_LSM_NAME_BYTES) return 1;
  asked += bytes - 1 - length;
  if (bytes - 1 > (long)length) {
    if (read_text(s, 1, asked - 1) || s->text[0] != '/') return 1;
  }
  if (read_text(s, length, asked)) return 1;
  return lsm_hash(s, length) != hash;
}

static __always_inline int is_file(struct file *file) {
  return (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) == S_IFREG;
}

SEC("lsm/bprm_check_security")
int BPF_PROG(on_bprm_check_security, struct linux_binprm *bprm, int ret) {
  am_u64 session = lsm_session();
  struct lsm_scratch *s;
  struct file *file;
  struct dentry *dentry;
  struct vfsmount *mount;
  int refused;
  if (ret) return ret < 0 ? ret : -EACCES;
  if (!session) return 0;
  s = lsm_take(session);
  if (!s) return -EACCES;
  file = BPF_CORE_READ(bprm, file);
  dentry = BPF_CORE_READ(file, f_path.dentry);
  mount = BPF_CORE_READ(file, f_path.mnt);
  lsm_object(s, dentry, mount, is_other_name(s, bprm, dentry) ? OP_EXEC_OTHER : OP_EXEC, 0);
  refused = lsm_decide(s);
  /* Where the policy stops anything, a program that nothing can be said of is none. */
  if (!refused && s->policy.layers > 1 && !BPF_CORE_READ(file, f_inode, i_nlink)) {
    refused = 1;
    s->policy_id = 0;
    s->judge.layer = AM_LSM_OUTSIDE;
    s->judge.rank = AM_LSM_NO_RULE;
  }
  if (refused) {
    s->rec.kind = KIND_EXEC;
    s->rec.open_flags = AM_LSM_STARTED;
    lsm_tell(s, dentry, mount, 0, 0);
  }
  lsm_give_back(s);
  return refused ? -EACCES : 0;
}

/* The descriptor may be older than the session or its policy: so whether the file may be read is asked again. */
static __always_inline int judge_mapping(struct file *file) {
  am_u64 session = lsm_session();
  struct lsm_scratch *s;
  struct dentry *dentry;
  struct vfsmount *mount;
  int refused;
  if (!file || !session || !is_file(file)) return 0; /* none: memory */
  s = lsm_take(session);
  if (!s) return -EACCES;
  dentry = BPF_CORE_READ(file, f_path.dentry);
  mount = BPF_CORE_READ(file, f_path.mnt);
  lsm_object(s, dentry, mount, OP_OPEN | OP_READ | OP_MAP, 0);
  s->judge.operation = 0;
  refused = lsm_decide(s);
  if (refused) {
    s->rec.kind = s->judge.operation & OP_MAP ? KIND_EXEC : KIND_OPEN;
    s->rec.open_flags = s->judge.operation & OP_MAP ? AM_LSM_MAPPED : 0;
    lsm_tell(s, dentry, mount, 0, 0);
  }
  lsm_give_back(s);
  return refused ? -EACCES : 0;
}

SEC("lsm/mmap_file")
int BPF_PROG(on_mmap_file, struct file *file, unsigned long asked, unsigned long prot, unsigned long flags, int ret) {
  if (ret) return ret < 0 ? ret : -EACCES;
  return prot & PROT_EXEC ? judge_mapping(file) : 0;
}

SEC("lsm/file_mprotect")
int BPF_PROG(on_file_mprotect, struct vm_area_struct *area, unsigned long asked, unsigned long prot, int ret) {
  if (ret) return ret < 0 ? ret : -EACCES;
  if (!(prot & PROT_EXEC) || BPF_CORE_READ(area, vm_flags) & VM_EXEC) return 0;
  return judge_mapping(BPF_CORE_READ(area, vm_file));
}
