// The system calls that the observing seccomp filter sends to the daemon, and where their arguments are.
// One table for both sides: the shim builds the filter from it, the daemon reads the requests with it.
#pragma once

#include <fcntl.h>

#include <cstdint>

namespace agentmon {

enum class FileAct : uint8_t {
  kOpen,
  kOpenHow,
  kCreat,
  kUnlink,
  kRename,
  kLink,
  kSymlink,
  kMkdir,
  kRmdir,
  kMknod,
  kChmod,
  kChown,
  kTruncate,
  kExec,
};

// Positions of arguments, 0 to 5; -1 = the call has none.
struct MediatedCall {
  const char* name;  // as libseccomp knows it; not every architecture has every call
  FileAct act;
  int8_t dirfd = -1;  // directory of `path`; without it the current directory
  int8_t path = -1;   // address of the name
  int8_t flags = -1;  // open(2) flags, AT_* flags, or the address of struct open_how
  int8_t value = -1;  // mode (of mknod the device follows it), uid (the gid follows it), length, RENAME_*
                      // flags, or the address of argv
  int8_t new_dirfd = -1;
  int8_t new_path = -1;      // rename, link: new name; symlink: target
  int8_t fd = -1;            // the object itself, by descriptor
  bool split_value = false;  // 32-bit calls that pass a length in two registers, low half first
};

// Opens for reading only are not mediated: fanotify sees them, and they are the calls that programs
// make most. ftruncate is a write through a descriptor, like write(2) and fallocate: the open for writing was
// mediated, and what captures output (pytest) calls it several times a test. openat2 keeps its flags in
// memory, where a filter cannot look, so every one is mediated.
inline constexpr uint32_t kMediatedOpenFlags = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;

inline constexpr MediatedCall kMediatedCalls[] = {
    {.name = "open", .act = FileAct::kOpen, .path = 0, .flags = 1, .value = 2},
    {.name = "openat", .act = FileAct::kOpen, .dirfd = 0, .path = 1, .flags = 2, .value = 3},
    {.name = "openat2", .act = FileAct::kOpenHow, .dirfd = 0, .path = 1, .flags = 2},
    {.name = "creat", .act = FileAct::kCreat, .path = 0, .value = 1},
    {.name = "unlink", .act = FileAct::kUnlink, .path = 0},
    {.name = "unlinkat", .act = FileAct::kUnlink, .dirfd = 0, .path = 1, .flags = 2},
    {.name = "rename", .act = FileAct::kRename, .path = 0, .new_path = 1},
    {.name = "renameat", .act = FileAct::kRename, .dirfd = 0, .path = 1, .new_dirfd = 2, .new_path = 3},
    {.name = "renameat2",
     .act = FileAct::kRename,
     .dirfd = 0,
     .path = 1,
     .value = 4,
     .new_dirfd = 2,
     .new_path = 3},
    {.name = "link", .act = FileAct::kLink, .path = 0, .new_path = 1},
    {.name = "linkat",
     .act = FileAct::kLink,
     .dirfd = 0,
     .path = 1,
     .flags = 4,
     .new_dirfd = 2,
     .new_path = 3},
    {.name = "symlink", .act = FileAct::kSymlink, .path = 1, .new_path = 0},
    {.name = "symlinkat", .act = FileAct::kSymlink, .dirfd = 1, .path = 2, .new_path = 0},
    {.name = "mkdir", .act = FileAct::kMkdir, .path = 0, .value = 1},
    {.name = "mkdirat", .act = FileAct::kMkdir, .dirfd = 0, .path = 1, .value = 2},
    {.name = "rmdir", .act = FileAct::kRmdir, .path = 0},
    {.name = "mknod", .act = FileAct::kMknod, .path = 0, .value = 1},
    {.name = "mknodat", .act = FileAct::kMknod, .dirfd = 0, .path = 1, .value = 2},
    {.name = "chmod", .act = FileAct::kChmod, .path = 0, .value = 1},
    {.name = "fchmod", .act = FileAct::kChmod, .value = 1, .fd = 0},
    {.name = "fchmodat", .act = FileAct::kChmod, .dirfd = 0, .path = 1, .value = 2},
    {.name = "fchmodat2", .act = FileAct::kChmod, .dirfd = 0, .path = 1, .flags = 3, .value = 2},
    {.name = "chown", .act = FileAct::kChown, .path = 0, .value = 1},
    {.name = "lchown", .act = FileAct::kChown, .path = 0, .value = 1},
    {.name = "fchown", .act = FileAct::kChown, .value = 1, .fd = 0},
    {.name = "fchownat", .act = FileAct::kChown, .dirfd = 0, .path = 1, .flags = 4, .value = 2},
    {.name = "truncate", .act = FileAct::kTruncate, .path = 0, .value = 1},
    // Only where the session's plan asks for it.
    {.name = "execve", .act = FileAct::kExec, .path = 0, .value = 1},
    {.name = "execveat", .act = FileAct::kExec, .dirfd = 0, .path = 1, .flags = 4, .value = 2},
    // 32-bit x86 only.
    {.name = "chown32", .act = FileAct::kChown, .path = 0, .value = 1},
    {.name = "lchown32", .act = FileAct::kChown, .path = 0, .value = 1},
    {.name = "fchown32", .act = FileAct::kChown, .value = 1, .fd = 0},
    {.name = "truncate64", .act = FileAct::kTruncate, .path = 0, .value = 1, .split_value = true},
};

// fchmodat2 (Linux 6.6) has one number everywhere; libseccomp 2.5.4 does not know its name.
inline constexpr int kFchmodat2Number = 452;

}  // namespace agentmon
