#include "shim/stage/descriptors.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <catch2/catch.hpp>

#include "shim/stage/child_fixture.h"

namespace agentmon {
namespace {

bool Inherits(int fd) {
  const int flags = fcntl(fd, F_GETFD);
  return flags >= 0 && (flags & FD_CLOEXEC) == 0;
}

// Does what `open` opened reach the agent? Answers 1 or 0.
int Reaches(const std::function<int()>& open, bool keep = false) {
  return InChild([&] {
    const int fd = open();
    if (fd <= STDERR_FILENO || !Inherits(fd)) return 100;
    if (!CloseWhatLeadsOut(keep ? std::vector<int>{fd} : std::vector<int>{}).ok()) return kStageFailed;
    return Inherits(fd) ? 1 : 0;
  });
}

int Socket() { return socket(AF_UNIX, SOCK_STREAM, 0); }
int Directory() { return open("/", O_RDONLY | O_DIRECTORY); }

// The status of the stage when `fd` is descriptor number `number`.
int WithStandard(int number, const std::function<int()>& open) {
  return InChild([&] {
    if (dup2(open(), number) != number) return 100;
    return CloseWhatLeadsOut({}).ok() ? 0 : 1;
  });
}

}  // namespace

TEST_CASE("directories, O_PATH descriptors, sockets, devices and kernel objects do not reach the agent") {
  CHECK(Reaches(Directory) == 0);
  CHECK(Reaches(Socket) == 0);
  CHECK(Reaches([] { return open("/etc/passwd", O_PATH); }) == 0);
  CHECK(Reaches([] { return open("/", O_PATH); }) == 0);
  CHECK(Reaches([] { return open("/dev/ptmx", O_RDWR | O_NOCTTY); }) == 0);
  CHECK(Reaches([] { return open("/proc/self/ns/mnt", O_RDONLY); }) == 0);
  CHECK(Reaches([] {
          const int fd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
          fcntl(fd, F_SETFD, 0);
          return fd;
        }) == 0);
}

TEST_CASE("a terminal that is not the session's does not reach the agent, its own does") {
  CHECK(Reaches([] {
          int master, slave;
          return openpty(&master, &slave, nullptr, nullptr, nullptr) == 0 ? slave : -1;
        }) == 0);
  CHECK(Reaches([] {
          int master, slave;
          if (openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) return -1;
          dup2(slave, STDIN_FILENO);
          return slave;
        }) == 1);
  const auto controlling = [](bool other_end) {
    int master, slave;
    if (setsid() < 0 || openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) return -1;
    return ioctl(slave, TIOCSCTTY, 0) == 0 ? (other_end ? master : slave) : -1;
  };
  CHECK(Reaches([&] { return controlling(false); }) == 1);
  CHECK(Reaches([&] { return controlling(true); }) == 0);  // what is written there is typed
}

TEST_CASE("pipes, regular files, harmless devices and counters reach the agent") {
  CHECK(Reaches([] {
          int ends[2];
          return pipe(ends) == 0 ? ends[1] : -1;
        }) == 1);
  CHECK(Reaches([] { return open("/etc/passwd", O_RDONLY); }) == 1);
  CHECK(Reaches([] { return memfd_create("x", 0); }) == 1);
  CHECK(Reaches([] { return eventfd(0, 0); }) == 1);
  CHECK(Reaches([] { return epoll_create1(0); }) == 1);
  for (const char* device : {"/dev/null", "/dev/zero", "/dev/full", "/dev/urandom"}) {
    CHECK(Reaches([&] { return open(device, O_RDONLY); }) == 1);
  }
}

TEST_CASE("what is to be kept reaches the agent whatever it is") {
  CHECK(Reaches(Directory, true) == 1);
  CHECK(Reaches(Socket, true) == 1);
}

TEST_CASE("a socket may be a standard descriptor, a directory or O_PATH descriptor may not") {
  for (const int number : {0, 1, 2}) {
    CHECK(WithStandard(number, Socket) == 0);
    CHECK(WithStandard(number, Directory) == 1);
    CHECK(WithStandard(number, [] { return open("/etc/passwd", O_PATH); }) == 1);
  }
  CHECK(InChild([] {
          if (dup2(Directory(), 0) != 0) return 100;
          return CloseWhatLeadsOut({0}).ok() ? 0 : 1;
        }) == 0);
}

TEST_CASE("closed standard descriptors are no error") {
  CHECK(InChild([] {
          close(0);
          close(1);
          close(2);
          return CloseWhatLeadsOut({}).ok() ? 0 : 1;
        }) == 0);
}

}  // namespace agentmon
