/* Acts that would change what holds a session, whatever its policy says: mounts of the host, BPF and code for the
 * kernel. Ordinary users may do none of them anyway; this is for sessions of root. */
#include "lsm.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* include/linux/kernel_read_file.h: modules, and the two parts of another kernel */
#define READING_MODULE 2
#define READING_KEXEC_INITRAMFS 4

static int lsm_judge_act(struct lsm_scratch *s) { return AM_LSM_DENY; }

static __always_inline int refuse(am_u32 call) {
  am_u64 session = lsm_session();
  struct lsm_scratch *s;
  int refused;
  if (!session) return 0;
  s = lsm_take(session);
  if (!s) return -EPERM;
  refused = lsm_decide(s);
  if (refused) {
    s->judge.layer = AM_LSM_OUTSIDE;
    s->judge.rank = AM_LSM_NO_RULE;
    s->error = EPERM;
    lsm_begin_record(s);
    s->rec.kind = KIND_CALL;
    s->rec.open_flags = call;
    s->rec.path_len = s->rec.new_path_len = 0;
    lsm_send_record(s, 0);
  }
  lsm_give_back(s);
  return refused ? -EPERM : 0;
}

/* A process with mounts of its own may do with them what it likes: they are judged by the objects that they show. */
static __always_inline int refuse_mount(am_u32 call) {
  am_u32 zero = 0;
  struct am_lsm_config *config = bpf_map_lookup_elem(&lsm_config, &zero);
  struct task_struct *task = bpf_get_current_task_btf();
  if (!config || BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum) != config->host_mounts) return 0;
  return refuse(call);
}

#define PASS_ON(ret) \
  if (ret) return ret < 0 ? ret : -EPERM

SEC("lsm/sb_mount")
int BPF_PROG(on_sb_mount, const char *device, const struct path *path, const char *type, unsigned long flags,
             void *data, int ret) {
  PASS_ON(ret);
  return refuse_mount(AM_LSM_CALL_MOUNT);
}

SEC("lsm/move_mount")
int BPF_PROG(on_move_mount, const struct path *from, const struct path *to, int ret) {
  PASS_ON(ret);
  return refuse_mount(AM_LSM_CALL_MOVE_MOUNT);
}

SEC("lsm/sb_umount")
int BPF_PROG(on_sb_umount, struct vfsmount *mount, int flags, int ret) {
  PASS_ON(ret);
  return refuse_mount(AM_LSM_CALL_UMOUNT);
}

SEC("lsm/bpf")
int BPF_PROG(on_bpf, int command, union bpf_attr *attr, unsigned int size, int ret) {
  PASS_ON(ret);
  return refuse(AM_LSM_CALL_BPF);
}

static __always_inline int refuse_code(int what) {
  return what >= READING_MODULE && what <= READING_KEXEC_INITRAMFS ? refuse(AM_LSM_CALL_MODULE) : 0;
}

SEC("lsm/kernel_read_file")
int BPF_PROG(on_kernel_read_file, struct file *file, int what, _Bool contents, int ret) {
  PASS_ON(ret);
  return refuse_code(what);
}

SEC("lsm/kernel_load_data")
int BPF_PROG(on_kernel_load_data, int what, _Bool contents, int ret) {
  PASS_ON(ret);
  return refuse_code(what);
}
