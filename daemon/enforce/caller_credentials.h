// The right that a waiting caller has to files, taken over by the thread that acts for it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace agentmon {

struct CallerCredentials {
  uid_t fsuid = 0;
  gid_t fsgid = 0;
  std::vector<gid_t> groups;
  uint64_t capabilities = 0;  // effective, bit N = capability N
  mode_t umask = 022;
  // No call that it may make changes who it is: one user and group only, no_new_privs, no capability.
  bool lasting = false;
};

// Of a thread, from /proc/TID/status.
absl::StatusOr<CallerCredentials> ReadCallerCredentials(pid_t tid);

// Of threads of sessions, read once where nothing can change them. One thread's own.
class KnownCredentials {
 public:
  // cgroup_id: of the session. The umask of lasting ones is that of whenever they were read.
  absl::StatusOr<CallerCredentials> Of(uint64_t cgroup_id, pid_t tid);

 private:
  absl::flat_hash_map<uint64_t, CallerCredentials> lasting_;
};

// For one thread that acts for callers. Call once in the thread: its umask is its own from then on.
absl::Status PrepareToActForCallers();

// This thread has the caller's file rights and no capability but the caller's as long as it lives. Raw calls:
// the C library would change all threads. Construct only in a prepared thread, one at a time; a failure to
// give the rights up is one of Took().
// In a process of BecomeCaller's it does nothing.
class ActingFor {
 public:
  explicit ActingFor(const CallerCredentials& caller);
  ~ActingFor();
  ActingFor(const ActingFor&) = delete;
  ActingFor& operator=(const ActingFor&) = delete;

  // Not taken: nothing may be done for the caller.
  bool Took() const { return took_; }

 private:
  bool took_ = false;
};

// This process, of one thread, is the caller from now on, with all of its ids: FUSE lets nobody else into a
// mount that is its owner's alone. There is no way back.
bool BecomeCaller(const CallerCredentials& caller);

}  // namespace agentmon
