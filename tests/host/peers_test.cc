// Who calls: roles from real sockets, real cgroups and real process ends.
#include "daemon/rpc/peers.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "daemon/rpc/server.h"
#include "tests/fake/fake_task_runner.h"

namespace agentmon {
namespace {

class Fixture {
 public:
  explicit Fixture(Peers::Limits limits = {}) {
    char pattern[] = "/tmp/peers-XXXXXX";
    dir_ = mkdtemp(pattern);
    std::filesystem::permissions(dir_, std::filesystem::perms(0755));
    listener = std::move(*ListenOn(dir_ + "/s"));
    cgroups = *SessionCgroups::Create(runner, *FindCgroup2Mount(), absl::StrCat("peers-", getpid()));
    peers = std::make_unique<Peers>(*cgroups, 4242, limits);
  }
  ~Fixture() { std::filesystem::remove_all(dir_); }

  UniqueFd Connect() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, (dir_ + "/s").c_str());
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    return fd;
  }
  UniqueFd Accept() const { return UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)); }

  UniqueFd listener;
  FakeTaskRunner runner;
  std::unique_ptr<SessionCgroups> cgroups;
  std::unique_ptr<Peers> peers;

 private:
  std::string dir_;
};

// A child that connects (as another user when asked) and stays until killed. A byte on the pipe says that
// it is connected.
class Client {
 public:
  Client(const Fixture& f, uid_t uid, gid_t group) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      signal(SIGTERM, SIG_DFL);
      if (setgroups(1, &group) != 0 || setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0)
        _exit(1);
      const UniqueFd fd = f.Connect();
      [[maybe_unused]] const ssize_t n = write(ready[1], "x", 1);
      for (;;) pause();
    }
    char byte;
    close(ready[1]);
    REQUIRE(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
  }
  ~Client() { End(); }
  void End() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

std::string PeerName(const UniqueFd& fd) { return absl::StrCat("fd:", fd.get()); }

}  // namespace

TEST_CASE("root and the admin group are admin, others are user") {
  Fixture f;
  const Client root(f, 0, 0);
  const auto a = f.peers->Admit(f.Accept());
  CHECK(f.peers->CallerOf(PeerName(*a))->role == Role::kAdmin);
  CHECK(f.peers->CallerOf(PeerName(*a))->pid == root.pid());
  const Client member(f, 61001, 4242);
  const auto b = f.peers->Admit(f.Accept());
  CHECK(f.peers->CallerOf(PeerName(*b))->role == Role::kAdmin);
  CHECK(f.peers->CallerOf(PeerName(*b))->uid == 61001);
  const Client other(f, 61002, 61002);
  const auto c = f.peers->Admit(f.Accept());
  CHECK(f.peers->CallerOf(PeerName(*c))->role == Role::kUser);
}

TEST_CASE("a process that comes to be in a session after it connected has role agent from then on") {
  Fixture f;
  const Client client(f, 0, 0);
  const auto admitted = f.peers->Admit(f.Accept());
  REQUIRE(admitted.ok());
  CHECK(f.peers->CallerOf(PeerName(*admitted))->role == Role::kAdmin);
  const auto session = f.cgroups->Make("s1");
  REQUIRE(session->AddProcess(client.pid()).ok());
  const auto caller = f.peers->CallerOf(PeerName(*admitted));
  CHECK(caller->role == Role::kAgent);
  CHECK(caller->session == "s1");
  REQUIRE(session->Kill().ok());
  waitpid(client.pid(), nullptr, 0);
  CHECK(session->RemoveTree().ok());
}

TEST_CASE("a connection whose process has ended is refused, also when its socket was passed on") {
  Fixture f;
  Client client(f, 0, 0);
  const auto admitted = f.peers->Admit(f.Accept());
  REQUIRE(admitted.ok());
  CHECK(f.peers->CallerOf(PeerName(*admitted)).ok());
  client.End();
  CHECK(absl::IsPermissionDenied(f.peers->CallerOf(PeerName(*admitted)).status()));
}

TEST_CASE("connections get new numbers although the old ones are free again") {
  Fixture f;
  int last = -1;
  for (int i = 0; i < 20; ++i) {
    const UniqueFd client = f.Connect();
    const auto admitted = f.peers->Admit(f.Accept());
    REQUIRE(admitted.ok());
    CHECK(admitted->get() > last);
    last = admitted->get();
  }
}

TEST_CASE("closed connections leave no descriptors behind") {
  Fixture f;
  const auto open_fds = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_fds();
  for (int i = 0; i < 300; ++i) {
    const UniqueFd client = f.Connect();
    REQUIRE(f.peers->Admit(f.Accept()).ok());
  }
  CHECK(open_fds() < before + 100);
}

TEST_CASE("a number whose socket is another one by now is nobody's") {
  Fixture f;
  const UniqueFd client = f.Connect();
  auto admitted = f.peers->Admit(f.Accept());
  REQUIRE(admitted.ok());
  const std::string name = PeerName(*admitted);
  CHECK(f.peers->CallerOf(name).ok());
  const UniqueFd other = f.Connect();
  const UniqueFd accepted = f.Accept();
  REQUIRE(dup2(accepted.get(), admitted->get()) == admitted->get());
  CHECK(absl::IsPermissionDenied(f.peers->CallerOf(name).status()));
  CHECK_FALSE(f.peers->CallerOf("ipv4:127.0.0.1:1").ok());
}

TEST_CASE("too many open connections of one uid are refused, and closing one makes room") {
  Fixture f({.connections_per_uid = 2, .connections = 10});
  const UniqueFd c1 = f.Connect(), c2 = f.Connect(), c3 = f.Connect();
  auto a1 = f.peers->Admit(f.Accept());
  const auto a2 = f.peers->Admit(f.Accept());
  REQUIRE(a1.ok());
  REQUIRE(a2.ok());
  CHECK(absl::IsResourceExhausted(f.peers->Admit(f.Accept()).status()));
  a1->Reset();
  const UniqueFd c4 = f.Connect();
  CHECK(f.peers->Admit(f.Accept()).ok());
}

TEST_CASE("a listener replaces a dead socket but not a living one and not a file") {
  char pattern[] = "/tmp/listen-XXXXXX";
  const std::string dir = mkdtemp(pattern);
  const std::string path = dir + "/s";
  {
    const auto living = ListenOn(path);
    REQUIRE(living.ok());
    CHECK(absl::IsFailedPrecondition(ListenOn(path).status()));
  }
  CHECK(ListenOn(path).ok());
  std::filesystem::remove(path);
  const UniqueFd file(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  CHECK(absl::IsFailedPrecondition(ListenOn(path).status()));
  std::filesystem::remove_all(dir);
}

}  // namespace agentmon
