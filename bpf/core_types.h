/* The fields of kernel structures that our programs read, and no others: each access is relocated
 * against the running kernel's BTF when a program is loaded (CO-RE), so the build needs no kernel
 * headers and no BTF of its own. Order and offsets here mean nothing. Kernels 6.1 and later. */
#ifndef AGENTMON_BPF_CORE_TYPES_H
#define AGENTMON_BPF_CORE_TYPES_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
  struct list_head *next, *prev;
};

typedef struct {
  int counter;
} atomic_t;

typedef struct {
  unsigned int val;
} kuid_t;

struct qstr {
  union {
    struct {
      unsigned int hash;
      unsigned int len;
    };
  };
  const unsigned char *name;
};

struct super_block {
  unsigned int s_dev;
  unsigned long s_magic;
};

struct inode {
  unsigned short i_mode;
  unsigned int i_nlink;
  unsigned long i_ino;
  struct super_block *i_sb;
};

struct dentry {
  struct dentry *d_parent;
  struct qstr d_name;
  struct inode *d_inode;
};

struct vfsmount {
  struct dentry *mnt_root;
};

struct mount {
  struct mount *mnt_parent;
  struct dentry *mnt_mountpoint;
  struct vfsmount mnt;
  struct mnt_namespace *mnt_ns;
};

struct path {
  struct vfsmount *mnt;
  struct dentry *dentry;
};

struct file {
  struct path f_path;
  struct inode *f_inode;
  unsigned int f_mode;
  unsigned int f_flags;
};

struct vm_area_struct {
  struct file *vm_file;
  unsigned long vm_flags;
};

struct iattr {
  unsigned int ia_valid;
};

struct fs_struct {
  struct path pwd;
};

struct kernfs_node {
  unsigned long long id;
};

struct cgroup {
  int level;
  struct kernfs_node *kn;
  struct cgroup *ancestors[];
};

struct css_set {
  struct cgroup *dfl_cgrp;
};

struct ns_common {
  unsigned int inum;
};

struct mnt_namespace {
  struct ns_common ns;
};

struct nsproxy {
  struct mnt_namespace *mnt_ns;
};

struct cred {
  kuid_t uid;
};

struct mm_struct {
  unsigned long arg_start;
  unsigned long arg_end;
};

struct signal_struct {
  atomic_t live;
  struct list_head thread_head;
  int group_exit_code;
  unsigned int flags;
  unsigned long maxrss;
  unsigned long long sum_sched_runtime;
};

struct sched_entity {
  unsigned long long sum_exec_runtime;
};

struct task_struct {
  unsigned int flags;
  struct sched_entity se;
  struct mm_struct *mm;
  int exit_code;
  int pid;
  int tgid;
  struct task_struct *real_parent;
  struct list_head children;
  struct list_head sibling;
  struct task_struct *group_leader;
  struct list_head thread_node;
  unsigned long long start_boottime;
  const struct cred *real_cred;
  struct fs_struct *fs;
  struct signal_struct *signal;
  struct css_set *cgroups;
  struct nsproxy *nsproxy;
};

struct linux_binprm {
  struct file *file;
  int argc;
  const char *filename;
  const char *interp;
  unsigned int interp_flags;
};

struct seq_file;

struct bpf_iter_meta {
  struct seq_file *seq;
};

struct bpf_iter__task {
  struct bpf_iter_meta *meta;
  struct task_struct *task;
};

struct bpf_iter__cgroup {
  struct bpf_iter_meta *meta;
  struct cgroup *cgroup;
};

struct sock_common {
  unsigned char skc_state;
};

struct sock_cgroup_data {
  struct cgroup *cgroup;
};

struct sock {
  struct sock_common __sk_common;
  struct sock_cgroup_data sk_cgrp_data;
  int sk_err;
  unsigned short sk_type;
};

struct socket {
  struct sock *sk;
};

struct sockaddr_un {
  unsigned short sun_family;
};

struct unix_address {
  int len;
  struct sockaddr_un name[0];
};

struct unix_sock {
  struct unix_address *addr;
  struct path path;
  struct sock *peer;
};

struct bpf_iter__unix {
  struct bpf_iter_meta *meta;
  struct unix_sock *unix_sk;
};

#ifdef __TARGET_ARCH_x86
struct pt_regs {
  unsigned long orig_ax;
};
#endif

struct tcp_sock;

struct bpf_sock_addr_kern {
  struct sockaddr *uaddr;
  unsigned int uaddrlen;
};

#pragma clang attribute pop

/* include/linux/sched.h, include/linux/sched/signal.h */
#define PF_KTHREAD 0x00200000
#define SIGNAL_GROUP_EXIT 0x00000004
/* include/linux/binfmts.h */
#define BINPRM_FLAGS_PRESERVE_ARGV0 0x8
#define SIGKILL 9

#endif
