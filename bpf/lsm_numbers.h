/* Numbers of agentmon.v1.EventKind and policy::FileOp that programs use: pinned by assertions in
 * daemon/enforce/lsm_compile.cc and daemon/event/decode.cc. */
#ifndef AGENTMON_BPF_LSM_NUMBERS_H
#define AGENTMON_BPF_LSM_NUMBERS_H

enum {
  KIND_EXEC = 1,
  KIND_OPEN = 10,
  KIND_OPEN_WRITE = 11,
  KIND_CREATE = 12,
  KIND_WRITE = 13,
  KIND_DELETE = 14,
  KIND_RENAME = 15,
  KIND_LINK = 16,
  KIND_SYMLINK = 17,
  KIND_CHMOD = 18,
  KIND_CHOWN = 19,
  KIND_TRUNCATE = 20,
  KIND_MKDIR = 21,
  KIND_RMDIR = 22,
  KIND_MKNOD = 23,
  KIND_UNIX_CONNECT = 34,
  KIND_UNIX_SEND = 35,
  KIND_SIGNAL = 40,
  KIND_CALL = 41,
};

enum {
  OP_OPEN = 1u << 0,
  OP_READ = 1u << 1,
  OP_WRITE = 1u << 6,
  OP_CREATE = 1u << 7,
  OP_MKDIR = 1u << 8,
  OP_CHMOD = 1u << 9,
  OP_CHOWN = 1u << 10,
  OP_RENAME = 1u << 11,
  OP_DELETE = 1u << 12,
  OP_RMDIR = 1u << 13,
  OP_LINK = 1u << 14,
  OP_SYMLINK = 1u << 15,
  OP_MKNOD = 1u << 16,
  OP_UNIX_CONNECT = 1u << 18, /* policy::kUnixConnect, which is a number of another list */
  OP_UNIX_SENDTO = 1u << 19,
  OP_EXEC = 1u << 20,       /* a program is started by its own name, ours too */
  OP_EXEC_OTHER = 1u << 21, /* by another one */
  OP_MAP = 1u << 22,        /* and mapped as code */
  OP_BELOW = 1u << 17, /* of our own: a directory is moved that something protected lies below */
};

#endif
