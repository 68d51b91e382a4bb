#include "daemon/limits/usage.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace agentmon {
namespace {

std::string Text(const CgroupFiles& files, absl::string_view name) { return files.Read(name).value_or(""); }

uint64_t Number(const CgroupFiles& files, absl::string_view name) {
  uint64_t value = 0;
  const std::string text = Text(files, name);
  return absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &value) ? value : 0;
}

}  // namespace

LimitHits ReadLimitHits(const CgroupFiles& files) {
  LimitHits hits;
  const std::string memory = Text(files, "memory.events");
  hits.memory_killed = CgroupFiles::Field(memory, "oom_kill");
  hits.memory = CgroupFiles::Field(memory, "max");
  hits.swap = CgroupFiles::Field(Text(files, "memory.swap.events"), "max");
  hits.pids = CgroupFiles::Field(Text(files, "pids.events"), "max");
  hits.throttled = CgroupFiles::Field(Text(files, "cpu.stat"), "nr_throttled");
  return hits;
}

LimitHits Later(const LimitHits& before, const LimitHits& now) {
  LimitHits later;
  for (uint64_t LimitHits::*field : {&LimitHits::memory, &LimitHits::memory_killed, &LimitHits::swap,
                                     &LimitHits::pids, &LimitHits::throttled, &LimitHits::held_back}) {
    later.*field = std::max(before.*field, now.*field);
  }
  return later;
}

v1::Usage Later(const v1::Usage& before, v1::Usage now) {
  now.set_cpu_ns(std::max(before.cpu_ns(), now.cpu_ns()));
  now.set_memory_peak_bytes(std::max(before.memory_peak_bytes(), now.memory_peak_bytes()));
  now.set_read_bytes(std::max(before.read_bytes(), now.read_bytes()));
  now.set_written_bytes(std::max(before.written_bytes(), now.written_bytes()));
  return now;
}

uint64_t ReadCpuNs(const CgroupFiles& files) {
  return CgroupFiles::Field(Text(files, "cpu.stat"), "usage_usec") * 1000;
}

v1::Usage ReadUsage(const CgroupFiles& files) {
  v1::Usage usage;
  usage.set_cpu_ns(ReadCpuNs(files));
  usage.set_memory_bytes(Number(files, "memory.current"));
  usage.set_memory_peak_bytes(Number(files, "memory.peak"));  // Linux 5.19
  const std::string processes = Text(files, "cgroup.procs");
  usage.set_processes(static_cast<uint32_t>(std::count(processes.begin(), processes.end(), '\n')));
  // "8:0 rbytes=1 wbytes=2 rios=3 ..."
  const std::string io = Text(files, "io.stat");
  for (absl::string_view word : absl::StrSplit(io, absl::ByAnyChar(" \n"))) {
    uint64_t bytes = 0;
    if (absl::ConsumePrefix(&word, "rbytes=") && absl::SimpleAtoi(word, &bytes))
      usage.set_read_bytes(usage.read_bytes() + bytes);
    if (absl::ConsumePrefix(&word, "wbytes=") && absl::SimpleAtoi(word, &bytes))
      usage.set_written_bytes(usage.written_bytes() + bytes);
  }
  return usage;
}

}  // namespace agentmon
