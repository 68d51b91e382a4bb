// agentmon-ns, with a script in the place of the shim.
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "tests/host/fake_sessions.h"
#include "tests/host/program.h"

namespace agentmon {
namespace {

constexpr uid_t kNobody = 65534;

// A copy of agentmon-ns and a script "agentmon-shim" beside it, reachable for everybody.
struct Fixture {
  TempDir dir{"/tmp"};
  std::string program = dir / "agentmon-ns";

  explicit Fixture(const std::string& script) {
    chmod(dir.path().c_str(), 0755);
    std::filesystem::copy_file(ProgramPath("agentmon-ns"), program);
    std::ofstream(dir / "agentmon-shim") << "#!/bin/sh\n" << script << "\n";
    chmod((dir / "agentmon-shim").c_str(), 0755);
  }
  // cap_sys_admin=ep, as setcap(8) writes it.
  void SetCapability() {
    vfs_cap_data data{};
    data.magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE;
    data.data[0].permitted = 1U << CAP_SYS_ADMIN;
    REQUIRE(setxattr(program.c_str(), "security.capability", &data, XATTR_CAPS_SZ_2, 0) == 0);
  }
};

void BecomeNobody() {
  if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(202);
}

std::string OwnNamespace() { return std::filesystem::read_symlink("/proc/self/ns/mnt").string() + "\n"; }

}  // namespace

TEST_CASE("root gets a private mount namespace, keeps its capabilities and the arguments arrive whole") {
  Fixture f(
      "readlink /proc/self/ns/mnt; grep -c shared: /proc/self/mountinfo; grep CapEff /proc/self/status; echo "
      "\"[$1][$2]\"");
  const ProgramResult r = RunProgram({f.program, "--socket", "a b"});
  CHECK(r.err.empty());
  CHECK(r.exit_status == 0);
  CHECK(r.out.find(OwnNamespace()) == std::string::npos);
  CHECK(r.out.find("mnt:[") == 0);
  CHECK(r.out.find("\n0\n") != std::string::npos);
  CHECK(r.out.find("CapEff:\t0000000000000000") == std::string::npos);
  CHECK(r.out.find("[--socket][a b]\n") != std::string::npos);
}

TEST_CASE("a user gets the namespace from the file capability and no capability out of it") {
  Fixture f(
      "readlink /proc/self/ns/mnt; grep -E '^(CapPrm|CapEff|CapAmb|NoNewPrivs)' /proc/self/status; id -u;"
      "stat -c %u /proc/self/status; env | grep -E '^(LD_|TMPDIR|EMPTY)'; echo \"[$1]\"");
  f.SetCapability();
  ProgramOptions options;
  options.in_child = [] {
    BecomeNobody();
    setenv("LD_LIBRARY_PATH", "/nowhere", 1);
    setenv("LD_PRELOAD", "", 1);
    setenv("TMPDIR", "/tmp/x y", 1);
    setenv("EMPTY", "", 1);
  };
  const ProgramResult r = RunProgram({f.program, "--socket"}, options);
  CHECK(r.err.empty());
  CHECK(r.out.find("mnt:[") == 0);
  CHECK(r.out.find(OwnNamespace()) == std::string::npos);
  CHECK(r.out.find("CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapAmb:"
                   "\t0000000000000000\nNoNewPrivs:\t1\n") != std::string::npos);
  CHECK(r.out.find("65534\n65534\n") != std::string::npos);  // dumpable again: /proc/self is its own
  CHECK(r.out.find("LD_LIBRARY_PATH=/nowhere\n") != std::string::npos);
  CHECK(r.out.find("LD_PRELOAD=\n") != std::string::npos);
  CHECK(r.out.find("TMPDIR=/tmp/x y\n") != std::string::npos);
  CHECK(r.out.find("EMPTY=\n") != std::string::npos);
  CHECK(r.out.find("[--socket]\n") != std::string::npos);
}

TEST_CASE("without the capability the shim runs all the same and is told why") {
  Fixture f("readlink /proc/self/ns/mnt; echo \"[$1][$2]\"");
  ProgramOptions options;
  options.in_child = BecomeNobody;
  const std::string refused = "[--ns-error=unshare: Operation not permitted][--socket]\n";
  CHECK(RunProgram({f.program, "--socket"}, options).out == OwnNamespace() + refused);
  f.SetCapability();
  options.in_child = [] {
    BecomeNobody();
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  };
  CHECK(RunProgram({f.program, "--socket"}, options).out == OwnNamespace() + refused);
}

TEST_CASE("closed standard descriptors stay closed, with the capability too; /dev/null stays open") {
  Fixture f("r=0; for i in 0 1 2; do [ -e /proc/$$/fd/$i ] && r=$((r+1)); done; exit $((40+r))");
  f.SetCapability();
  ProgramOptions options;
  options.in_child = [] {
    BecomeNobody();
    close(0), close(1), close(2);
  };
  CHECK(RunProgram({f.program}, options).exit_status == 40);
  options.in_child = [] {
    BecomeNobody();
    const int null = open("/dev/null", O_RDWR);
    dup2(null, 0), dup2(null, 1), dup2(null, 2);
    close(null);
  };
  CHECK(RunProgram({f.program}, options).exit_status == 43);
}

TEST_CASE("a missing shim is a failure of ours") {
  Fixture f("true");
  std::filesystem::remove(f.dir / "agentmon-shim");
  const ProgramResult r = RunProgram({f.program});
  CHECK(r.exit_status == 125);
  CHECK(r.out.empty());
  CHECK(r.err.find("agentmon: ") == 0);
}

}  // namespace agentmon
