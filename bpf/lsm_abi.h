/* What the programs on the hooks of security modules and the daemon share in maps. */
#ifndef AGENTMON_BPF_LSM_ABI_H
#define AGENTMON_BPF_LSM_ABI_H

#include "event_abi.h"

#define AM_LSM_LAYERS 8u       /* of a policy: those that stop anything */
#define AM_LSM_SLOTS 6u        /* operations of one act, asked and implied */
#define AM_LSM_MATCHES 8u      /* rules that share one path, name, ... */
#define AM_LSM_DEPTH 128u      /* segments of a path; a power of two. What lies deeper is refused */
#define AM_LSM_LENGTHS 8u      /* different lengths of what names of a policy begin or end with */
#define AM_LSM_AFFIX 64u       /* bytes of these at most */
#define AM_LSM_ALIAS_DEPTH 16u /* segments of a path that is held by its inode as well; a power of two */
#define AM_LSM_HITS 4u         /* such inodes above one object that are looked at; the nearest ones */
#define AM_LSM_NODES_MAX 262144u
#define AM_LSM_ALIASES_MAX 65536u
#define AM_LSM_POLICIES_MAX 8192u
#define AM_LSM_RING_BYTES (1u << 20)
/* Patterns on whole names; powers of two. */
#define AM_LSM_NAME_WORDS 64u     /* of 64 positions each */
#define AM_LSM_NAME_CELLS 4096u   /* words, for each class of bytes that patterns tell apart */
#define AM_LSM_NAME_PATTERNS 256u
#define AM_LSM_NAME_BYTES 1024u   /* of a name; a longer one is refused */
#define AM_LSM_NAME_ENDS 3u       /* positions where a pattern may end */
#define AM_LSM_TOO_DEEP 0xffffffffu /* am_denied.layer: deeper than AM_LSM_DEPTH */
#define AM_LSM_OUTSIDE 0xfffffffeu  /* am_denied.layer: of no policy, what would reach out of the session */
#define AM_LSM_NO_RULE 0x1fffffffu  /* am_denied.rank: the layer's default */

/* am_lsm_key.kind: what the hash is of. */
enum am_lsm_kind {
  AM_LSM_NODE = 1,    /* a whole path, from the root */
  AM_LSM_SEGMENT = 2, /* any segment */
  AM_LSM_NAME = 3,    /* the last segment */
  AM_LSM_SUFFIX = 4,  /* its end */
  AM_LSM_PREFIX = 5,  /* its start */
};

struct am_lsm_key {
  am_u64 hash;
  am_u32 policy;
  am_u32 kind;
};

/* am_lsm_match.flags */
#define AM_LSM_STOPS 1u         /* the rule stops what is asked */
#define AM_LSM_STOPS_IMPLIED 2u /* and what comes along with it */
#define AM_LSM_UNSURE 4u        /* only user space can tell whether it matches */
#define AM_LSM_TREE 8u          /* nodes: of what lies below as well */

struct am_lsm_match {
  am_u32 rank;       /* order in the file, less than AM_LSM_NO_RULE */
  am_u32 operations; /* policy::FileOp */
  am_u8 layer;       /* of am_lsm_policy.layer */
  am_u8 flags;
  am_u8 root; /* segments and names: number of the directory that it must lie below, 0 = anywhere */
  am_u8 pad;
};

struct am_lsm_node {
  am_u32 count;
  am_u32 root; /* number of this path as such a directory, 0 = it is none */
  struct am_lsm_match match[AM_LSM_MATCHES];
};

/* am_lsm_policy.defaults */
#define AM_LSM_STOPS_READS 1u
#define AM_LSM_STOPS_WRITES 2u
#define AM_LSM_STOPS_SOCKETS 4u

/* Who gets a signal, of those outside of the session: bits of an index. */
#define AM_LSM_SYSTEM 1u
#define AM_LSM_SAME_USER 2u
#define AM_LSM_PARENT 4u
#define AM_LSM_TARGETS 8u

struct am_lsm_policy {
  am_u32 layers; /* [0] is the built-in one, whose answer is final */
  am_u32 read_operations;
  am_u32 socket_operations;
  am_u32 exec_operations; /* these have no default here */
  am_u32 defaults[AM_LSM_LAYERS];
  am_u32 layer[AM_LSM_LAYERS]; /* its number in the snapshot */
  am_u8 suffix[AM_LSM_LENGTHS], prefix[AM_LSM_LENGTHS]; /* lengths, 0 ends */
  am_u64 signals[AM_LSM_TARGETS]; /* that are stopped: bit N - 1 = signal N */
};

