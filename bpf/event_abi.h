/* Records that probes hand to the daemon: shared by the BPF programs (C) and Decode (C++).
 * Fixed little-endian layout, pinned by static assertions on both sides. Records live only between
 * programs and daemon of one build; nothing is stored in this form. */
#ifndef AGENTMON_BPF_EVENT_ABI_H
#define AGENTMON_BPF_EVENT_ABI_H

#ifdef __cplusplus
#include <cstdint>
typedef uint8_t am_u8;
typedef uint16_t am_u16;
typedef uint32_t am_u32;
typedef uint64_t am_u64;
typedef int32_t am_s32;
typedef int64_t am_s64;
#else
typedef unsigned char am_u8;
typedef unsigned short am_u16;
typedef unsigned int am_u32;
typedef unsigned long long am_u64;
typedef int am_s32;
typedef long long am_s64;
#endif

#define AM_ARGV_MAX 65536u       /* bytes of argv kept, NULs included */
#define AM_PATH_MAX 4096u        /* bytes of one path kept */
#define AM_RING_BYTES (8u << 20) /* all of it counts as the daemon's memory */
#define AM_SESSIONS_MAX 4096u
#define AM_PERMITS_MAX 32768u /* threads of sessions that have asked for an exec */
#define AM_HEAD_MAX 8192u     /* what interpreters put in front of a script's arguments: 5 of them at most */

enum am_type {
  AM_EXEC = 1,
  AM_FORK = 2,
  AM_EXIT = 3,
  AM_FILE = 4,    /* made in user space by the notify and fanotify probes */
  AM_CONNECT = 5, /* attempt; for tcp an AM_SOCK_RESULT with the same cookie follows */
  AM_SOCK_RESULT = 6,
  AM_BIND = 7,
  AM_LISTEN = 8,
  AM_SEND = 9,
  AM_UNIX_CONNECT = 10,
  AM_UNIX_SEND = 11,
  AM_EVENT = 12,      /* made in user space by what has judged an act */
  AM_DENIED = 13,     /* lsm_abi.h */
  AM_SOCKET = 15,     /* refused by its family, type or protocol */
  AM_TYPE_COUNT = 16, /* size of the count of lost records, by type */
};

/* am_header.flags */
#define AM_F_ARGV_CUT 0x1u    /* argv is longer than what was kept */
#define AM_F_PATH_CUT 0x2u    /* a path was longer than what was kept; its outermost part is missing */
#define AM_F_REVERSED 0x4u    /* paths are components, innermost first, each ended by NUL */
#define AM_F_AS_ASKED 0x8u    /* names as the program gave them; outcome not known */
#define AM_F_FIRST_ONLY 0x10u /* the source sees only first accesses: count is at least */
#define AM_F_CORE 0x20u       /* exit: core dumped */
#define AM_F_ARGV_OTHER 0x40u /* exec, killed: its arguments are not those that were judged */
#define AM_F_NO_PERMIT 0x80u  /* exec, killed: nobody has judged it */
#define AM_F_NAMELESS 0x100u  /* exec, killed: its file never had a name */

struct am_header {
  am_u16 type;   /* enum am_type */
  am_u16 source; /* agentmon.v1.Source */
  am_u32 size;   /* whole record, this header included */
  am_u32 flags;
  am_u32 uid; /* real uid in the initial user namespace */
  am_u64 boot_ns;
  am_u64 cgroup_id; /* the session's cgroup (ancestor at the session level), or a watched tree: below */
  am_u64 start_ns;  /* birth of the process, CLOCK_BOOTTIME; 0 = not known (look the pid up) */
  am_u32 pid;       /* thread-group id */
  am_u32 tid;
};

/* A tree that is watched where it is has AM_WATCHED | its number in place of a cgroup's id. */
#define AM_WATCHED 0x8000000000000000ull

/* Followed by exe_len + cwd_len + filename_len + argv_len bytes, in this order.
 * argv is the process's argument area: strings each ended by NUL. */
struct am_exec {
  struct am_header h;
  am_u64 parent_start_ns;
  am_u32 ppid;
  am_u32 argc;
  am_u32 exe_len;
  am_u32 cwd_len;
  am_u32 filename_len;
  am_u32 argv_len;
  am_u32 argv_total;
  am_u32 pad;
};

struct am_fork {
  struct am_header h; /* the parent */
  am_u64 child_start_ns;
  am_u32 child_pid;
  am_u32 pad;
};

struct am_exit {
  struct am_header h;
  am_u64 cpu_ns;
  am_u64 peak_rss_bytes;
  am_s32 wait_status; /* as wait(2) gives it */
  am_u32 pad;
};

/* Followed by path_len + new_path_len bytes. kind is agentmon.v1.EventKind (10 to 23). */
struct am_file {
  struct am_header h;
  am_u32 kind;
  am_u32 open_flags;
  am_u32 mode;
  am_s32 uid;
  am_s32 gid;
  am_u32 path_len;
  am_u64 size;
  am_u32 new_path_len;
  am_u32 pad;
};

/* AM_EVENT: the header, and then a serialized agentmon.v1.Event with kind, detail and judgement. */

/* AM_CONNECT, AM_BIND, AM_LISTEN, AM_SEND. Addresses in network order; IPv4 in the first four bytes.
 * AM_SOCKET: port is the type of the socket. */
