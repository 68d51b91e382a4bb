#include "daemon/limits/host_limits.h"

#include <catch2/catch.hpp>

#include "daemon/limits/bandwidth.h"
#include "daemon/limits/directory_fixture.h"

namespace agentmon {
namespace {

// CGROUP2 with controllers, a base and one session's directory.
struct Fixture {
  explicit Fixture(const std::string& controllers) {
    for (const std::string directory : {"/", "/agentmon-x/"}) {
      root.Write("cgroup" + directory + "cgroup.controllers", controllers);
      root.Write("cgroup" + directory + "cgroup.subtree_control", "\n");
    }
    for (const char* file : {"memory.max", "pids.max", "cpu.max", "io.max"})
      root.Write(std::string("cgroup/agentmon-x/s1/") + file, "max");
    root.Write("mountinfo", "");
  }
  HostLimits Limits() const {
    return HostLimits({root.path() + "/cgroup", root.path() + "/cgroup/agentmon-x",
                       root.path() + "/mountinfo", root.path() + "/sys"});
  }
  std::string session() const { return root.path() + "/cgroup/agentmon-x/s1"; }
  DirectoryFixture root;
};

policy::ResourceLimits MemoryAndPids() {
  policy::ResourceLimits limits;
  limits.max_memory_mb = 1;
  limits.pids_max = 7;
  return limits;
}

}  // namespace

TEST_CASE("a limit is written once its controller is enabled from the mount down to the base") {
  const Fixture f("cpu memory pids\n");
  CHECK(f.Limits().Apply(f.session(), MemoryAndPids(), {}).empty());
  CHECK(f.root.Read("cgroup/agentmon-x/s1/memory.max") == "1048576");
  CHECK(f.root.Read("cgroup/agentmon-x/s1/pids.max").substr(0, 1) == "7");
  CHECK(f.root.Read("cgroup/cgroup.subtree_control") != "\n");
  CHECK(f.root.Read("cgroup/agentmon-x/cgroup.subtree_control") != "\n");
}

TEST_CASE("a controller that others enabled is left as it is") {
  const Fixture f("memory pids\n");
  f.root.Write("cgroup/cgroup.subtree_control", "pids memory\n");
  CHECK(f.Limits().Missing(MemoryAndPids()).empty());
  CHECK(f.root.Read("cgroup/cgroup.subtree_control") == "pids memory\n");
}

TEST_CASE("without its controller a limit is missing and says which, the others are set") {
  const Fixture f("pids\n");
  const MissingLimits missing = f.Limits().Apply(f.session(), MemoryAndPids(), {});
  REQUIRE(missing.size() == 1);
  CHECK(missing.at("max_memory_mb") == "cgroup v2 at " + f.root.path() + "/cgroup has no memory controller");
  CHECK(f.root.Read("cgroup/agentmon-x/s1/memory.max") == "max");
  CHECK(f.root.Read("cgroup/agentmon-x/s1/pids.max").substr(0, 1) == "7");
}

TEST_CASE("a limit that the new policy does not have is lifted") {
  const Fixture f("cpu memory pids\n");
  policy::ResourceLimits wanted;
  wanted.pids_max = 9;
  f.Limits().Apply(f.session(), MemoryAndPids(), {});
  CHECK(f.Limits().Apply(f.session(), wanted, MemoryAndPids()).empty());
  CHECK(f.root.Read("cgroup/agentmon-x/s1/memory.max").substr(0, 3) == "max");
  CHECK(f.root.Read("cgroup/agentmon-x/s1/pids.max").substr(0, 1) == "9");
}

TEST_CASE("rates hold on whole disks, also of a partition, and are missing where no disk is known") {
  const Fixture f("io\n");
  policy::ResourceLimits limits;
  limits.disk_read_bps_max = 1000;
  CHECK(f.Limits().Missing(limits).count("disk_read_bps_max") == 1);
  f.root.Write("mountinfo",
               "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /proc rw - proc proc rw\n"
               "3 1 8:16 / /srv rw - xfs /dev/sdb rw\n");
  f.root.Write("sys/devices/sda/dev", "8:0\n");
  f.root.Write("sys/devices/sda/sda1/partition", "1\n");
  f.root.Write("sys/devices/sdb/dev", "8:16\n");
  std::filesystem::create_directories(f.root.path() + "/sys/dev/block");
  std::filesystem::create_symlink("../../devices/sda/sda1", f.root.path() + "/sys/dev/block/8:1");
  std::filesystem::create_symlink("../../devices/sdb", f.root.path() + "/sys/dev/block/8:16");
  CHECK(f.Limits().Disks() == std::vector<std::string>{"8:0", "8:16"});
  CHECK(f.Limits().Missing(limits).empty());
}

TEST_CASE("a bandwidth is missing by name where its programs are not taken, timeouts never are") {
  const Fixture f("");
  policy::ResourceLimits limits;
  limits.net_bandwidth_mbps = 1;
  limits.session_timeout = limits.idle_timeout = limits.command_timeout = absl::Hours(1);
  const MissingLimits missing = f.Limits().Missing(limits);
  CHECK(missing.count("net_bandwidth_mbps") == (CanLimitBandwidth().ok() ? 0 : 1));
  CHECK(missing.size() == missing.count("net_bandwidth_mbps"));
}

}  // namespace agentmon
