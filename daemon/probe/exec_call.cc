#include "daemon/probe/exec_call.h"

#include <fcntl.h>
#include <linux/audit.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "bpf/event_abi.h"
#include "daemon/probe/caller.h"

namespace agentmon {
namespace {

constexpr size_t kArgumentsMax = 16384;
constexpr size_t kPointersAtOnce = 64;

size_t PointerBytes(uint32_t arch) { return (arch & __AUDIT_ARCH_64BIT) != 0 ? 8 : 4; }

// The addresses of the arguments; the list ends with a null one. Read in pieces: behind the end may be
// nothing.
bool ReadAddresses(pid_t tid, uint64_t list, size_t pointer_bytes, std::vector<uint64_t>* out, bool* cut) {
  std::vector<uint8_t> bytes(kPointersAtOnce * pointer_bytes);
  while (out->size() < kArgumentsMax) {
    const uint64_t at = list + out->size() * pointer_bytes;
    const size_t to_page_end = (4096 - at % 4096) / pointer_bytes;
    const size_t count = std::clamp<size_t>(to_page_end, 1, kPointersAtOnce);
    if (!ReadCallerBytes(tid, at, bytes.data(), count * pointer_bytes)) return false;
    for (size_t i = 0; i < count; ++i) {
      uint64_t address = 0;
      std::copy_n(bytes.data() + i * pointer_bytes, pointer_bytes, reinterpret_cast<uint8_t*>(&address));
      if (address == 0) return true;
      out->push_back(address);
    }
  }
  *cut = true;
  return true;
}

// One argument may be longer than a path. Of one that does not fit with its NUL the first `most` bytes.
bool ReadArgument(pid_t tid, uint64_t address, size_t most, std::string* out, bool* cut) {
  std::string piece;
  while (out->size() < most) {
    const ReadResult result = ReadCallerString(tid, address + out->size(), &piece);
    if (result == ReadResult::kFault) return false;
    out->append(piece);
    if (result == ReadResult::kOk && out->size() < most) return true;
  }
  out->resize(most);
  *cut = true;
  return true;
}

}  // namespace

bool IsLoaderName(absl::string_view exe) {
  const absl::string_view name = exe.substr(exe.rfind('/') + 1);
  return absl::StartsWith(name, "ld-linux") || absl::StartsWith(name, "ld-musl") ||
         absl::StartsWith(name, "ld.so") || absl::StartsWith(name, "ld-2.");
}

size_t LoaderPayload(absl::Span<const absl::string_view> argv) {
  static constexpr absl::string_view kWithValue[] = {
      "--library-path",         "--inhibit-rpath",    "--audit", "--preload", "--argv0",
      "--glibc-hwcaps-prepend", "--glibc-hwcaps-mask"};
  for (size_t i = 1; i < argv.size(); ++i) {
    if (!absl::StartsWith(argv[i], "--")) return i;
    if (std::find(std::begin(kWithValue), std::end(kWithValue), argv[i]) != std::end(kWithValue)) ++i;
  }
  return 0;
}

bool CaptureExec(const MediatedCall& call, const seccomp_notif& request, ExecCall* out) {
  const auto tid = static_cast<pid_t>(request.pid);
  const auto& args = request.data.args;
  uint64_t flags = call.flags >= 0 ? args[call.flags] : 0;
  out->follow = (flags & AT_SYMLINK_NOFOLLOW) == 0;
  out->name.dirfd = call.dirfd >= 0 ? static_cast<int>(static_cast<uint32_t>(args[call.dirfd])) : AT_FDCWD;
  if (ReadCallerString(tid, args[call.path], &out->name.name) == ReadResult::kFault) return false;
  if (args[call.value] == 0) return true;  // Linux takes it for an empty list
  std::vector<uint64_t> addresses;
  if (!ReadAddresses(tid, args[call.value], PointerBytes(request.data.arch), &addresses, &out->argv_cut))
    return false;
  size_t total = 0;
  for (const uint64_t address : addresses) {
    if (total >= AM_ARGV_MAX) {
      out->argv_cut = true;
      break;
    }
    std::string argument;
    if (!ReadArgument(tid, address, AM_ARGV_MAX - total, &argument, &out->argv_cut)) return false;
    total += argument.size() + 1;
    out->argv.push_back(std::move(argument));
  }
  return true;
}

}  // namespace agentmon
