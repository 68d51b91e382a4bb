// One mediated system call, read while its caller waits, described afterwards.
#pragma once

#include <linux/seccomp.h>

#include <cstdint>
#include <optional>

#include "common/kernel/mediated_calls.h"
#include "daemon/enforce/file_broker.h"
#include "daemon/probe/caller.h"
#include "daemon/probe/file_path.h"
#include "daemon/probe/file_record.h"

namespace agentmon {

enum class CaptureResult {
  kCall,     // to be recorded
  kNothing,  // changes nothing: a read-only openat2, a name that the kernel cannot read either
};

struct CaptureOptions {
  // Whether O_CREAT creates is asked of the file system. Off where that has hung before: then it counts as
  // CREATE.
  bool look_at_files = true;
};

// What only exists while the caller waits: its memory, its current directory, its descriptors, the state of
// the file system before the call. Names are still as asked.
class FileCall {
 public:
  CaptureResult Capture(const MediatedCall& call, const seccomp_notif& request,
                        const CaptureOptions& options);

  // Where its relative names start, while the caller waits; Describe joins them. Not needed where somebody
  // else has found the path.
  void FindBases(const MediatedCall& call, const seccomp_notif& request);

  // The same call for who performs it; without the caller's process.
  BrokeredCall ForBroker(const MediatedCall& call, const seccomp_notif& request) const;
  // After kNothing: the call could be read, and is none that changes anything.
  bool changes_nothing() const { return changes_nothing_; }
  bool cut() const { return cut_; }  // a name is longer than any that there can be
  v1::EventKind kind() const { return record_.kind; }

  // Needs nothing of the caller. `resolver` may be null: names are joined, not resolved.
  FileRecord Describe(PathResolver* resolver, const CallerIdentity& caller, int64_t boot_ns) const;

 private:
  CaptureResult CaptureNames(const MediatedCall& call, const seccomp_notif& request);
  bool CaptureName(const seccomp_notif& request, int path_argument, AskedName* name);
  void FindBase(const seccomp_notif& request, int dirfd_argument, AskedName* name);
  CaptureResult ReadFlags(const MediatedCall& call, const seccomp_notif& request);
  CaptureResult Classify(const MediatedCall& call, const seccomp_notif& request,
                         const CaptureOptions& options);
  CaptureResult ClassifyOpen(const seccomp_notif& request, const CaptureOptions& options);
  bool Exists(pid_t tid) const;

  pid_t tid_ = 0;
  int dirfd_ = 0;  // of name_
  AskedName name_;
  AskedName new_name_;
  bool has_new_name_ = false;
  bool cut_ = false;
  bool changes_nothing_ = false;
  uint64_t at_flags_ = 0;  // AT_* of the *at calls
  FileRecord record_;      // without its paths
};

}  // namespace agentmon
