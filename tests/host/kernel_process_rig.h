// A session's cgroup with the process probe on it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "daemon/probe/process_probe.h"
#include "tests/host/kernel_fixture.h"

namespace agentmon {

struct ProcessRig {
  TestCgroup base;
  TestCgroup session{base->path()};
  PollTaskRunner runner;
  EventCollector sink;
  std::unique_ptr<BpfRing> ring;
  std::unique_ptr<ProcessProbe> probe;

  ProcessRig() {
    auto made = BpfRing::Create(base->fd(), runner);
    INFO(made.status());
    REQUIRE(made.ok());
    ring = *std::move(made);
    auto process = ProcessProbe::Create(*ring);
    INFO(process.status());
    REQUIRE(process.ok());
    probe = *std::move(process);
    REQUIRE(ring->AddSession(session->id()).ok());
    REQUIRE(probe->Attach(sink).ok());
  }
};

inline char* const kTrue[] = {const_cast<char*>("true"), nullptr};

// Arguments that take `bytes` bytes with their NULs.
inline int ExecWithArgumentBytes(size_t bytes) {
  std::vector<std::string> args{"true"};
  for (bytes -= 5; bytes > 0;) {
    const size_t one = std::min<size_t>(bytes, 10'000);
    args.emplace_back(one - 1, 'a');
    bytes -= one;
  }
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  return execv("/bin/true", argv.data());
}

}  // namespace agentmon