struct am_sock {
  struct am_header h;
  am_u64 cookie;
  am_u8 address[16];
  am_u16 family;   /* AF_INET or AF_INET6, as the program used it */
  am_u16 protocol; /* IPPROTO_* */
  am_u16 port;     /* host order */
  am_u8 verdict;   /* AM_VERDICT_*: what the program did */
  am_u8 layer;     /* index in the policy's snapshot, of what decided */
  am_u32 policy;   /* number of the policy that was asked */
  am_u32 rule;     /* index in the layer's file, or AM_NET_BY_* of network_abi.h */
};
#define AM_VERDICT_NONE 0u /* nothing was judged */
#define AM_VERDICT_ALLOWED 1u
#define AM_VERDICT_DENIED 2u
#define AM_VERDICT_LED 3u /* to the session's resolver */

/* How an AM_CONNECT ended; sock is that of the attempt. ECANCELED = the program gave up. */
struct am_sock_result {
  struct am_sock sock;
  am_s32 error; /* 0 = connected, else a positive errno */
  am_u32 pad;
};

/* AM_UNIX_CONNECT, AM_UNIX_SEND. Followed by cwd_len bytes of the caller's directory (for relative
 * names) and then name_len bytes of sun_path as given; a leading NUL = abstract. */
struct am_unix {
  struct am_header h;
  am_u32 cwd_len;
  am_u32 name_len;
  am_u32 sock_type; /* SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET */
  am_u32 verdict;   /* AM_VERDICT_NONE, or AM_VERDICT_DENIED: nobody had judged it */
};

/* Not records: what programs and daemon share in maps and iterators. */
struct am_ring_state {
  am_u32 armed; /* 1 = the consumer sleeps: the next record wakes it */
  am_u32 pad;
};

struct am_permit { /* arguments as they were judged: all of them, and those after the first; SipHash */
  am_u64 all_hash;
  am_u64 tail_hash;
  am_u32 all_bytes; /* each argument with its NUL, AM_ARGV_MAX at most */
  am_u32 tail_bytes;
  am_u32 tgid;
  am_u32 flags; /* AM_PERMIT_* */
};

#define AM_PERMIT_CUT 0x1u /* more may follow: it was not judged */
#define AM_PERMIT_ANY 0x2u /* whatever the arguments: nothing was stopped at that moment */

/* What the name of a thread's next connect or datagrams on a unix socket was found to mean. Such a call goes
 * to `name`, whatever stands in the program's memory by then. */
#define AM_UNIX_NAME_MAX 108
struct am_unix_permit {
  am_u64 cgroup_id; /* of the session */
  am_u64 until_ns;  /* CLOCK_BOOTTIME */
  am_u32 uses;
  am_u32 error;  /* errno that it fails with, 0 = it goes to `name` */
  am_u32 after;  /* errno of what comes after the uses, once; 0 = then there is no permit */
  am_u32 length; /* of name: 1 to AM_UNIX_NAME_MAX */
  am_u32 type;   /* only for sockets of this type, such as SOCK_STREAM; 0 = of any */
  am_u32 pad;
  am_u8 name[112];
};

struct am_own_socket { /* a unix socket that a process of a session serves, under a name */
  am_u64 cgroup_id;    /* of the session */
  am_u64 ino;          /* of its file, 0 = abstract */
  am_u32 dev;          /* as the kernel has it: major << 20 | minor */
  am_u32 name_len;     /* of an abstract one, without the NUL in front */
  am_u32 type;         /* each type has abstract names of its own */
  am_u32 pad;
  am_u8 name[112];
};

struct am_verified {       /* a session whose execs need permits */
  am_u64 lenient_until_ns; /* CLOCK_BOOTTIME: before, one without a permit passes */
};

struct am_key { /* a process */
  am_u64 start_ns;
  am_u32 pid;
  am_u32 pad;
};

struct am_task { /* one process of the task table */
  struct am_key key;
  struct am_key parent; /* who gets its SIGCHLD now */
  am_u64 cgroup_id;     /* ancestor at the session level, 0 = it is higher up */
  am_u32 uid;
  am_u16 kernel_thread;
  am_u16 alive; /* a thread of it still runs */
};

#define AM_ABI_ASSERT(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " layout")
#ifdef __cplusplus
#undef AM_ABI_ASSERT
#define AM_ABI_ASSERT(type, bytes) static_assert(sizeof(type) == (bytes), #type " layout")
#endif
AM_ABI_ASSERT(struct am_header, 48);
AM_ABI_ASSERT(struct am_exec, 88);
AM_ABI_ASSERT(struct am_fork, 64);
AM_ABI_ASSERT(struct am_exit, 72);
AM_ABI_ASSERT(struct am_file, 88);
AM_ABI_ASSERT(struct am_sock, 88);
AM_ABI_ASSERT(struct am_sock_result, 96);
AM_ABI_ASSERT(struct am_unix, 64);
AM_ABI_ASSERT(struct am_permit, 32);
AM_ABI_ASSERT(struct am_unix_permit, 152);
AM_ABI_ASSERT(struct am_own_socket, 144);
AM_ABI_ASSERT(struct am_verified, 8);
AM_ABI_ASSERT(struct am_key, 16);
AM_ABI_ASSERT(struct am_task, 48);

#endif
