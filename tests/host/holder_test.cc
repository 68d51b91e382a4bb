// The holder: agents run on while there is no daemon, and nothing of theirs is lost between two daemons.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "common/kernel/proc_fs.h"
#include "daemon/holder/holder_client.h"
#include "daemon/holder/holder_process.h"
#include "daemon/probe/notify_probe.h"
#include "tests/host/filtered_child.h"
#include "tests/host/loop_task_runner.h"
#include "tests/host/program.h"
#include "tests/host/record_collector.h"

namespace agentmon {
namespace {

// What processes of a test tell each other.
struct Shared {
  std::atomic<uint64_t> calls{0};  // by the load
  std::atomic<uint64_t> errors{0};
  std::atomic<int64_t> longest_ns{0};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> served{0};   // requests, by daemons
  std::atomic<int> joined{0};        // daemons that have joined the holder
  std::atomic<int> ready{0};         // daemons that serve
  std::atomic<int> held{0};          // listeners that the last daemon was given back
  std::atomic<uint64_t> unseen{0};   // requests that the holder says it has answered
  std::atomic<bool> may_take{true};  // a daemon that has joined waits for it before it takes listeners over

  static Shared* Map() {
    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return new (memory) Shared;
  }
};

// Mutating calls in `threads` threads until told to stop.
int Load(Shared* shared, const std::string& dir, int threads) {
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([shared, path = absl::StrCat(dir, "/load", t)] {
      while (!shared->stop) {
        const auto start = std::chrono::steady_clock::now();
        if (mkdir(path.c_str(), 0700) != 0 || rmdir(path.c_str()) != 0) ++shared->errors;
        const int64_t took = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
        if (took > shared->longest_ns) shared->longest_ns = took;
        ++shared->calls;
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  return 0;
}

struct CountingServer : NotifyServer {
  explicit CountingServer(Shared* s) : shared(s) {}
  NotifyAnswer Capture(const Listener&, const seccomp_notif&) override { return {}; }
  void Finish(const Listener&) override { ++shared->served; }
  void Lost() override {}
  Shared* shared;
};

// A process that does what a daemon does: joins the holder, serves what it is given and `first`, until it is
// killed.
class Daemon {
 public:
  Daemon(Shared* shared, const std::string& runtime_dir, std::vector<std::pair<uint64_t, int>> first) {
    pid_ = fork();
    if (pid_ != 0) return;
    auto holder = StartOrJoinHolder(runtime_dir);
    if (!holder.ok()) _exit(3);
    NotifyPool::Options options;
    options.shared = &(*holder)->shared();
    options.make_server = [shared] { return std::make_unique<CountingServer>(shared); };
    auto pool = NotifyPool::Start(std::move(options));
    if (!pool.ok()) _exit(4);
    for (const auto& [cgroup_id, fd] : first) {
      if (!(*holder)->Add(cgroup_id, fd, false).ok() || !(*pool)->Add(cgroup_id, UniqueFd(fd)).ok()) _exit(5);
    }
    shared->joined++;
    while (!shared->may_take) usleep(1000);
    int held = 0;
    for (auto& listener : (*holder)->TakeHeld()) {
      ++held;
      auto unseen = (*holder)->TakeOver(listener.cgroup_id);
      if (!unseen.ok()) _exit(7);
      shared->unseen += *unseen;
      if (!(*pool)->Add(listener.cgroup_id, std::move(listener.listener)).ok()) _exit(6);
    }
    shared->held = held;
    ++shared->ready;
    for (;;) {
      pollfd told{(*holder)->fd(), POLLIN, 0};
      poll(&told, 1, -1);
      const auto unseen = (*holder)->Read();
      if (!unseen.ok()) _exit(8);
      for (const auto& u : *unseen) shared->unseen += u.requests;
    }
  }
  ~Daemon() { Kill(); }
  // Returns once a SIGSTOP has stopped it: on a loaded machine its threads go on for a while.
  void Signal(int signal) {
    kill(pid_, signal);
    if (signal == SIGSTOP) waitpid(pid_, nullptr, WUNTRACED);
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

// The holder is this same program.
__attribute__((constructor)) void RunHolder(int argc, char** argv) { RunHolderIfAsked(argc, argv); }

bool HolderIsThere(const TempDir& dir) { return access((dir / "holder.sock").c_str(), F_OK) == 0; }

// The pid of the holder whose socket is in `dir`.
pid_t HolderPid(const std::string& socket_inode_dir) {
  for (const pid_t pid : ProcFs().Pids()) {
    auto stat = ProcFs().Stat(pid);
    if (!stat.ok() || stat->comm != "agentmon-holder") continue;
    // Several tests may run at once: ours has the listening socket of this path.
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);) {
      if (line.find(socket_inode_dir) == std::string::npos) continue;
      std::istringstream words(line);
      std::string word, inode;
      for (int i = 0; i < 7 && words >> word; ++i) inode = word;
      for (int fd = 3; fd < 64; ++fd) {
        char target[64];
        const ssize_t n = readlink(absl::StrCat("/proc/", pid, "/fd/", fd).c_str(), target, sizeof(target));
        if (n > 0 && std::string(target, static_cast<size_t>(n)) == "socket:[" + inode + "]") return pid;
      }
    }
  }
  return 0;
}

}  // namespace

TEST_CASE("agents neither fail nor wait when daemons are killed in the middle of their calls, 50 times") {
  TempDir dir;
  Shared* shared = Shared::Map();
  FilteredChild load([&] { return Load(shared, dir.path(), 4); });
  UniqueFd listener = load.TakeListener();
  load.Go();
  auto daemon = std::make_unique<Daemon>(shared, dir.path(),
                                         std::vector<std::pair<uint64_t, int>>{{7, listener.get()}});
  REQUIRE(WaitFor([&] { return shared->ready == 1; }));
  listener.Reset();  // nobody but the holder and the daemons has it now
  for (int i = 1; i <= 50; ++i) {
    const uint64_t served = shared->served;
    REQUIRE(WaitFor([&] { return shared->served > served + 100; }));
    daemon->Kill();
    const uint64_t calls = shared->calls;
    REQUIRE(WaitFor([&] { return shared->calls > calls + 100; }));  // unobserved
    daemon = std::make_unique<Daemon>(shared, dir.path(), std::vector<std::pair<uint64_t, int>>{});
    REQUIRE(WaitFor([&] { return shared->ready == i + 1; }));
    CHECK(shared->held == 1);
  }
  shared->stop = true;
  CHECK(load.Wait() == 0);
  CHECK(shared->errors == 0);
  CHECK(shared->longest_ns < 2'000'000'000);
  CHECK(HolderIsThere(dir));
  daemon->Kill();
  CHECK(WaitFor([&] { return !HolderIsThere(dir); }));
}

TEST_CASE("the holder answers until a new daemon takes the listener over, and says how often") {
  TempDir dir;
  Shared* shared = Shared::Map();
  FilteredChild load([&] { return Load(shared, dir.path(), 1); });
  UniqueFd listener = load.TakeListener();
  load.Go();
  Daemon first(shared, dir.path(), {{7, listener.get()}});
  REQUIRE(WaitFor([&] { return shared->ready == 1; }));
  listener.Reset();
  REQUIRE(WaitFor([&] { return shared->served > 100; }));
  shared->may_take = false;
  first.Kill();
  Daemon second(shared, dir.path(), {});
  REQUIRE(WaitFor([&] { return shared->joined == 2; }));
  const uint64_t calls = shared->calls;
  CHECK(WaitFor([&] { return shared->calls > calls + 1000; }));
  shared->longest_ns = 0;
  CHECK(shared->unseen == 0);
  const uint64_t served = shared->served;
  shared->may_take = true;
  CHECK(WaitFor([&] { return shared->served > served + 1000; }));
  shared->stop = true;
  CHECK(load.Wait() == 0);
  CHECK(shared->errors == 0);
  CHECK(shared->longest_ns < 1'000'000'000);
  CHECK(shared->unseen >= 2000);
}

TEST_CASE("calls go on when the daemon stands still, are told to it, and are its own again afterwards") {
  TempDir dir;
  Shared* shared = Shared::Map();
  FilteredChild load([&] { return Load(shared, dir.path(), 2); });
  FilteredChild other([&] { return Load(shared, dir.path() + "/..", 1); });
  UniqueFd listener = load.TakeListener(), other_listener = other.TakeListener();
  Daemon daemon(shared, dir.path(), {{7, listener.get()}, {8, other_listener.get()}});
  REQUIRE(WaitFor([&] { return shared->ready == 1; }));
  listener.Reset();
  other_listener.Reset();
  load.Go();
  other.Go();
  for (int i = 0; i < 5; ++i) {
    const uint64_t served = shared->served;
    REQUIRE(WaitFor([&] { return shared->served > served + 100; }));
    const uint64_t unseen = shared->unseen;
    daemon.Signal(SIGSTOP);
    const uint64_t calls = shared->calls;
    CHECK(WaitFor([&] { return shared->calls > calls + 2000; }));
    daemon.Signal(SIGCONT);
    CHECK(WaitFor([&] { return shared->unseen > unseen + 1000; }));
  }
  // A loaded machine may keep a daemon from its work for so long that it counts as standing still once more.
  bool own_again = false;
  for (int i = 0; i < 20 && !own_again; ++i) {
    const uint64_t unseen = shared->unseen, served = shared->served;
    CHECK(WaitFor([&] { return shared->served > served + 5000; }));
    own_again = shared->unseen == unseen;
  }
  CHECK(own_again);
  shared->stop = true;
  CHECK(load.Wait() == 0);
  CHECK(other.Wait() == 0);
  CHECK(shared->errors == 0);
  CHECK(shared->longest_ns < 2'000'000'000);
  // Each call is counted once, or at most twice where the daemon stood between taking and answering.
  CHECK(WaitFor([&] { return shared->served + shared->unseen >= 2 * shared->calls; }));
}

TEST_CASE("a request that the dead daemon had taken is answered") {
  TempDir dir;
  Shared* shared = Shared::Map();
  FilteredChild child([] { return rmdir("/no/such/directory") == -1 && errno == ENOENT ? 0 : 1; });
  UniqueFd listener = child.TakeListener();
  child.Go();
  // A daemon that hangs with the request in hand, and whose guard never comes.
  const pid_t daemon = fork();
  if (daemon == 0) {
    struct Hang : NotifyServer {
      explicit Hang(Shared* s) : shared(s) {}
      NotifyAnswer Capture(const Listener&, const seccomp_notif&) override {
        ++shared->served;
        for (;;) pause();
      }
      void Finish(const Listener&) override {}
      void Lost() override {}
      Shared* shared;
    };
    auto holder = StartOrJoinHolder(dir.path());
    if (!holder.ok()) _exit(3);
    NotifyPool::Options options;
    options.shared = &(*holder)->shared();
    options.hang_ns = int64_t{3600} * 1'000'000'000;
    options.make_server = [shared] { return std::make_unique<Hang>(shared); };
    auto pool = NotifyPool::Start(std::move(options));
    if (!pool.ok() || !(*holder)->Add(7, listener.get(), false).ok()) _exit(4);
    if (!(*pool)->Add(7, std::move(listener)).ok()) _exit(5);
    for (;;) pause();
  }
  listener.Reset();
  REQUIRE(WaitFor([&] { return shared->served == 1; }));
  CHECK_FALSE(child.Ended());
  kill(daemon, SIGKILL);
  waitpid(daemon, nullptr, 0);
  CHECK(child.Wait(5) == 0);
  CHECK(WaitFor([&] { return !HolderIsThere(dir); }));
}

TEST_CASE("the holder leaves when its last listener ends, and at once when it never had one") {
  TempDir dir;
  Shared* shared = Shared::Map();
  {
    Daemon daemon(shared, dir.path(), {});
    REQUIRE(WaitFor([&] { return shared->ready == 1; }));
    CHECK(HolderIsThere(dir));
  }
  CHECK(WaitFor([&] { return !HolderIsThere(dir); }));
  FilteredChild child([] { return rmdir("/no/such/directory") == -1 && errno == ENOENT ? 0 : 1; });
  UniqueFd listener = child.TakeListener();
  {
    Daemon daemon(shared, dir.path(), {{7, listener.get()}});
    REQUIRE(WaitFor([&] { return shared->ready == 2; }));
    listener.Reset();
  }
  CHECK(HolderIsThere(dir));
  child.Go();
  CHECK(child.Wait(5) == 0);
  CHECK(WaitFor([&] { return !HolderIsThere(dir); }));
}

TEST_CASE("a listener whose agent ends while a daemon serves it is dropped, and the holder does not spin") {
  TempDir dir;
  Shared* shared = Shared::Map();
  FilteredChild child([] { return 0; });
  UniqueFd listener = child.TakeListener();
  Daemon daemon(shared, dir.path(), {{7, listener.get()}});
  REQUIRE(WaitFor([&] { return shared->ready == 1; }));
  listener.Reset();
  child.Go();
  CHECK(child.Wait(5) == 0);
  const pid_t holder = HolderPid(dir.path());
  REQUIRE(holder > 0);
  const auto ticks = [&] {  // utime and stime: fields 14 and 15 of stat
    const std::string stat = ReadWholeFile(absl::StrCat("/proc/", holder, "/stat")).value();
    std::istringstream words(stat.substr(stat.rfind(')') + 2));
    std::string word;
    for (int i = 0; i < 11; ++i) words >> word;
    int utime = 0, stime = 0;
    words >> utime >> stime;
    return utime + stime;
  };
  const int before = ticks();
  WaitFor([] { return false; }, 300);
  CHECK(ticks() - before < 10);
  daemon.Kill();
  CHECK(WaitFor([&] { return !HolderIsThere(dir); }));
}

TEST_CASE("the holder is nobody's child or group, keeps nothing open and survives TERM") {
  TempDir dir;
  Shared* shared = Shared::Map();
  const UniqueFd ours(open("/etc/hostname", O_RDONLY));  // inheritable
  Daemon daemon(shared, dir.path(), {});
  REQUIRE(WaitFor([&] { return shared->ready == 1; }));
  const pid_t holder = HolderPid(dir.path());
  REQUIRE(holder > 0);
  CHECK(getpgid(holder) != getpgrp());
  CHECK(getsid(holder) != getsid(0));
  kill(holder, SIGTERM);
  kill(holder, SIGHUP);
  WaitFor([&] { return kill(holder, 0) != 0; }, 100);
  CHECK(kill(holder, 0) == 0);
  int files = 0;
  for (int fd = 3; fd < 256; ++fd) {
    char target[256];
    const ssize_t n = readlink(absl::StrCat("/proc/", holder, "/fd/", fd).c_str(), target, sizeof(target));
    if (n <= 0) continue;
    ++files;
    CHECK(std::string(target, static_cast<size_t>(n)) != "/etc/hostname");
  }
  CHECK(files <= 6);  // socket, journal, epoll set, connection, daemon's pidfd
  struct stat st {};
  REQUIRE(stat((dir / "holder.sock").c_str(), &st) == 0);
  CHECK((st.st_mode & 07777) == 0600);
  daemon.Kill();
  CHECK(WaitFor([&] { return !HolderIsThere(dir); }));
}

TEST_CASE("a holder that does not answer is replaced, and leaves its successor's socket alone") {
  TempDir dir;
  Shared* shared = Shared::Map();
  FilteredChild child([] { return rmdir("/no/such/directory") == -1 && errno == ENOENT ? 0 : 1; });
  UniqueFd listener = child.TakeListener();
  pid_t stopped = 0;
  {
    Daemon daemon(shared, dir.path(), {{7, listener.get()}});
    REQUIRE(WaitFor([&] { return shared->ready == 1; }));
    listener.Reset();
    stopped = HolderPid(dir.path());
    REQUIRE(stopped > 0);
    REQUIRE(kill(stopped, SIGSTOP) == 0);
  }
  Daemon next(shared, dir.path(), {});
  CHECK(WaitFor([&] { return shared->ready == 2; }, 30'000));
  CHECK(shared->held == 0);
  // What it holds is its own to answer, and when it has left the path is still the other's.
  REQUIRE(kill(stopped, SIGCONT) == 0);
  child.Go();
  CHECK(child.Wait(5) == 0);
  CHECK(WaitFor([&] { return kill(stopped, 0) != 0; }));
  CHECK(JoinHolder(dir.path()).status().code() == absl::StatusCode::kAlreadyExists);
}

TEST_CASE("a second daemon is refused while the first lives, and a stale socket is in nobody's way") {
  TempDir dir;
  Shared* shared = Shared::Map();
  std::ofstream(dir / "holder.sock") << "left over";
  Daemon first(shared, dir.path(), {});
  REQUIRE(WaitFor([&] { return shared->ready == 1; }));
  CHECK(JoinHolder(dir.path()).status().code() == absl::StatusCode::kAlreadyExists);
  first.Kill();
  CHECK(WaitFor([&] { return !HolderIsThere(dir); }));
  CHECK(JoinHolder(dir.path()).status().code() == absl::StatusCode::kUnavailable);
}

}  // namespace agentmon
