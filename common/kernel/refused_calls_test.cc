#include "common/kernel/refused_calls.h"

#include <linux/audit.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "common/kernel/call_numbers.h"
#include "common/kernel/mediated_calls.h"

namespace agentmon {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kNative = AUDIT_ARCH_X86_64;
#else
constexpr uint32_t kNative = AUDIT_ARCH_AARCH64;
#endif

// The family that refuses the call, "" = nothing does.
std::string Refuser(int number, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0, uint32_t arch = kNative) {
  const uint64_t args[6] = {a, b, c, 0, 0, 0};
  const RefusedCall* call = FindRefusedCall(arch, number, args);
  return call == nullptr ? "" : std::string(CallFamilyName(call->family));
}

}  // namespace

TEST_CASE("every family has a name that means it, and calls") {
  std::set<CallFamily> used;
  for (const RefusedCall& call : RefusedCalls()) used.insert(call.family);
  CHECK(used.size() == kCallFamilies);
  for (int i = 0; i < kCallFamilies; ++i) {
    const auto family = static_cast<CallFamily>(i);
    CHECK(ParseCallFamily(CallFamilyName(family)) == family);
  }
  CHECK_FALSE(ParseCallFamily("").has_value());
  CHECK_FALSE(ParseCallFamily("mount").has_value());
}

TEST_CASE("every call is one that some architecture here has, and none is mediated too") {
  std::set<std::string> mediated;
  for (const MediatedCall& call : kMediatedCalls) mediated.insert(call.name);
  for (const RefusedCall& call : RefusedCalls()) {
    CAPTURE(call.name);
    bool known = false;
    for (const CallArch& arch : CallArchs()) known |= CallNumber(arch, call.name) >= 0;
#if defined(__x86_64__)
    CHECK(known);
#endif
    CHECK(mediated.count(call.name) == 0);
  }
}

TEST_CASE("calls without conditions are refused with their family's name") {
  CHECK(Refuser(SYS_ptrace) == "ptrace");
  CHECK(Refuser(SYS_bpf) == "bpf");
  CHECK(Refuser(SYS_finit_module) == "kernel_modules");
  CHECK(Refuser(SYS_setns) == "namespace");
  CHECK(Refuser(SYS_io_uring_setup) == "io_uring");
  CHECK(Refuser(SYS_perf_event_open) == "perf");
  CHECK(Refuser(SYS_keyctl) == "keyring");
  CHECK(Refuser(SYS_open_by_handle_at) == "handles");
  CHECK(Refuser(SYS_swapon) == "system");
  CHECK(Refuser(467) == "namespace");  // open_tree_attr
  CHECK(Refuser(SYS_name_to_handle_at).empty());
  CHECK(Refuser(SYS_read).empty());
  CHECK(Refuser(SYS_openat).empty());
}

TEST_CASE("clone and unshare are refused for new namespaces only, clone3 as if it did not exist") {
  CHECK(Refuser(SYS_clone, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD).empty());
  CHECK(Refuser(SYS_clone, SIGCHLD | 0x80).empty());  // CLONE_NEWTIME's bit belongs to the signal
  CHECK(Refuser(SYS_clone, CLONE_NEWUSER | SIGCHLD) == "namespace");
  CHECK(Refuser(SYS_clone, (1ull << 40) | CLONE_NEWNET) == "namespace");
  CHECK(Refuser(SYS_unshare, CLONE_FILES | CLONE_FS).empty());
  CHECK(Refuser(SYS_unshare, 0x80) == "namespace");
  const uint64_t none[6] = {};
  REQUIRE(FindRefusedCall(kNative, SYS_clone3, none) != nullptr);
  CHECK(FindRefusedCall(kNative, SYS_clone3, none)->error == ENOSYS);
  CHECK(FindRefusedCall(kNative, SYS_unshare, none) == nullptr);
}

TEST_CASE("arguments count by their low half, as the kernel takes them") {
  CHECK(Refuser(SYS_ioctl, 0, TIOCSTI) == "terminal");
  CHECK(Refuser(SYS_ioctl, 0, TIOCSTI | (1ull << 32)) == "terminal");
  CHECK(Refuser(SYS_ioctl, 0, TIOCLINUX) == "terminal");
  CHECK(Refuser(SYS_ioctl, TIOCSTI, TIOCGWINSZ).empty());
  CHECK(Refuser(SYS_personality, 0xffffffff).empty());
  CHECK(Refuser(SYS_personality, ~0ull).empty());
  CHECK(Refuser(SYS_personality, 0).empty());
  CHECK(Refuser(SYS_personality, ADDR_NO_RANDOMIZE).empty());
  CHECK(Refuser(SYS_personality, PER_LINUX32) == "personality");
  CHECK(Refuser(SYS_personality, ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC) == "personality");
  CHECK(Refuser(SYS_personality, UNAME26) == "personality");
}

TEST_CASE("sockets of unix, inet and netlink pass, raw ones of inet and all other families do not") {
  CHECK(Refuser(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC).empty());
  CHECK(Refuser(SYS_socket, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 6).empty());
  CHECK(Refuser(SYS_socket, AF_INET6, SOCK_DGRAM, 17).empty());
  CHECK(Refuser(SYS_socket, AF_INET, SOCK_DGRAM, 1).empty());  // ping
  CHECK(Refuser(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0).empty());
  CHECK(Refuser(SYS_socket, AF_INET, SOCK_RAW | SOCK_CLOEXEC, 1) == "sockets");
  CHECK(Refuser(SYS_socket, AF_INET6, SOCK_RAW, 58) == "sockets");
  CHECK(Refuser(SYS_socket, AF_INET, 10, 0) == "sockets");
  CHECK(Refuser(SYS_socket, AF_INET, SOCK_STREAM, 262) == "sockets");      // multipath TCP
  CHECK(Refuser(SYS_socket, AF_INET6, SOCK_SEQPACKET, 132) == "sockets");  // SCTP
  for (const int family : {AF_PACKET, AF_VSOCK, AF_ALG, AF_KEY, AF_RDS, AF_TIPC, AF_BLUETOOTH, AF_XDP}) {
    CHECK(Refuser(SYS_socket, family, SOCK_DGRAM) == "sockets");
  }
  CHECK(Refuser(SYS_socketpair, AF_UNIX, SOCK_STREAM).empty());
  CHECK(Refuser(SYS_socketpair, AF_TIPC, SOCK_STREAM) == "sockets");
}

#if defined(__x86_64__)
TEST_CASE("32-bit and x32 numbers mean the same calls") {
  CHECK(Refuser(26, 0, 0, 0, AUDIT_ARCH_I386) == "ptrace");
  CHECK(Refuser(22, 0, 0, 0, AUDIT_ARCH_I386) == "namespace");  // umount of old
  CHECK(Refuser(359, AF_ALG, 0, 0, AUDIT_ARCH_I386) == "sockets");
  CHECK(Refuser(359, AF_INET, SOCK_STREAM, 0, AUDIT_ARCH_I386).empty());
  CHECK(Refuser(102, 1, 0, 0, AUDIT_ARCH_I386) == "sockets");
  CHECK(Refuser(102, 3, 0, 0, AUDIT_ARCH_I386).empty());  // connect
  CHECK(Refuser(static_cast<int>(kX32Bit) | 521) == "ptrace");
  CHECK(Refuser(static_cast<int>(kX32Bit) | 467) == "namespace");
  CHECK(Refuser(26).empty());  // msync here
}
#endif

}  // namespace agentmon
