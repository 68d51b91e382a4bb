#include "shim/stage/filter_program.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <random>

#include "common/kernel/call_numbers.h"
#include "common/kernel/mediated_calls.h"
#include "common/kernel/socket_calls.h"

namespace agentmon {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kNative = AUDIT_ARCH_X86_64;
#else
constexpr uint32_t kNative = AUDIT_ARCH_AARCH64;
#endif

CallFamilies All() {
  CallFamilies all;
  for (int i = 0; i < kCallFamilies; ++i) all.Add(static_cast<CallFamily>(i));
  return all;
}

// What the kernel would answer: the instructions of classic BPF that the assembler uses.
uint32_t Run(const std::vector<sock_filter>& program, const seccomp_data& data) {
  uint32_t a = 0;
  for (size_t pc = 0; pc < program.size(); ++pc) {
    const sock_filter& i = program[pc];
    switch (i.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        std::memcpy(&a, reinterpret_cast<const char*>(&data) + i.k, sizeof(a));
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        a &= i.k;
        break;
      case BPF_JMP | BPF_JA:
        pc += i.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        pc += a == i.k ? i.jt : i.jf;
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        pc += a >= i.k ? i.jt : i.jf;
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        pc += (a & i.k) != 0 ? i.jt : i.jf;
        break;
      case BPF_RET | BPF_K:
        return i.k;
      default:
        FAIL("an instruction that is not known: " << i.code);
    }
  }
  FAIL("the program runs past its end");
  return 0;
}

const MediatedCall* Mediated(const FilterPlan& plan, uint32_t audit, int number, const uint64_t* args) {
  for (const CallArch& arch : CallArchs()) {
    for (const MediatedCall& call : kMediatedCalls) {
      if (arch.audit != audit || CallNumber(arch, call.name) != number) continue;
      if (call.act == FileAct::kExec && !plan.ask_exec) continue;
      if (call.act != FileAct::kOpen || (args[call.flags] & kMediatedOpenFlags) != 0) return &call;
    }
  }
  return nullptr;
}

bool NamesSocket(const FilterPlan& plan, uint32_t audit, int number, const uint64_t* args) {
  if (!plan.ask_unix) return false;
  for (const CallArch& arch : CallArchs()) {
    for (const SocketCall& call : kSocketCalls) {
      if (arch.audit != audit || CallNumber(arch, call.name) != number) continue;
      return call.act != SocketAct::kSendTo || args[call.address] != 0;
    }
  }
  return false;
}

// The same from the tables.
uint32_t Expected(const FilterPlan& plan, const seccomp_data& data) {
  const auto* args = reinterpret_cast<const uint64_t*>(data.args);
  const RefusedCall* refused = FindRefusedCall(data.arch, data.nr, args);
  if (refused != nullptr && plan.refuse.Has(refused->family)) {
    const bool told = plan.listener && refused->error == EPERM;
    return told ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ERRNO | static_cast<uint32_t>(refused->error);
  }
  if (plan.listener && Mediated(plan, data.arch, data.nr, args) != nullptr) return SECCOMP_RET_USER_NOTIF;
  if (plan.listener && NamesSocket(plan, data.arch, data.nr, args)) return SECCOMP_RET_USER_NOTIF;
  return SECCOMP_RET_ALLOW;
}

// Values that conditions look for, their neighbours, and the same with something above the low half.
std::vector<uint64_t> InterestingValues() {
  std::vector<uint64_t> values = {0, 1, ~0ull, O_WRONLY, O_CREAT | O_CLOEXEC, O_DIRECTORY};
  for (const RefusedCall& call : RefusedCalls()) {
    for (const ArgTest& test : call.tests) {
      for (const uint32_t v : {test.value, test.value + 1, test.value | 0x80000u}) {
        values.push_back(v);
        values.push_back(v | (1ull << 32));
      }
    }
  }
  return values;
}

void Compare(const FilterPlan& plan, int tries) {
  const std::vector<sock_filter> program = BuildFilter(plan);
  const std::vector<uint64_t> values = InterestingValues();
  std::mt19937 random(7);
  const auto same = [&](uint32_t audit, int number) {
    seccomp_data data{number, audit, 0, {}};
    for (auto& arg : data.args) arg = values[random() % values.size()];
    if (Run(program, data) == Expected(plan, data)) return;
    FAIL("call " << number << " of " << audit << ": " << Run(program, data) << " and not "
                 << Expected(plan, data));
  };
  for (const CallArch& arch : CallArchs()) {
    for (int number = 0; number < 600; ++number) {
      for (int i = 0; i < tries; ++i) {
        same(arch.audit, number);
        same(arch.audit, number | static_cast<int>(kX32Bit));
      }
    }
  }
}

}  // namespace