struct am_lsm_session {
  am_u32 policy;
  am_u32 pad;
};

struct am_lsm_inode {
  am_u64 ino;
  am_u32 dev; /* as the kernel has it: major << 20 | minor */
  am_u32 policy;
};

/* The path under which an inode is known. */
struct am_lsm_alias {
  am_u64 hash; /* of all of it */
  am_u64 depth;
  am_u64 segment[AM_LSM_ALIAS_DEPTH]; /* hashes, outermost first */
};

struct am_lsm_config {
  am_u64 key[2]; /* SipHash */
  am_u32 session_level;
  am_u32 host_mounts; /* number of the first process's mount namespace */
};

/* am_denied.open_flags of programs. */
#define AM_LSM_STARTED 0u
#define AM_LSM_MAPPED 1u

/* am_denied.open_flags of calls. */
#define AM_LSM_CALL_PTRACE 0u
#define AM_LSM_CALL_MOUNT 1u
#define AM_LSM_CALL_MOVE_MOUNT 2u
#define AM_LSM_CALL_UMOUNT 3u
#define AM_LSM_CALL_BPF 4u
#define AM_LSM_CALL_MODULE 5u

struct am_lsm_pattern {
  am_u16 end;   /* its last position */
  am_u16 early; /* so many before it are ends as well */
  struct am_lsm_match match;
};

/* Rules on sockets of one policy. */
struct am_lsm_names {
  am_u32 words;
  am_u32 patterns;
  am_u8 class_of[256];
  am_u64 cell[AM_LSM_NAME_CELLS];   /* class * words + word: positions that a byte of the class may enter */
  am_u64 start[AM_LSM_NAME_WORDS];
  am_u64 within[AM_LSM_NAME_WORDS]; /* positions that take more bytes, but no slash */
  am_u64 across[AM_LSM_NAME_WORDS]; /* any byte */
  am_u64 rest[AM_LSM_NAME_WORDS];   /* the bytes of one character behind its first */
  am_u64 over_one[AM_LSM_NAME_WORDS], over_two[AM_LSM_NAME_WORDS]; /* behind which so many may be left out */
  struct am_lsm_pattern pattern[AM_LSM_NAME_PATTERNS];
};

/* The one act whose verdict is worked out. */
struct am_lsm_judge {
  am_u64 hash;  /* of the path so far */
  am_u64 roots; /* directories that were passed, bits */
  am_u32 asked, implied;
  am_u32 count; /* segments of the path */
  am_u32 slot[AM_LSM_SLOTS];
  am_u32 best[AM_LSM_LAYERS][AM_LSM_SLOTS];
  am_u32 layer, rank; /* what stops it */
  am_u32 operation;   /* that the rule stops */
};

/* AM_DENIED. Followed by path_len + new_path_len bytes of reversed components; of sockets a plain name, of
 * processes an am_key. */
struct am_denied {
  struct am_header h;
  am_u32 kind; /* agentmon.v1.EventKind */
  am_u32 open_flags; /* of sockets: 1 = datagrams; of signals their number */
  am_u32 policy;
  am_u32 layer; /* in the policy's snapshot */
  am_u32 rank;
  am_u32 path_len;
  am_u32 new_path_len;
  am_u32 error; /* a positive errno */
};

AM_ABI_ASSERT(struct am_lsm_key, 16);
AM_ABI_ASSERT(struct am_lsm_match, 12);
AM_ABI_ASSERT(struct am_lsm_node, 104);
AM_ABI_ASSERT(struct am_lsm_policy, 160);
AM_ABI_ASSERT(struct am_lsm_pattern, 16);
AM_ABI_ASSERT(struct am_lsm_names, 264 + 8 * (4096 + 6 * 64) + 16 * 256);
AM_ABI_ASSERT(struct am_lsm_session, 8);
AM_ABI_ASSERT(struct am_lsm_inode, 16);
AM_ABI_ASSERT(struct am_lsm_alias, 144);
AM_ABI_ASSERT(struct am_lsm_config, 24);
AM_ABI_ASSERT(struct am_denied, 80);

#endif
