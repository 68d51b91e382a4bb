// What the BPF probes cost: nanoseconds per operation without probes, with probes outside of sessions,
// in a session, and in one whose connects are judged, in alternation; and how many records a second the consumer decodes.
//   kernel_bench [ROUNDS]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "common/policy/testing/snapshots.h"
#include "daemon/probe/network_probe.h"
#include "daemon/probe/process_probe.h"
#include "tests/host/kernel_fixture.h"

namespace agentmon {
namespace {

struct Counter : RecordSink {
  void OnRecord(absl::Span<const uint8_t> record) override {
    ++records;
    bytes += record.size();
    (void)Decode(record, 0);
  }
  uint64_t records = 0, bytes = 0;
};

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

void Pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

std::string g_exit_now;

void ForkExit() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  WaitFor(pid);
}

void SpawnExit() {
  char* const argv[] = {const_cast<char*>("exit_now"), const_cast<char*>("--an-argument"), nullptr};
  pid_t pid;
  if (posix_spawn(&pid, g_exit_now.c_str(), nullptr, nullptr, argv, environ) == 0) WaitFor(pid);
}

int g_socket = -1;  // made where the worker is: the socket's cgroup decides whether programs run

void ConnectUdp() {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  (void)connect(g_socket, reinterpret_cast<sockaddr*>(&to), sizeof(to));
}

void SendUdp() {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  (void)sendto(g_socket, "x", 1, 0, reinterpret_cast<sockaddr*>(&to), sizeof(to));
}

// To a port where nobody listens: the answer comes at once.
void ConnectTcp() {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  (void)connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to));
}

// Some rules before the one that allows what is measured.
std::shared_ptr<const policy::Snapshot> Rules() {
  return policy::MakeBase(R"(
network_rules:
  - {name: metadata, cidrs: ["169.254.0.0/16", "100.100.100.200", "fd00:ec2::254"], decision: deny}
  - {name: doors, domains: [localhost], ports: [22, 2375, 2376, 6443], decision: deny}
  - {name: mail, ports: [25, 465, 587], protocol: tcp, decision: deny}
  - {name: local, cidrs: [127.0.0.0/8], decision: allow}
)");
}

