#include "client/connection/socket.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

class TestDirectory {
 public:
  TestDirectory() {
    REQUIRE(mkdtemp(path_.data()) != nullptr);
    chmod(path_.c_str(), 0777);
  }
  ~TestDirectory() {
    unlink(Socket().c_str());
    rmdir(path_.c_str());
  }
  std::string Socket() const { return path_ + "/s"; }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/socket-test.XXXXXX";
};

UniqueFd Listen(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd.Reset();
  return fd;
}

}  // namespace

TEST_CASE("the socket is the option, else the environment's, else the default") {
  setenv("AGENTMON_SOCKET", "/env.sock", 1);
  CHECK(SocketPath("/option.sock") == "/option.sock");
  CHECK(SocketPath("") == "/env.sock");
  setenv("AGENTMON_SOCKET", "", 1);
  CHECK(SocketPath("") == "/run/agentmon/agentmond.sock");
  unsetenv("AGENTMON_SOCKET");
  CHECK(SocketPath("") == "/run/agentmon/agentmond.sock");
}

TEST_CASE("a server is trusted as root or as the caller, by root as root only") {
  CHECK(ServerIsTrusted(0, 0));
  CHECK(ServerIsTrusted(0, 1000));
  CHECK(ServerIsTrusted(1000, 1000));
  CHECK_FALSE(ServerIsTrusted(1001, 1000));
  CHECK_FALSE(ServerIsTrusted(1000, 0));
}

TEST_CASE("a missing socket and a dead one are told apart, and what to do is said") {
  TestDirectory directory;
  const absl::Status missing = Dial(directory.Socket()).status();
  CHECK(missing.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StrContains(missing.message(),
                          absl::StrCat("no daemon at ", directory.Socket(), " (no such file)")));
  CHECK(absl::StrContains(missing.message(), HowToStart()));
  Listen(directory.Socket()).Reset();  // the file stays, nobody listens
  CHECK(absl::StrContains(Dial(directory.Socket()).status().message(), "connection refused"));
}

TEST_CASE("systemctl is named only where systemd runs and knows agentmon") {
  TestDirectory directory;
  const std::string root = directory.path() + "/";
  CHECK(HowToStart(root) == "start agentmond as root, or, enforcing less, as yourself with --user");
  const std::string unit = root + "usr/lib/systemd/system/agentmon.service";
  std::filesystem::create_directories(unit);
  CHECK(HowToStart(root) == "start agentmond as root, or, enforcing less, as yourself with --user");
  std::filesystem::create_directories(root + "run/systemd/system");
  CHECK(HowToStart(root) == "start it with 'systemctl start agentmon'");
  CHECK(absl::StrContains(WhereToLook(root), "systemctl status agentmon"));
  std::filesystem::remove_all(root + "usr");
  CHECK_FALSE(absl::StrContains(WhereToLook(root), "systemctl"));
  std::filesystem::remove_all(root + "run");
}

TEST_CASE("what is no socket is told as that") {
  TestDirectory directory;
  CHECK(Dial(directory.path()).status().message() ==
        directory.path() + " is no socket: name the daemon's with --socket");
}

TEST_CASE("a socket name that does not fit is refused with its limit") {
  CHECK(absl::StrContains(Dial("/" + std::string(200, 'x')).status().message(), "at most 107 bytes"));
}

TEST_CASE("the descriptor to a trusted server is close-on-exec and non-blocking") {
  TestDirectory directory;
  UniqueFd server = Listen(directory.Socket());
  REQUIRE(listen(server.get(), 1) == 0);
  absl::StatusOr<UniqueFd> client = Dial(directory.Socket());
  REQUIRE(client.ok());
  CHECK((fcntl(client->get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((fcntl(client->get(), F_GETFL) & O_NONBLOCK) != 0);
}

TEST_CASE("a server of another user is refused before a byte is sent") {
  if (geteuid() != 0) return;  // only root can play another user
  TestDirectory directory;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t server = fork();
  if (server == 0) {
    if (setuid(65534) != 0) _exit(100);
    const UniqueFd fd = Listen(directory.Socket());
    if (!fd.valid() || listen(fd.get(), 1) != 0 || write(ready[1], "r", 1) != 1) _exit(101);
    const int connection = accept(fd.get(), nullptr, nullptr);
    char byte;
    _exit(static_cast<int>(read(connection, &byte, 1)));  // 0: closed without a byte
  }
  char byte;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  const absl::Status status = Dial(directory.Socket()).status();
  CHECK(status.code() == absl::StatusCode::kPermissionDenied);
  CHECK(absl::StrContains(status.message(), "runs as uid 65534"));
  int end = 0;
  waitpid(server, &end, 0);
  CHECK(end == 0);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace agentmon
