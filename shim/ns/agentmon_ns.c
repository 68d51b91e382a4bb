/* agentmon-ns: gives agentmon-shim, which stands beside it, a mount namespace of its own.
 *
 * Installed with the file capability cap_sys_admin=ep; root needs none. It uses the capability for one
 * unshare and one mount, gives it up, and execs the shim with all its arguments. Where the namespace is
 * refused, the shim runs all the same with --ns-error=WHY as its first argument: observation fails open. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { kExitOwnFailure = 125 };

static void Fail(const char* what) {
  dprintf(STDERR_FILENO, "agentmon: agentmon-ns: %s: %s\n", what, strerror(errno));
  _exit(kExitOwnFailure);
}

/* glibc opens /dev/full and /dev/null where 0 to 2 are closed in a program with privileges (csu/check_fds.c).
 * Its O_NOFOLLOW, which a shell's redirection never has, tells them apart from descriptors of the caller. */
static void CloseWhatGlibcOpened(void) {
  for (int fd = 0; fd <= 2; ++fd) {
    struct stat st;
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || !(flags & O_NOFOLLOW) || fstat(fd, &st) != 0 || !S_ISCHR(st.st_mode)) continue;
    if (st.st_rdev == makedev(1, 7) || st.st_rdev == makedev(1, 3)) close(fd);
  }
}

/* The environment as the caller gave it. glibc has taken LD_LIBRARY_PATH, TMPDIR and others out of `environ`,
 * but the kernel laid the strings out in one block, after those of argv and before the file name (fs/exec.c).
 */
static char** CallersEnvironment(int argc, char** argv) {
  char* const start = argv[argc - 1] + strlen(argv[argc - 1]) + 1;
  char* const end = (char*)getauxval(AT_EXECFN);
  size_t count = 0;
  for (char* p = start; p < end; p += strlen(p) + 1) ++count;
  char** env = calloc(count + 1, sizeof *env);
  if (env == NULL) Fail("calloc");
  count = 0;
  for (char* p = start; p < end; p += strlen(p) + 1) env[count++] = p;
  return env;
}

/* Inheritable capabilities stay: they were the caller's. A root caller keeps all: the agent is root as
 * before. */
static void DropCapabilities(void) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
  if (getuid() == 0) return;
  if (syscall(SYS_capget, &header, data) != 0) Fail("capget");
  for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; ++i) data[i].effective = data[i].permitted = 0;
  if (syscall(SYS_capset, &header, data) != 0) Fail("capset");
  /* The bounding set cannot be dropped without cap_setpcap; this makes it moot. */
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) Fail("no_new_privs");
}

int main(int argc, char** argv) {
  static char error[128], self[4096], shim[4096 + sizeof "/agentmon-shim"];
  if (argc < 1) return kExitOwnFailure;
  char** const env = CallersEnvironment(argc, argv);
  CloseWhatGlibcOpened();
  if (unshare(CLONE_NEWNS) != 0) {
    snprintf(error, sizeof error, "--ns-error=unshare: %s", strerror(errno));
  } else if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
    Fail("make mounts private"); /* unmounts in here would reach the host */
  }
  DropCapabilities();

  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) Fail("/proc/self/exe");
  snprintf(shim, sizeof shim, "%s/agentmon-shim", dirname(self));
  char** const args = calloc((size_t)argc + 2, sizeof *args);
  if (args == NULL) Fail("calloc");
  int n = 0;
  args[n++] = shim;
  if (error[0] != '\0') args[n++] = error;
  for (int i = 1; i < argc; ++i) args[n++] = argv[i];
  execve(shim, args, env);
  Fail(shim);
}