struct Operation {
  const char* name;
  void (*run)();
  int times;
};
constexpr Operation kOperations[] = {
    {"fork+exit", ForkExit, 400},
    {"spawn+exec+exit", SpawnExit, 400},
    {"udp connect", ConnectUdp, 20'000},
    {"udp sendto", SendUdp, 20'000},
    {"socket+tcp connect", ConnectTcp, 10'000}};
constexpr int kOps = std::size(kOperations);

// Does the operations, in a process of its own that was there before the ring was: a fork of a process
// that maps the ring copies 8,192 page table entries, which would be measured instead.
class Worker {
 public:
  Worker() {
    if (pipe(commands_) != 0 || pipe(answers_) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) Run();
    close(answers_[1]);
  }
  ~Worker() {
    close(commands_[1]);
    WaitFor(pid_);
  }
  // The median of one operation's time, in nanoseconds, while it is in `cgroup`.
  double Measure(PollTaskRunner& runner, const Cgroup& cgroup, int operation) {
    Must(cgroup.AddProcess(pid_).ok(), "move the worker");
    Must(write(commands_[1], &operation, sizeof(operation)) == sizeof(operation), "tell the worker");
    runner.RunUntil(
        [&] {
          pollfd p{answers_[0], POLLIN, 0};
          return poll(&p, 1, 0) == 1;
        },
        absl::Seconds(60));
    int64_t median = 0;
    Must(read(answers_[0], &median, sizeof(median)) == sizeof(median), "hear the worker");
    return static_cast<double>(median);
  }

 private:
  [[noreturn]] void Run() {
    close(commands_[1]);
    Pin(1);
    int operation;
    while (read(commands_[0], &operation, sizeof(operation)) == sizeof(operation)) {
      const Operation& op = kOperations[operation];
      close(g_socket);
      g_socket = socket(AF_INET, SOCK_DGRAM, 0);
      std::vector<int64_t> ns;
      for (int i = 0; i < op.times; ++i) {
        const int64_t begin = NowNs();
        op.run();
        ns.push_back(NowNs() - begin);
      }
      std::nth_element(ns.begin(), ns.begin() + op.times / 2, ns.end());
      if (write(answers_[1], &ns[op.times / 2], sizeof(int64_t)) < 0) _exit(1);
    }
    _exit(0);
  }

  int commands_[2], answers_[2];
  pid_t pid_ = -1;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  g_exit_now = std::string(argv[0]).substr(0, std::string(argv[0]).rfind('/') + 1) + "exit_now";
  Worker worker;
  std::vector<double> bare[kOps], outside[kOps], inside[kOps], judged[kOps];
  SystemClock clock;
  PollTaskRunner runner;
  Counter counter;
  TestCgroup base;
  TestCgroup session(base->path());
  const Cgroup root = *Cgroup::Open(*FindCgroup2Mount());
  Pin(0);
  for (int round = 0; round < rounds; ++round) {
    for (int op = 0; op < kOps; ++op) bare[op].push_back(worker.Measure(runner, root, op));
    auto ring = *BpfRing::Create(base->fd(), runner);
    auto process = *ProcessProbe::Create(*ring);
    auto network = *NetworkProbe::Create(*ring, base->fd(), "bench", clock);
    Must(ring->AddSession(session->id()).ok() && process->Attach(counter).ok() &&
             network->Attach(counter).ok(),
         "attach");
    for (int op = 0; op < kOps; ++op) outside[op].push_back(worker.Measure(runner, root, op));
    for (int op = 0; op < kOps; ++op) inside[op].push_back(worker.Measure(runner, *session, op));
    Must(network->Enforce(session->id(), Rules()).ok(), "judge");
    for (int op = 0; op < kOps; ++op) judged[op].push_back(worker.Measure(runner, *session, op));
    network->RemoveCgroup(session->id());
    if (process->Stats().lost + network->Stats().lost != 0) std::printf("records were lost\n");
  }
  std::printf("%-18s %12s %18s %18s %30s\n", "ns per operation", "bare", "outside (added)", "session (added)",
              "judged (added to the session)");
  for (int op = 0; op < kOps; ++op) {
    const double b = Median(bare[op]), o = Median(outside[op]), i = Median(inside[op]), j = Median(judged[op]);
    std::printf("%-18s %12.0f %10.0f (%+.0f, x%.3f) %10.0f (%+.0f, x%.3f) %10.0f (%+.0f, x%.3f)\n",
                kOperations[op].name, b, o, o - b, o / b, i, i - b, i / b, j, j - i, j / i);
  }
  // The ring is filled while nobody reads, then read at once.
  auto ring = *BpfRing::Create(base->fd(), runner);
  auto network = *NetworkProbe::Create(*ring, base->fd(), "bench", clock);
  Must(ring->AddSession(session->id()).ok() && network->Attach(counter).ok(), "attach");
  const uint64_t before = counter.records;
  WaitFor(RunIn(*session, [] {
    g_socket = socket(AF_INET, SOCK_DGRAM, 0);
    for (int i = 0; i < 150'000; ++i) ConnectUdp();
    return 0;
  }));
  const int64_t begin = NowNs();
  ring->Drain();
  const int64_t took = NowNs() - begin;
  std::printf("consumer: %.0f records/s decoded (%llu records)\n",
              1e9 * static_cast<double>(counter.records - before) / static_cast<double>(took),
              static_cast<unsigned long long>(counter.records - before));
  std::printf("wakes: %d for %llu records\n", runner.wakes(),
              static_cast<unsigned long long>(counter.records));
  return 0;
}

}  // namespace
}  // namespace agentmon

int main(int argc, char** argv) { return agentmon::Main(argc, argv); }
