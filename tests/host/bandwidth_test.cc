// The network rate of a cgroup, on packets between two network namespaces of the test's own.
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "daemon/limits/bandwidth.h"
#include "tests/host/kernel_fixture.h"

namespace agentmon {
namespace {

constexpr size_t kBytes = 1'500'000;
constexpr int kMbps = 16;                 // 0.75 s for kBytes
constexpr double kLeast_s = 0.75 - 0.15;  // what goes ahead of the rate: 100 ms, and half as much again

sockaddr_in To(const char* address, int port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, address, &to.sin_addr);
  return to;
}

// Runs in a child; its exit status.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Two namespaces with a pair of devices: this process's children join the first, a server sits in the second.
class Networks {
 public:
  Networks() {
    near_ = absl::StrCat("amn", getpid());
    far_ = absl::StrCat("amf", getpid());
    Run(absl::StrCat("ip netns add ", near_, " && ip netns add ", far_, " && ip link add v0 netns ", near_,
                     " type veth peer name v1 netns ", far_, " && ip -n ", near_,
                     " addr add 10.77.0.1/24 dev v0 && ip -n ", far_,
                     " addr add 10.77.0.2/24 dev v1 && ip -n ", near_, " link set v0 up && ip -n ", near_,
                     " link set lo up && ip -n ", far_, " link set v1 up"));
  }
  ~Networks() {
    if (server_ > 0) {
      kill(server_, SIGKILL);
      waitpid(server_, nullptr, 0);
    }
    [[maybe_unused]] const int gone =
        system(absl::StrCat("ip netns del ", near_, "; ip netns del ", far_).c_str());
  }
  // Answers each connection to port 7000: with what it reads, all of it read first; a client that says 'g'
  // gets kBytes.
  void Serve() {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    server_ = fork();
    if (server_ == 0) {
      Enter(far_);
      const int listener = socket(AF_INET, SOCK_STREAM, 0);
      const sockaddr_in at = To("10.77.0.2", 7000);
      if (bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 || listen(listener, 4) != 0)
        _exit(1);
      [[maybe_unused]] const ssize_t told = write(ready[1], "r", 1);
      for (;;) {
        const int client = accept(listener, nullptr, nullptr);
        std::vector<char> buffer(65536);
        const ssize_t first = read(client, buffer.data(), buffer.size());
        if (first > 0 && buffer[0] == 'g') {
          for (size_t sent = 0; sent < kBytes;) {
            const ssize_t n = write(client, buffer.data(), std::min(buffer.size(), kBytes - sent));
            if (n <= 0) break;
            sent += static_cast<size_t>(n);
          }
        } else {
          while (read(client, buffer.data(), buffer.size()) > 0) continue;
        }
        close(client);
      }
    }
    char byte;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
  }
  void EnterNear() const { Enter(near_); }

 private:
  static void Run(const std::string& command) { REQUIRE(system(command.c_str()) == 0); }
  static void Enter(const std::string& name) {
    const int fd = open(absl::StrCat("/run/netns/", name).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) _exit(9);
  }
  std::string near_, far_;
  pid_t server_ = -1;
};

// Seconds that a process of this cgroup needs to send kBytes, or to get them.
double Transfer(const Networks& networks, const Cgroup& cgroup, bool get) {
  const auto start = std::chrono::steady_clock::now();
  const int status = InChild([&] {
    if (!cgroup.AddProcess(getpid()).ok()) return 2;
    networks.EnterNear();
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in to = To("10.77.0.2", 7000);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) return 3;
    std::vector<char> buffer(65536, get ? 'g' : 's');
    size_t done = 0;
    if (get && write(fd, buffer.data(), 1) != 1) return 4;
    while (done < kBytes) {
      const ssize_t n =
          get ? read(fd, buffer.data(), buffer.size()) : write(fd, buffer.data(), buffer.size());
      if (n <= 0) return 5;
      done += static_cast<size_t>(n);
    }
    if (!get) {  // until the other side has all of it
      shutdown(fd, SHUT_WR);
      if (read(fd, buffer.data(), 1) != 0) return 6;
    }
    return 0;
  });
  CHECK(status == 0);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST_CASE("a session sends and gets no more than its rate, and without one as fast as the network is") {
  Networks networks;
  networks.Serve();
  TestCgroup limited, free;
  REQUIRE(CanLimitBandwidth().ok());
  REQUIRE(SetBandwidth((*limited).path(), kMbps).ok());
  for (const bool get : {false, true}) {
    CAPTURE(get);
    CHECK(Transfer(networks, *limited, get) > kLeast_s);
    // The control: the same bytes, and the difference is the rate's.
    CHECK(Transfer(networks, *free, get) < kLeast_s);
  }
  CHECK(PacketsHeldBack((*free).path()) == 0);
  // It can be changed while it holds, and lifted.
  REQUIRE(SetBandwidth((*limited).path(), 10'000).ok());
  CHECK(Transfer(networks, *limited, false) < kLeast_s);
  REQUIRE(SetBandwidth((*limited).path(), 0).ok());
  REQUIRE(SetBandwidth((*limited).path(), 0).ok());
  CHECK(Transfer(networks, *limited, true) < kLeast_s);
  CHECK(PacketsHeldBack((*limited).path()) == 0);
}

TEST_CASE(
    "datagrams beyond the rate are dropped and counted, and sending them is no error; the loopback is free") {
  Networks networks;
  TestCgroup limited;
  // Somebody else's program that stands before ours, and has no maps.
  const bpf_insn pass[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1}, {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  const UniqueFd other(bpf_prog_load(BPF_PROG_TYPE_CGROUP_SKB, "other", "GPL", pass, 2, nullptr));
  REQUIRE(other.valid());
  REQUIRE(bpf_prog_attach(other.get(), (*limited).fd(), BPF_CGROUP_INET_EGRESS, BPF_F_ALLOW_MULTI) == 0);
  REQUIRE(SetBandwidth((*limited).path(), 1).ok());
  const auto send = [&](const char* address, int count) {
    return InChild([&] {
      if (!(*limited).AddProcess(getpid()).ok()) return 2;
      networks.EnterNear();
      const int fd = socket(AF_INET, SOCK_DGRAM, 0);
      const sockaddr_in to = To(address, 7001);
      const std::string text(1000, 'x');
      for (int i = 0; i < count; ++i) {
        if (sendto(fd, text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) < 0 &&
            errno != ECONNREFUSED)
          return 3;
      }
      return 0;
    });
  };
  CHECK(send("127.0.0.1", 2000) == 0);
  CHECK(PacketsHeldBack((*limited).path()) == 0);
  CHECK(send("10.77.0.2", 2000) == 0);
  const uint64_t dropped = PacketsHeldBack((*limited).path());
  CHECK(dropped > 1000);
  // Written again, as the next daemon does, the counts go on.
  REQUIRE(SetBandwidth((*limited).path(), 1).ok());
  CHECK(PacketsHeldBack((*limited).path()) == dropped);
  CHECK(PacketsHeldBack("/no/such/directory") == 0);
  CHECK_FALSE(SetBandwidth("/no/such/directory", 1).ok());
}

}  // namespace
}  // namespace agentmon
