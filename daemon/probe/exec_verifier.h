// Tells the exec program in the kernel which arguments were judged, so that others never run.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "bpf/event_abi.h"
#include "common/base/unique_fd.h"

struct process_bpf;

namespace agentmon {

// Of a hash that an agent must not be able to steer.
struct PermitKey {
  uint64_t words[2] = {};
};
absl::StatusOr<PermitKey> NewPermitKey();

// argv_cut: more follows, which was not looked at. Beyond AM_ARGV_MAX bytes the last argument may go on, too.
am_permit MakePermit(const PermitKey& key, pid_t tgid, absl::Span<const std::string> argv, bool argv_cut);

// Any thread; outlives the programs if it must. In a session that is verified, an exec that finds no permit
// of its thread, or other arguments than the permit's, is killed before its first instruction.
class ExecVerifier {
 public:
  // Of programs that were loaded with this key; keeps their maps by itself. FailedPrecondition where thread
  // ids that we are told are not those that the programs see.
  static absl::StatusOr<std::shared_ptr<ExecVerifier>> Create(const process_bpf& bpf, const PermitKey& key);

  // lenient: for so long an exec without a permit passes; for those that were let go before.
  // One that is verified already stays as it is.
  absl::Status Add(uint64_t cgroup_id, absl::Duration lenient);
  void Remove(uint64_t cgroup_id);

  // Before the exec goes on. False when there is no room: then it must not.
  bool Permit(pid_t tid, pid_t tgid, absl::Span<const std::string> argv, bool argv_cut);
  // Whatever its arguments are.
  bool PermitAny(pid_t tid, pid_t tgid);
  // The thread has ended before it was answered.
  void Forget(pid_t tid);

 private:
  explicit ExecVerifier(const PermitKey& key) : key_(key) {}
  bool Put(pid_t tid, const am_permit& permit);

  const PermitKey key_;
  UniqueFd permits_, verified_;
  std::atomic<bool> in_use_{false};  // else nothing would take the permits away
};

}  // namespace agentmon
