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

UDP = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
enum { BATCH = 64 };
/* udp COUNT sendto|send: datagrams of 64 bytes to a socket of its own, which takes them away 64 at a time. */
int main(int argc, char **argv) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof a;
  int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0), named = !strcmp(argv[2], "sendto");
  if (bind(in, (void *)&a, sizeof a) || getsockname(in, (void *)&a, &size)) return 1;
  if (!named && connect(out, (void *)&a, sizeof a)) return 2;
  char data[64] = {0}, got[BATCH][64];
  struct iovec parts[BATCH];
  struct mmsghdr messages[BATCH] = {0};
  for (int i = 0; i < BATCH; i++) {
    parts[i] = (struct iovec){got[i], sizeof got[i]};
    messages[i].msg_hdr.msg_iov = &parts[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  for (long n = atol(argv[1]); n > 0; n -= BATCH) {
    for (int i = 0; i < BATCH; i++) {
      ssize_t sent = named ? sendto(out, data, sizeof data, 0, (void *)&a, sizeof a) : send(out, data, sizeof data, 0);
      if (sent != sizeof data) return 3;
    }
    if (recvmmsg(in, messages, BATCH, MSG_DONTWAIT, 0) != BATCH) return 4;
  }
  return 0;
}
"""

DNS_ASK = r"""
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
/* dns_ask COUNT SERVER NAME: asks for the address of a name, one question after the other. */
int main(int argc, char **argv) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(53)};
  struct timeval patience = {2, 0};
  unsigned char question[512] = {0, 0, 1, 0, 0, 1}, answer[512], *at = question + 12;
  inet_pton(AF_INET, argv[2], &a.sin_addr);
  for (char *label = strtok(argv[3], "."); label; label = strtok(0, ".")) {
    *at++ = strlen(label);
    at = (unsigned char *)stpcpy((char *)at, label);
  }
  memcpy(at, "\0\0\1\0\1", 5);
  size_t size = at + 5 - question;
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (connect(fd, (void *)&a, sizeof a)) return 1;
  for (long n = atol(argv[1]); n > 0; n--) {
    question[0] = n >> 8;
    question[1] = n;
    if (send(fd, question, size, 0) != (ssize_t)size) return 2;
    ssize_t got = recv(fd, answer, sizeof answer, 0);
    if (got < 12 || memcmp(answer, question, 2) || (answer[3] & 15) || !answer[7]) return 3;
  }
  return 0;
}
"""

HTTP_SERVE = r"""
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
/* Answers each connection on the loopback with one page of 1 KB; prints its port. */
int main(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof a;
  char page[1200], body[1025], request[4096];
  memset(body, 'x', 1024);
  body[1024] = 0;
  int length = sprintf(page, "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n%s", body);
  int l = socket(AF_INET, SOCK_STREAM, 0), fd;
  if (bind(l, (void *)&a, sizeof a) || listen(l, 64) || getsockname(l, (void *)&a, &size)) return 1;
  printf("%d\n", ntohs(a.sin_port));
  fflush(stdout);
  while ((fd = accept(l, 0, 0)) >= 0) {
    int at = 0, got;
    while ((got = read(fd, request + at, sizeof request - 1 - at)) > 0) {
      request[at += got] = 0;
      if (!strstr(request, "\r\n\r\n")) continue;
      write(fd, page, length);
      break;
    }
    close(fd);
  }
  return 0;
}
"""

HTTP_GET = r"""
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
/* http_get COUNT PORT PROXY: a page of 127.0.0.1 each time on a connection of its own, through the proxy at that port unless it
   is 0. */
int main(int argc, char **argv) {
  int port = atoi(argv[2]), proxy = atoi(argv[3]);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(proxy ? proxy : port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  char request[256], answer[8192], origin[64] = "";
  if (proxy) sprintf(origin, "http://127.0.0.1:%d", port);
  int length = sprintf(request, "GET %s/ HTTP/1.0\r\nHost: 127.0.0.1:%d\r\n\r\n", origin, port);
  for (long n = atol(argv[1]); n > 0; n--) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), at = 0, got;
    if (connect(fd, (void *)&a, sizeof a) || write(fd, request, length) != length) return 1;
    while ((got = read(fd, answer + at, sizeof answer - at)) > 0) at += got;
    if (got < 0 || at < 1024 || strncmp(answer + 8, " 200 ", 5)) return 2;
    close(fd);
  }
  return 0;
}
"""

DIAL = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
/* dial ADDRESS: prints how a TCP connect to it ends. */
int main(int argc, char **argv) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9)};
  inet_pton(AF_INET, argv[1], &a.sin_addr);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  puts(connect(fd, (void *)&a, sizeof a) ? strerrorname_np(errno) : "connected");
  return 0;
}
"""

ALL = {"timer": TIMER, "nothing": NOTHING, "fork_exec": FORK_EXEC, "open_close": OPEN_CLOSE, "connect": CONNECT,
       "getppid": GETPPID, "udp": UDP, "dns_ask": DNS_ASK, "http_serve": HTTP_SERVE, "http_get": HTTP_GET, "dial": DIAL}
