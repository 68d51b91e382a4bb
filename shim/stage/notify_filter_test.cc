#include "shim/stage/notify_filter.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pty.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <catch2/catch.hpp>
#include <thread>

#include "shim/stage/child_fixture.h"

namespace agentmon {
namespace {

CallFamilies Families(std::initializer_list<CallFamily> list) {
  CallFamilies families;
  for (const CallFamily family : list) families.Add(family);
  return families;
}

// The errno of the act behind a filter that refuses the family; and behind one that refuses all others.
int Refused(CallFamily family, const std::function<int()>& act) {
  return InChild([&] { return InstallRefusingFilter(Families({family})).ok() ? act() : kStageFailed; });
}
int Allowed(CallFamily family, const std::function<int()>& act) {
  return InChild([&] {
    CallFamilies others;
    for (int i = 0; i < kCallFamilies; ++i) {
      if (static_cast<CallFamily>(i) != family) others.Add(static_cast<CallFamily>(i));
    }
    return InstallRefusingFilter(others).ok() ? act() : kStageFailed;
  });
}

struct Act {
  CallFamily family;
  int otherwise;  // errno without the refusal
  std::function<int()> act;
};

int Call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) {
  return ErrorOf(syscall(number, a, b, c, d, e));
}

}  // namespace

TEST_CASE("an act of each family fails with EPERM, and only where its family is refused") {
  const Act acts[] = {
      {CallFamily::kPtrace, 0, [] { return Call(SYS_ptrace, PTRACE_TRACEME); }},
      {CallFamily::kPtrace, EBADF, [] { return Call(SYS_pidfd_getfd, -1, 0, 0); }},
      {CallFamily::kBpf, E2BIG, [] { return Call(SYS_bpf, -1, 0, 1 << 20); }},
      {CallFamily::kNamespace, EBADF, [] { return Call(SYS_setns, -1, 0); }},
      {CallFamily::kNamespace, EINVAL, [] { return Call(SYS_fsopen, 0, 0x7000); }},
      {CallFamily::kIoUring, EBADF, [] { return Call(SYS_io_uring_enter, -1); }},
      {CallFamily::kPerf, EINVAL, [] { return Call(SYS_perf_event_open, 0, 0, -1, -1, -1); }},
      {CallFamily::kKeyring, EOPNOTSUPP, [] { return Call(SYS_keyctl, -1); }},
      {CallFamily::kPersonality, 0, [] { return Call(SYS_personality, PER_LINUX32); }},
      {CallFamily::kTerminal, EBADF, [] { return ErrorOf(ioctl(-1, TIOCSTI, "x")); }},
      {CallFamily::kTerminal, EBADF, [] { return Call(SYS_ioctl, -1, TIOCSTI | (1l << 32)); }},
      {CallFamily::kSockets, EAFNOSUPPORT, [] { return ErrorOf(socket(4000, SOCK_STREAM, 0)); }},
  };
  for (const Act& act : acts) {
    CAPTURE(CallFamilyName(act.family));
    CHECK(Refused(act.family, act.act) == EPERM);
    const int otherwise = Allowed(act.family, act.act);
    if (act.family != CallFamily::kNamespace || otherwise != EPERM) CHECK(otherwise == act.otherwise);
  }
}

TEST_CASE("what debuggers and C libraries need of refused families passes") {
  CHECK(Refused(CallFamily::kPersonality, [] { return Call(SYS_personality, 0xffffffff); }) == 0);
  CHECK(Refused(CallFamily::kPersonality, [] { return Call(SYS_personality, ADDR_NO_RANDOMIZE); }) == 0);
  CHECK(Refused(CallFamily::kSockets, [] { return ErrorOf(socket(AF_INET, SOCK_STREAM, 0)); }) == 0);
  CHECK(Refused(CallFamily::kSockets, [] { return ErrorOf(socket(AF_NETLINK, SOCK_RAW, 0)); }) == 0);
  CHECK(Refused(CallFamily::kNamespace, [] { return ErrorOf(unshare(CLONE_FILES | CLONE_FS)); }) == 0);
  CHECK(Refused(CallFamily::kTerminal, [] {
          int master, slave;
          if (openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) return 200;
          winsize size{};
          return ErrorOf(ioctl(slave, TIOCGWINSZ, &size));
        }) == 0);
}

TEST_CASE(
    "clone3 does not exist where namespaces are refused, and threads and processes start all the same") {
  CHECK(Refused(CallFamily::kNamespace, [] { return Call(SYS_clone3, 0, 0); }) == ENOSYS);
  CHECK(Refused(CallFamily::kNamespace, [] {
          int ran = 0;
          std::thread([&] { ran = 1; }).join();
          return ran == 1 && InChild([] { return 7; }) == 7 ? 0 : 1;
        }) == 0);
}

TEST_CASE("where a filter with a listener is there already, a refusing one still goes on top") {
  CHECK(InChild([] {
          sock_filter allow[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
          const sock_fprog program{1, allow};
          if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 1;
          if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program) < 0)
            return 2;
          if (!absl::IsFailedPrecondition(InstallNotifyFilter({Families({CallFamily::kBpf})}).status()))
            return 3;
          if (!InstallRefusingFilter(Families({CallFamily::kBpf})).ok()) return 4;
          return Call(SYS_bpf, -1, 0, 1 << 20) == EPERM && ErrorOf(unlink("/nonexistent")) == ENOENT ? 0 : 5;
        }) == 0);
}

}  // namespace agentmon