TEST_CASE("the program answers every call as the tables say") {
  FilterPlan plan{All()};
  Compare(plan, 80);
  plan.ask_exec = true;
  Compare(plan, 20);
  plan.ask_unix = true;
  Compare(plan, 20);
  plan.listener = plan.ask_exec = plan.ask_unix = false;
  Compare(plan, 20);
  CHECK(BuildFilter({All()}).size() < BPF_MAXINSNS / 2);  // 4,096 is the kernel's bound
}

TEST_CASE("families that are not refused are let through, one by one") {
  for (int i = 0; i < kCallFamilies; ++i) {
    FilterPlan plan;
    plan.refuse.Add(static_cast<CallFamily>(i));
    Compare(plan, 5);
  }
  Compare({}, 20);
}

TEST_CASE("an architecture without a table is killed") {
  const seccomp_data data{SYS_getppid, AUDIT_ARCH_S390X, 0, {}};
  CHECK(Run(BuildFilter({All()}), data) == SECCOMP_RET_KILL_PROCESS);
  CHECK(Run(BuildFilter({}), data) == SECCOMP_RET_KILL_PROCESS);
}

TEST_CASE("calls that name a socket are sent to the listener where that is asked for") {
  const auto answer = [](bool ask, int number, uint64_t address) {
    seccomp_data data{number, kNative, 0, {}};
    data.args[4] = address;
    FilterPlan plan;
    plan.ask_unix = ask;
    return Run(BuildFilter(plan), data);
  };
  for (const int number : {SYS_connect, SYS_sendmsg, SYS_sendmmsg}) {
    CHECK(answer(true, number, 0) == SECCOMP_RET_USER_NOTIF);
    CHECK(answer(false, number, 0) == SECCOMP_RET_ALLOW);
  }
  CHECK(answer(true, SYS_sendto, 0x7fff00001000) == SECCOMP_RET_USER_NOTIF);
  CHECK(answer(true, SYS_sendto, 0x100000000) == SECCOMP_RET_USER_NOTIF);
  CHECK(answer(true, SYS_sendto, 0) == SECCOMP_RET_ALLOW);  // send(2)
}

TEST_CASE("where the network is judged by calls, all sends are asked and nothing leads past them") {
  FilterPlan told, judged;
  told.ask_network = judged.ask_network = judged.judge_network = true;
  const auto answer = [](const FilterPlan& plan, int number, std::initializer_list<uint64_t> args) {
    seccomp_data data{number, kNative, 0, {}};
    std::copy(args.begin(), args.end(), data.args);
    return Run(BuildFilter(plan), data);
  };
  const uint64_t at = 0x100000000;
  for (const FilterPlan& plan : {told, judged}) {
    CHECK(answer(plan, SYS_connect, {}) == SECCOMP_RET_USER_NOTIF);
    CHECK(answer(plan, SYS_sendto, {3, at, 1, 0, at, 16}) == SECCOMP_RET_USER_NOTIF);
    CHECK(answer(plan, SYS_sendto, {3, at, 1, 0, 0, 0}) == SECCOMP_RET_ALLOW);
  }
  for (const int number : {SYS_sendmsg, SYS_sendmmsg}) {
    CHECK(answer(told, number, {}) == SECCOMP_RET_ALLOW);
    CHECK(answer(judged, number, {}) == SECCOMP_RET_USER_NOTIF);
  }
  const uint32_t refused = SECCOMP_RET_ERRNO | EPERM;
  for (const auto& [level, option] : {std::pair<int, int>(IPPROTO_IP, IP_OPTIONS),
                                      {IPPROTO_IPV6, IPV6_RTHDR},
                                      {SOL_SOCKET, SO_BINDTODEVICE}}) {
    const std::initializer_list<uint64_t> args = {3, static_cast<uint64_t>(level),
                                                  static_cast<uint64_t>(option)};
    CHECK(answer(told, SYS_setsockopt, args) == SECCOMP_RET_ALLOW);
    CHECK(answer(judged, SYS_setsockopt, args) == refused);
  }
  CHECK(answer(judged, SYS_setsockopt, {3, SOL_SOCKET, SO_REUSEADDR}) == SECCOMP_RET_ALLOW);
  CHECK(answer(judged, SYS_clone, {CLONE_VM | CLONE_FILES}) == refused);
  CHECK(answer(judged, SYS_clone, {CLONE_VM | CLONE_SIGHAND | CLONE_FILES | CLONE_THREAD}) ==
        SECCOMP_RET_ALLOW);
  CHECK(answer(judged, SYS_clone, {CLONE_VM | CLONE_VFORK}) == SECCOMP_RET_ALLOW);
  CHECK(answer(judged, SYS_clone3, {}) == (SECCOMP_RET_ERRNO | ENOSYS));
}

TEST_CASE("without a listener no call is sent to one") {
  seccomp_data data{SYS_unlinkat, kNative, 0, {}};
  CHECK(Run(BuildFilter({}), data) == SECCOMP_RET_USER_NOTIF);
  CHECK(Run(BuildFilter({All(), false}), data) == SECCOMP_RET_ALLOW);
}

}  // namespace agentmon
