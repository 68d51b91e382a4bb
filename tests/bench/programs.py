"""The small C programs of the benchmarks. Each prints nothing; the timer says how long."""

TIMER = r"""
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
extern char **environ;
/* timer FILE CMD ARGS...: runs CMD and writes the nanoseconds to FILE; its exit status is CMD's. */
int main(int argc, char **argv) {
  struct timespec a, b;
  pid_t pid;
  int status;
  clock_gettime(CLOCK_MONOTONIC, &a);
  if (argc < 3 || posix_spawnp(&pid, argv[2], 0, 0, argv + 2, environ)) return 127;
  waitpid(pid, &status, 0);
  clock_gettime(CLOCK_MONOTONIC, &b);
  FILE *f = fopen(argv[1], "w");
  if (!f) return 126;
  fprintf(f, "%lld\n", (b.tv_sec - a.tv_sec) * 1000000000LL + b.tv_nsec - a.tv_nsec);
  fclose(f);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
"""

NOTHING = "int main(void) { return 0; }"

FORK_EXEC = r"""
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
  for (long n = atol(argv[1]); n > 0; n--) {
    pid_t pid = fork();
    if (pid == 0) { execl(argv[2], argv[2], (char *)0); _exit(127); }
    int status;
    if (waitpid(pid, &status, 0) != pid || status) return 1;
  }
  return 0;
}
"""

OPEN_CLOSE = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int flags = strcmp(argv[3], "write") ? O_RDONLY : O_WRONLY | O_CREAT;
  for (long n = atol(argv[1]); n > 0; n--) {
    int fd = open(argv[2], flags, 0600);
    if (fd < 0 || close(fd)) return 1;
  }
  return 0;
}
"""

CONNECT = r"""
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
static void *serve(void *arg) {
  int l = *(int *)arg, fd;
  while ((fd = accept(l, 0, 0)) >= 0) close(fd);
  return 0;
}
int main(int argc, char **argv) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof a;
  int l = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(l, (void *)&a, sizeof a) || listen(l, 4096) || getsockname(l, (void *)&a, &size)) return 1;
  pthread_t t;
  pthread_create(&t, 0, serve, &l);
  struct linger reset = {1, 0}; /* leaves no TIME_WAIT behind */
  for (long n = atol(argv[1]); n > 0; n--) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (connect(fd, (void *)&a, sizeof a)) return 2;
    close(fd);
  }
  return 0;
}
"""

GETPPID = r"""
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
  for (long n = atol(argv[1]); n > 0; n--) syscall(SYS_getppid);
  return 0;
}
"""

ALL = {"timer": TIMER, "nothing": NOTHING, "fork_exec": FORK_EXEC, "open_close": OPEN_CLOSE, "connect": CONNECT,
       "getppid": GETPPID}
