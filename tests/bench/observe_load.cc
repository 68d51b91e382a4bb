// observe_load ROUNDS CMD ARGS...: runs a command bare and observed by the file sources in turn, and prints
// wall-clock and processor time of both with their ratio. Needs root. Other programs' load shows in
// wall-clock time; the processor time of the observed runs includes that of the probes.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "daemon/probe/fanotify_probe.h"
#include "daemon/probe/notify_probe.h"
#include "tests/host/filtered_child.h"
#include "tests/host/loop_task_runner.h"

namespace agentmon {
namespace {

struct Cost {
  double wall_ms = 0;
  double cpu_ms = 0;
};

struct NullSink : RecordSink {
  void OnRecord(absl::Span<const uint8_t>) override { ++records; }
  uint64_t records = 0;
};

double CpuMs(int who) {
  rusage u{};
  getrusage(who, &u);
  return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

struct Meter {
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  double cpu = ProbesAndCommand();
  Cost Stop() const {
    return {std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count(),
            ProbesAndCommand() - cpu};
  }
  // Not this thread, which only polls for the end of the command.
  static double ProbesAndCommand() {
    return CpuMs(RUSAGE_SELF) - CpuMs(RUSAGE_THREAD) + CpuMs(RUSAGE_CHILDREN);
  }
};

int Exec(char** command) {
  if (freopen("/dev/null", "w", stdout) == nullptr) return 126;
  execvp(command[0], command);
  return 127;
}

Cost Bare(char** command) {
  const Meter meter;
  const pid_t pid = fork();
  if (pid == 0) _exit(Exec(command));
  waitpid(pid, nullptr, 0);
  return meter.Stop();
}

Cost Observed(char** command, NullSink* sink, bool notify_on, bool fanotify_on) {
  LoopTaskRunner core;
  auto dedupe = std::make_shared<OpenDedupe>();
  NotifyProbe::Options notify_options;
  notify_options.dedupe = dedupe;
  FanotifyProbe::Options fanotify_options;
  fanotify_options.dedupe = dedupe;
  NotifyProbe notify(core, notify_options);
  FanotifyProbe fanotify(core, fanotify_options);
  if (!notify.Attach(*sink).ok() || !fanotify.Attach(*sink).ok()) abort();
  const Meter meter;
  const auto body = [command] { return Exec(command); };
  const auto own_namespace = [] {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      _exit(1);
  };
  FilteredChild child(body, own_namespace, notify_on);
  if (notify_on && !notify.AddListener(1, child.TakeListener()).ok()) abort();
  if (fanotify_on && !fanotify.AddSession(1, child.pid()).ok()) abort();
  child.Go();
  core.RunUntil([&] { return child.Ended(); }, absl::Hours(1));
  const Cost cost = meter.Stop();
  if (notify.Stats().lost + fanotify.Stats().lost > 0) fprintf(stderr, "records lost\n");
  return cost;
}

double Quartile(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 4];
}

}  // namespace
}  // namespace agentmon

int main(int argc, char** argv) {
  using namespace agentmon;
  if (argc < 3) return 2;
  const int rounds = atoi(argv[1]);
  const char* const names[] = {"bare", "notify", "fanotify", "both"};
  std::vector<double> wall[4], cpu[4];
  NullSink sink[4];
  for (int i = 0; i < rounds; ++i) {
    for (int mode = 0; mode < 4; ++mode) {
      const Cost cost = mode == 0 ? Bare(argv + 2) : Observed(argv + 2, &sink[mode], mode != 2, mode != 1);
      wall[mode].push_back(cost.wall_ms);
      cpu[mode].push_back(cost.cpu_ms);
    }
  }
  for (int mode = 0; mode < 4; ++mode) {
    printf("%-8s wall %8.1f ms (%.3f)  cpu %8.1f ms (%.3f)  records/run %llu\n", names[mode],
           Quartile(wall[mode]), Quartile(wall[mode]) / Quartile(wall[0]), Quartile(cpu[mode]),
           Quartile(cpu[mode]) / Quartile(cpu[0]),
           static_cast<unsigned long long>(sink[mode].records / static_cast<unsigned>(rounds)));
  }
}
