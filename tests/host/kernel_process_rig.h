// A session's cgroup with the process probe on it.
#pragma once

#include <catch2/catch.hpp>
#include <memory>

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

}  // namespace agentmon
