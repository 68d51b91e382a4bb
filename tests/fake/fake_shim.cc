// Stands in for agentmon-shim: checks how it was called, reads the token and becomes the agent, all without a
// daemon. With FAKE_SHIM_LOG set it writes its arguments and the token there first, one a line.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int argc, char** argv) {
  int token_fd = -1, command = 0;
  for (int i = 1; i < argc && command == 0; ++i) {
    if (strcmp(argv[i], "--token-fd") == 0 && i + 1 < argc) token_fd = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--") == 0) command = i + 1;
  }
  char token[64];
  const ssize_t size = read(token_fd, token, sizeof token);
  if (size != 32 || read(token_fd, token, 1) != 0 || command == 0 || command >= argc) {
    fprintf(stderr, "agentmon-shim: called wrongly (token of %zd bytes)\n", size);
    return 125;
  }
  close(token_fd);
  if (const char* path = getenv("FAKE_SHIM_LOG")) {
    FILE* log = fopen(path, "w");
    if (log == nullptr) return 125;
    for (int i = 0; i < argc; ++i) fprintf(log, "%s\n", argv[i]);
    fclose(log);
  }
  execvp(argv[command], argv + command);
  const int error = errno;
  fprintf(stderr, "agentmon-shim: %s: %s\n", argv[command], strerror(error));
  return error == ENOENT ? 127 : 126;
}
