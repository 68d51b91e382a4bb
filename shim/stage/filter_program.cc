#include "shim/stage/filter_program.h"

#include <linux/in6.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <map>

#include "common/kernel/call_numbers.h"
#include "common/kernel/mediated_calls.h"
#include "common/kernel/socket_calls.h"

namespace agentmon {
namespace {

// What is done with a call when all tests hold.
struct Branch {
  std::vector<ArgTest> tests;
  uint32_t answer = SECCOMP_RET_ALLOW;
};
using Branches = std::vector<Branch>;
using Calls = std::map<uint32_t, Branches>;  // by number; of one architecture

// The daemon answers, so that the attempt is known; but what programs fall back from as a matter of course
// (ENOSYS) is no attempt at anything.
uint32_t RefusalOf(const RefusedCall& call, bool listener) {
  if (listener && call.error != ENOSYS) return SECCOMP_RET_USER_NOTIF;
  return SECCOMP_RET_ERRNO | static_cast<uint32_t>(call.error);
}

std::vector<ArgTest> TestsOf(const RefusedCall& call) {
  std::vector<ArgTest> tests;
  for (const ArgTest& test : call.tests) {
    if (test.op != ArgTest::Op::kNone) tests.push_back(test);
  }
  return tests;
}

std::vector<ArgTest> TestsOf(const MediatedCall& call) {
  if (call.act != FileAct::kOpen) return {};
  return {{ArgTest::Op::kAnyBit, call.flags, kMediatedOpenFlags}};
}

constexpr int8_t kHighHalf = 6;  // added to the position of an argument: its upper half

// send(2) is a sendto without an address.
std::vector<std::vector<ArgTest>> TestsOf(const SocketCall& call) {
  if (call.act != SocketAct::kSendTo) return {{}};
  const auto high = static_cast<int8_t>(call.address + kHighHalf);
  return {{{ArgTest::Op::kNotEqual, call.address, 0}}, {{ArgTest::Op::kNotEqual, high, 0}}};
}

bool Asks(const FilterPlan& plan, const SocketCall& call) {
  if (plan.ask_unix || plan.judge_network) return true;
  return plan.ask_network && (call.act == SocketAct::kConnect || call.act == SocketAct::kSendTo);
}

constexpr RefusedCall SetOption(uint32_t level, uint32_t option) {
  return {"setsockopt",
          CallFamily::kSockets,
          EPERM,
          {{ArgTest::Op::kEqual, 1, level}, {ArgTest::Op::kEqual, 2, option}}};
}

constexpr uint32_t kIpUnicastInterface = 50, kIpv6UnicastInterface = 76;  // <linux/in.h>, <linux/in6.h>

// What would lead past who judges the calls above, where nobody else does: routes and devices of a socket's
// own, calls whose arguments are in memory, and processes that share their descriptors without being threads,
// so that one of them may put another socket in the place of the one that was looked at.
constexpr RefusedCall kPastTheJudge[] = {
    SetOption(IPPROTO_IP, IP_OPTIONS),
    SetOption(IPPROTO_IP, kIpUnicastInterface),
    SetOption(IPPROTO_IPV6, IPV6_RTHDR),
    SetOption(IPPROTO_IPV6, IPV6_2292RTHDR),
    SetOption(IPPROTO_IPV6, IPV6_2292PKTOPTIONS),
    SetOption(IPPROTO_IPV6, IPV6_PKTINFO),
    SetOption(IPPROTO_IPV6, kIpv6UnicastInterface),
    SetOption(SOL_SOCKET, SO_BINDTODEVICE),
    SetOption(SOL_SOCKET, SO_BINDTOIFINDEX),
    {"socketcall", CallFamily::kSockets},
    {"clone",
     CallFamily::kSockets,
     EPERM,
     {{ArgTest::Op::kEqual, 0, CLONE_FILES, CLONE_FILES | CLONE_THREAD}}},
    {"clone3", CallFamily::kSockets, ENOSYS},
};

// Numbers of architectures that share their AUDIT_ARCH (x86-64 and x32) never meet.
std::map<uint32_t, Calls> CollectCalls(const FilterPlan& plan) {
  std::map<uint32_t, Calls> archs;
  for (const CallArch& arch : CallArchs()) {
    Calls& calls = archs[arch.audit];
    const auto add = [&](const char* name, Branch branch) {
      const int number = CallNumber(arch, name);
      if (number >= 0) calls[static_cast<uint32_t>(number)].push_back(std::move(branch));
    };
    for (const RefusedCall& call : RefusedCalls()) {
      if (plan.refuse.Has(call.family)) add(call.name, {TestsOf(call), RefusalOf(call, plan.listener)});
    }
    if (!plan.listener) continue;
    for (const MediatedCall& call : kMediatedCalls) {
      if (call.act == FileAct::kExec && !plan.ask_exec) continue;
      add(call.name, {TestsOf(call), SECCOMP_RET_USER_NOTIF});
    }
    for (const SocketCall& call : kSocketCalls) {
      if (!Asks(plan, call)) continue;
      for (auto& tests : TestsOf(call)) add(call.name, {std::move(tests), SECCOMP_RET_USER_NOTIF});
    }
    if (!plan.judge_network) continue;
    for (const RefusedCall& call : kPastTheJudge) add(call.name, {TestsOf(call), RefusalOf(call, false)});
  }
  return archs;
}

constexpr uint32_t HalfOf(int8_t arg) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  return arg < kHighHalf
             ? offsetof(seccomp_data, args) + static_cast<uint32_t>(arg) * sizeof(uint64_t)
             : HalfOf(static_cast<int8_t>(arg - kHighHalf)) + static_cast<uint32_t>(sizeof(uint32_t));
#else
#error "the halves of an argument are elsewhere"
#endif
}

class Assembler {
 public:
  std::vector<sock_filter> Assemble(const std::map<uint32_t, Calls>& archs) {
    Emit(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
    for (const auto& [audit, calls] : archs) {
      Emit(BPF_JMP | BPF_JEQ | BPF_K, audit, 1, 0);
      const size_t next = Jump();
      Emit(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
      Tree(calls.begin(), calls.end());
      Land(next);
    }
    Return(SECCOMP_RET_KILL_PROCESS);
    return std::move(program_);
  }

 private:
  using Call = Calls::const_iterator;

  void Emit(uint16_t code, uint32_t k, uint8_t jt = 0, uint8_t jf = 0) {
    program_.push_back({code, jt, jf, k});
  }
  void Return(uint32_t answer) { Emit(BPF_RET | BPF_K, answer); }
  // A jump of any length, forward; Land makes it lead to what comes next.
  size_t Jump() {
    Emit(BPF_JMP | BPF_JA, 0);
    return program_.size() - 1;
  }
  void Land(size_t jump) { program_[jump].k = static_cast<uint32_t>(program_.size() - jump - 1); }

  // The number is in the accumulator.
  void Tree(Call first, Call last) {
    const auto count = std::distance(first, last);
    if (count == 0) return Return(SECCOMP_RET_ALLOW);
    if (count == 1) {
      Emit(BPF_JMP | BPF_JEQ | BPF_K, first->first, 1, 0);
      Return(SECCOMP_RET_ALLOW);
      return Body(first->second);
    }
    const Call middle = std::next(first, count / 2);
    Emit(BPF_JMP | BPF_JGE | BPF_K, middle->first, 0, 1);
    const size_t upper = Jump();
    Tree(first, middle);
    Land(upper);
    Tree(middle, last);
  }

  void Body(const Branches& branches) {
    for (const Branch& branch : branches) {
      std::vector<size_t> failures;
      for (const ArgTest& test : branch.tests) failures.push_back(Test(test));
      Return(branch.answer);
      for (const size_t failure : failures) Land(failure);
      if (branch.tests.empty()) return;  // nothing gets past it
    }
    Return(SECCOMP_RET_ALLOW);
  }

  // The jump that is taken when the test does not hold.
  size_t Test(const ArgTest& test) {
    Emit(BPF_LD | BPF_W | BPF_ABS, HalfOf(test.arg));
    if (test.mask != ~0u) Emit(BPF_ALU | BPF_AND | BPF_K, test.mask);
    const uint16_t compare = test.op == ArgTest::Op::kAnyBit ? BPF_JSET : BPF_JEQ;
    const bool holds_if_true = test.op != ArgTest::Op::kNotEqual;
    Emit(BPF_JMP | compare | BPF_K, test.value, holds_if_true ? 1 : 0, holds_if_true ? 0 : 1);
    return Jump();
  }

  std::vector<sock_filter> program_;
};

}  // namespace

std::vector<sock_filter> BuildFilter(const FilterPlan& plan) {
  return Assembler().Assemble(CollectCalls(plan));
}

}  // namespace agentmon
