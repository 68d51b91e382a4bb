// The system calls that a session's filter refuses, in families that a plan names. One table for both sides:
// the shim builds the filter from it, the daemon finds with it what was refused.
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace agentmon {

enum class CallFamily : uint8_t {
  kPtrace,  // looking into other processes
  kBpf,
  kKernelModules,  // modules and kexec
  kNamespace,      // namespaces and mounts
  kIoUring,        // file and network calls that no filter sees
  kPerf,           // perf_event_open, userfaultfd
  kKeyring,
  kHandles,  // files by handle, past their path
  kPersonality,
  kTerminal,  // input forged into a terminal
  kSockets,   // all but unix, inet (no raw ones) and netlink
  kSystem,    // the host's clock, name, swap, power
};
inline constexpr int kCallFamilies = 12;

// "ptrace", "kernel_modules", ...
absl::string_view CallFamilyName(CallFamily family);
std::optional<CallFamily> ParseCallFamily(absl::string_view name);

// A set of families.
class CallFamilies {
 public:
  void Add(CallFamily family) { bits_ |= 1u << static_cast<int>(family); }
  bool Has(CallFamily family) const { return (bits_ & 1u << static_cast<int>(family)) != 0; }
  bool empty() const { return bits_ == 0; }

 private:
  uint32_t bits_ = 0;
};

// A condition on the low half of an argument: the kernel takes all of these as 32-bit numbers, and would
// not see what stands above.
struct ArgTest {
  enum class Op : uint8_t { kNone, kAnyBit, kEqual, kNotEqual };
  Op op = Op::kNone;
  int8_t arg = 0;  // 0 to 5
  uint32_t value = 0;
  uint32_t mask = ~0u;  // of what is compared; kAnyBit: of `value`
};

struct RefusedCall {
  const char* name;  // as libseccomp knows it; not every architecture has every call
  CallFamily family;
  int error = EPERM;
  ArgTest tests[6] = {};  // refused when all hold; a call may have several rows
};

absl::Span<const RefusedCall> RefusedCalls();

// Do the tests of this row hold?
bool Refuses(const RefusedCall& call, const uint64_t args[6]);

// What refuses this call when its family is refused; nullptr when nothing does. arch: AUDIT_ARCH_*; number:
// with the x32 bit where it is set. Any thread.
const RefusedCall* FindRefusedCall(uint32_t arch, int number, const uint64_t args[6]);

}  // namespace agentmon
