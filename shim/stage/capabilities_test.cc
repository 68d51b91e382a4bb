#include "shim/stage/capabilities.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "shim/stage/child_fixture.h"

namespace agentmon {
namespace {

// A line of /proc/self/status: "CapBnd".
uint64_t Set(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (absl::StartsWith(line, name + ":")) return std::stoull(line.substr(name.size() + 1), nullptr, 16);
  }
  return ~0ull;
}

CapabilitySet FilesOnly() {
  return *ParseCapabilities({"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SETUID", "CAP_SETGID"});
}

bool IsRoot() { return geteuid() == 0 && (Set("CapEff") >> CAP_SETPCAP & 1) != 0; }

}  // namespace

TEST_CASE("names of capabilities are the kernel's") {
  CHECK(*ParseCapabilities({}) == 0);
  CHECK(*ParseCapabilities({"CAP_CHOWN"}) == 1ull << CAP_CHOWN);
  CHECK(*ParseCapabilities({"CAP_SYS_ADMIN", "CAP_BPF"}) == (1ull << CAP_SYS_ADMIN | 1ull << CAP_BPF));
  CHECK(*ParseCapabilities({"CAP_CHECKPOINT_RESTORE"}) == 1ull << CAP_CHECKPOINT_RESTORE);
  CHECK_FALSE(ParseCapabilities({"CAP_EVERYTHING"}).ok());
  CHECK_FALSE(ParseCapabilities({"chown"}).ok());
}

TEST_CASE("a root process keeps the listed capabilities only, in all five sets, over an exec too") {
  if (!IsRoot()) return;
  CHECK(InChild([] {
          if (!DropCapabilities(FilesOnly()).ok()) return kStageFailed;
          for (const char* set : {"CapPrm", "CapEff", "CapBnd"}) {
            if ((Set(set) & ~FilesOnly()) != 0) return 1;
          }
          return Set("CapInh") == 0 && Set("CapAmb") == 0 && (Set("CapEff") >> CAP_CHOWN & 1) == 1 ? 0 : 2;
        }) == 0);
  CHECK(InChild([] {
          if (!DropCapabilities(FilesOnly()).ok()) return kStageFailed;
          execl("/bin/sh", "sh", "-c",
                "test $(( 0x$(sed -n 's/^CapEff:\\t//p' /proc/self/status) & 0x200000 )) = 0 && ! mount -t "
                "tmpfs none /mnt 2>/dev/null",
                nullptr);
          return 3;
        }) == 0);
}

TEST_CASE("a device cannot be made any more, and could before") {
  if (!IsRoot()) return;
  const auto make = [] {
    unlink("stage-test-device");
    return ErrorOf(mknod("stage-test-device", S_IFBLK | 0600, makedev(7, 0)));
  };
  CHECK(InChild(make) == 0);
  CHECK(InChild([&] { return DropCapabilities(FilesOnly()).ok() ? make() : kStageFailed; }) == EPERM);
  unlink("stage-test-device");
}

TEST_CASE("an ordinary user, who may not touch the bounding set, succeeds too") {
  CHECK(InChild([] {
          if (geteuid() == 0 && (setgroups(0, nullptr) != 0 || setresgid(61001, 61001, 61001) != 0 ||
                                 setresuid(61001, 61001, 61001) != 0)) {
            return 1;
          }
          return DropCapabilities(0).ok() && Set("CapEff") == 0 && Set("CapAmb") == 0 ? 0 : 2;
        }) == 0);
}

}  // namespace agentmon
