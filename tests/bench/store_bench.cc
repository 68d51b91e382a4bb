// How fast the store takes events and answers. Not a test: prints figures.
//   store_bench [EVENTS=1000000] [DIR=/tmp/agentmon-bench] [SESSIONS=20] [MAX_MB=0 (no limit)] [keep]
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "daemon/store/event_store.h"

namespace agentmon {
namespace {

constexpr int64_t kStartNs = 1'700'000'000'000'000'000;
constexpr int64_t kStepNs = 100'000;  // 10,000 events a second of wall time

// What an agent that builds and looks around makes: mostly opens, some writes, execs and connects.
class Mix {
 public:
  explicit Mix(int sessions) {
    for (int i = 0; i < sessions; ++i) sessions_.push_back(absl::StrCat("01hx", 1000 + i, "zq7v9k2m"));
    for (const char* exe :
         {"/usr/bin/bash", "/usr/bin/git", "/usr/bin/node", "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus",
          "/usr/bin/rg", "/usr/bin/python3.11", "/usr/bin/cat", "/usr/bin/make"}) {
      exes_.push_back(exe);
    }
  }

  const std::vector<std::string>& sessions() const { return sessions_; }

  const Event& Next() {
    const uint64_t n = count_++;
    const uint32_t dice = random_();
    event_.Clear();
    event_.set_session(sessions_[dice % sessions_.size()]);
    event_.set_wall_ns(kStartNs + static_cast<int64_t>(n) * kStepNs);
    event_.set_boot_ns(5'000'000'000 + static_cast<int64_t>(n) * kStepNs);
    event_.mutable_process()->set_pid(static_cast<int32_t>(1000 + n / 50 % 30000));
    event_.mutable_process()->set_start_ns(5'000'000'000 + n / 50 * kStepNs);
    event_.mutable_parent()->set_pid(static_cast<int32_t>(1000 + n / 500 % 30000));
    event_.mutable_parent()->set_start_ns(4'000'000'000 + n / 500 * kStepNs);
    event_.set_exe(exes_[n / 50 % exes_.size()]);
    event_.set_uid(1000);
    event_.set_count(1);
    const uint32_t kind = dice >> 8 & 127;
    if (kind < 6) {
      MakeExec(dice);
    } else if (kind < 12) {
      MakeConnect(dice);
    } else {
      MakeFile(kind < 96 ? v1::OPEN : v1::OPEN_WRITE, dice);
    }
    if (n % 1000 == 999) {
      event_.mutable_judgement()->set_decision(v1::DENY);
      event_.mutable_judgement()->set_enforced(true);
      event_.mutable_judgement()->set_rule("secrets");
      event_.mutable_judgement()->set_mechanism("fanotify");
    }
    return event_;
  }

 private:
  void MakeExec(uint32_t dice) {
    event_.set_kind(v1::EXEC);
    event_.set_source(v1::PROCESS);
    v1::Exec& exec = *event_.mutable_exec();
    for (const char* arg : {"/usr/bin/cc", "-O2", "-Wall", "-Iinclude", "-c", "-o"}) exec.add_argv(arg);
    exec.add_argv(absl::StrCat("build/obj/module_", dice % 5000, ".o"));
    exec.add_argv(absl::StrCat("src/module_", dice % 5000, ".c"));
    exec.set_cwd("/home/ann/src/project");
    exec.set_filename("/usr/bin/cc");
    exec.set_argv_bytes(90);
  }
  void MakeConnect(uint32_t dice) {
    event_.set_kind(v1::CONNECT);
    event_.set_source(v1::NETWORK);
    event_.mutable_net()->set_protocol("tcp");
    event_.mutable_net()->set_address(absl::StrCat("10.", dice & 255, ".3.", dice >> 8 & 255));
    event_.mutable_net()->set_port(443);
    event_.mutable_net()->set_flow(dice);
  }
  void MakeFile(v1::EventKind kind, uint32_t dice) {
    event_.set_kind(kind);
    event_.set_source(kind == v1::OPEN ? v1::FANOTIFY : v1::NOTIFY);
    event_.set_count_is(kind == v1::OPEN ? v1::AT_LEAST : v1::EXACT);
    event_.mutable_file()->set_path(absl::StrCat("/home/ann/src/project/node_modules/package-", dice % 900,
                                                 "/lib/file-", dice >> 12 & 255, ".js"));
    if (kind == v1::OPEN_WRITE) event_.mutable_file()->set_open_flags(0x8241);
  }

  std::vector<std::string> sessions_;
  std::vector<std::string> exes_;
  std::minstd_rand random_{42};
  uint64_t count_ = 0;
  Event event_;
};

double RssMb() {
  long pages = 0, resident = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld %ld", &pages, &resident) != 2) return 0;
  std::fclose(file);
  return static_cast<double>(resident) * 4096 / 1e6;
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

struct Filled {
  double seconds = 0;
  double cpu_seconds = 0;  // making the events included
  double slowest_push_us = 0;
  double longest_wait_ms = 0;  // between two batches that were stored
};

// As fast as the store takes them: waits when the queue is three quarters full, so nothing may be lost.
Filled Fill(EventStore& store, Mix& mix, uint64_t events, size_t queue) {
  Filled filled;
  const absl::Time start = absl::Now();
  const double cpu_start = CpuSeconds();
  uint64_t last_seq = 0;
  absl::Time last_batch = start;
  for (uint64_t done = 0; done < events;) {
    for (int i = 0; i < 500 && done < events; ++i, ++done) {
      const Event& event = mix.Next();
      const absl::Time before = absl::Now();
      store.OnEvent(event);
      filled.slowest_push_us =
          std::max(filled.slowest_push_us, absl::ToDoubleMicroseconds(absl::Now() - before));
    }
    do {
      const uint64_t seq = store.last_seq();
      if (seq == last_seq) continue;
      last_seq = seq;
      filled.longest_wait_ms =
          std::max(filled.longest_wait_ms, absl::ToDoubleMilliseconds(absl::Now() - last_batch));
      last_batch = absl::Now();
    } while (store.Status().waiting() > queue * 3 / 4 && (absl::SleepFor(absl::Milliseconds(1)), true));
  }
  store.Flush(absl::InfiniteDuration());
  filled.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  filled.cpu_seconds = CpuSeconds() - cpu_start;
  return filled;
}

void TimeQuery(EventStore& store, const char* what, const QueryOptions& options, int rounds) {
  double worst_ms = 0, sum_ms = 0;
  size_t events = 0;
  for (int i = 0; i < rounds; ++i) {
    events = 0;
    const absl::Time start = absl::Now();
    const absl::Status status = store.Query(options, [&events](std::vector<Event> chunk) {
      events += chunk.size();
      return true;
    });
    const double ms = absl::ToDoubleMilliseconds(absl::Now() - start);
    if (!status.ok()) std::printf("%s: %s\n", what, std::string(status.message()).c_str());
    worst_ms = std::max(worst_ms, ms);
    sum_ms += ms;
  }
  std::printf("query %-42s %8zu events  mean %7.2f ms  worst %7.2f ms\n", what, events, sum_ms / rounds,
              worst_ms);
}

void TimeQueries(EventStore& store, const Mix& mix, uint64_t events) {
  const int64_t span_ns = static_cast<int64_t>(events) * kStepNs;
  QueryOptions newest;
  newest.filter.set_session(mix.sessions()[3]);
  newest.limit = 1000;
  TimeQuery(store, "session, newest 1000", newest, 20);
  QueryOptions range = newest;
  range.filter.set_since_ns(kStartNs + span_ns / 2);
  range.filter.set_until_ns(kStartNs + span_ns / 2 +
                            int64_t{1000} * kStepNs * static_cast<int64_t>(mix.sessions().size()));
  range.limit = 0;
  TimeQuery(store, "session and time range of about 1000", range, 20);
  QueryOptions denied = newest;
  denied.filter.set_decision(v1::DENY);
  denied.limit = 100;
  TimeQuery(store, "session, newest 100 denials", denied, 5);
  QueryOptions all = newest;
  all.filter.set_session("*");
  TimeQuery(store, "all sessions, newest 1000", all, 20);
  QueryOptions glob = newest;
  glob.filter.set_path_glob("**/package-83/**");
  glob.limit = 100;
  TimeQuery(store, "session, path glob, newest 100", glob, 5);
  TimeQuery(
      store, "find a session by prefix, no events",
      [&] {
        QueryOptions none = newest;
        none.filter.set_session(mix.sessions()[5].substr(0, 10));
        none.filter.set_since_ns(1);
        none.filter.set_until_ns(2);
        return none;
      }(),
      20);
}

void Run(uint64_t events, const std::string& dir, int sessions, uint64_t max_mb, bool keep) {
  static const SystemClock clock;
  std::filesystem::remove_all(dir);
  EventStore::Options options;
  options.dir = dir;
  options.clock = &clock;
  options.writer.retention.max_age = options.writer.retention.kept_max_age = absl::InfiniteDuration();
  options.writer.retention.max_bytes = max_mb == 0 ? uint64_t{1} << 40 : max_mb << 20;
  options.writer.idle_after = absl::Milliseconds(200);
  const size_t queue = options.queue.events;
  auto store = EventStore::Open(options).value();
  Mix mix(sessions);
  for (const std::string& id : mix.sessions()) {
    v1::Session session;
    session.set_id(id);
    session.set_uid(1000);
    session.set_started_ns(kStartNs);
    store->UpsertSession(session);
  }
  store->Flush(absl::Seconds(10));
  const Filled filled = Fill(*store, mix, events, queue);
  v1::StoreState state = store->Status();
  std::printf("stored %.0f events in %.2f s: %.0f events/s, lost %.0f, rows now %.0f, %s\n",
              static_cast<double>(events), filled.seconds, static_cast<double>(events) / filled.seconds,
              static_cast<double>(state.lost()), static_cast<double>(state.events()), state.state().c_str());
  std::printf("%.2f us of CPU an event, both threads; worst batch %.0f ms\n",
              filled.cpu_seconds * 1e6 / static_cast<double>(events), filled.longest_wait_ms);
  std::printf("slowest OnEvent %.0f us; resident %.0f MB while busy\n", filled.slowest_push_us, RssMb());
  TimeQueries(*store, mix, events);
  const absl::Time until = absl::Now() + absl::Seconds(20);
  while (std::filesystem::exists(dir + "/agentmon.db-wal") &&
         std::filesystem::file_size(dir + "/agentmon.db-wal") > 0 && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(50));
  }
  absl::SleepFor(absl::Milliseconds(500));
  state = store->Status();
  std::printf("%.0f MB on disk, %.0f MB a million; resident %.1f MB when idle\n",
              static_cast<double>(state.bytes()) / 1e6,
              static_cast<double>(state.bytes()) / static_cast<double>(state.events()), RssMb());
  const absl::Time verify = absl::Now();
  const v1::VerifyResponse answer = store->Verify().value();
  std::printf("verify: %s, %.0f batches, %.0f events, %.2f s\n", answer.intact() ? "intact" : "DAMAGED",
              static_cast<double>(answer.batches()), static_cast<double>(answer.events()),
              absl::ToDoubleSeconds(absl::Now() - verify));
  const absl::Time close = absl::Now();
  store.reset();
  std::printf("close: %.2f s\n", absl::ToDoubleSeconds(absl::Now() - close));
  const absl::Time open = absl::Now();
  store = EventStore::Open(options).value();
  std::printf("open: %.3f s\n", absl::ToDoubleSeconds(absl::Now() - open));
  store.reset();
  if (!keep) std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace agentmon

int main(int argc, char** argv) {
  agentmon::SetLogLevel(agentmon::LogLevel::kWarning);
  agentmon::Run(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000,
                argc > 2 ? argv[2] : "/tmp/agentmon-bench", argc > 3 ? std::atoi(argv[3]) : 20,
                argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 0, argc > 5);
}
