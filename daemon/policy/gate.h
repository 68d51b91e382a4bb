// Says to threads that answer the kernel whether an act of a session may go on.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "agentmon/v1/event.pb.h"
#include "common/base/clock.h"
#include "common/policy/current.h"
#include "common/policy/evaluate.h"
#include "common/policy/protected_places.h"
#include "daemon/policy/program_copies.h"
#include "daemon/policy/protected_inodes.h"
#include "daemon/policy/session_terminals.h"
#include "daemon/policy/trusted_directories.h"

namespace agentmon {

// One per session; any thread. Follows the session's policy: what it says of an act is what is in force at
// that moment. Never waits for a disk or a server.
class Gate {
 public:
  Gate(std::shared_ptr<const policy::CurrentSnapshot> policy, std::vector<gid_t> groups);

  struct Answer {
    bool stop = false;
    bool by_rule = false;     // a rule says so, not a default
    v1::Judgement judgement;  // without enforced, mechanism and error; empty for what a default allows
  };
  // A file, by its path in the session's root, all links followed. directory: the object is one.
  Answer File(uint32_t operations, absl::string_view path, absl::string_view new_path = {},
              bool directory = false);
  // A directory that is renamed: also whether it would carry something into a rule, or out of one.
  Answer Move(absl::string_view path, absl::string_view new_path);
  // An open file, of which the path is only one name: whether another one is protected from these operations.
  Answer OtherNames(uint32_t operations, absl::string_view path, const struct stat& st);
  // Whether any of these operations on this path would be stopped.
  bool Stops(uint32_t operations, absl::string_view path) { return File(operations, path).stop; }
  // exe: the file that is started, resolved; asked: what the program named, absolute.
  Answer Exec(absl::string_view exe, absl::string_view asked, absl::Span<const absl::string_view> argv,
              pid_t tgid);
  // operation: a policy::UnixOp. The path of a socket's file, resolved, or "@name".
  Answer Unix(uint32_t operation, absl::string_view path);
  // protocol: policy::kTcp, kUdp, or 0 for another one. The proxy of the session, on TCP, is never stopped.
  Answer Network(policy::NetworkOp operation, const policy::Address& address, uint16_t port,
                 uint8_t protocol);
  // The same of a file that is a copy of the program `original`: a default speaks of the file that it is, so
  // only what rules say of the original counts.
  Answer Copy(absl::string_view exe, absl::string_view original, absl::Span<const absl::string_view> argv,
              pid_t tgid);
  // A further program of one exec, an interpreter or loader: only what a rule names is stopped.
  Answer Interpreter(absl::string_view exe);

  // The program that a rule on commands names and that this open file is a copy of; empty = none.
  std::string ProgramOf(int fd, const struct stat& st);
  // The programs that rules name, as they are on this host.
  std::shared_ptr<const ProgramCopies> Programs();

  // Whether the session began with a policy that stops something: what stops it had to be in place before the
  // agent.
  bool armed() const { return armed_; }
  // Whether the policy of the moment stops anything, or only records. Never true where the gate is not armed.
  bool enforces() const;

  // Another one after each switch of the policy: what was found before holds no more.
  std::shared_ptr<const policy::Snapshot> snapshot() const { return policy_->Get(); }

  // While the shim tries what is forbidden: what is stopped then is no doing of the agent's.
  void SetProving(bool proving) { proving_ = proving; }
  bool proving() const { return proving_; }

  // The session's own proxy listens on this port of 127.0.0.1; 0 = none does.
  void SetProxy(uint16_t port) { proxy_port_ = port; }
  // Whether a connection there reaches it.
  bool IsProxy(const policy::Address& address, uint16_t port, uint8_t protocol) const;

  // The session's first process is known.
  void SetFirstProcess(pid_t pid);
  // A process of the session opens /dev/ptmx: the terminal that it gets is the session's.
  void AddTerminalMaker(pid_t tgid);

 private:
  Answer Judge(const policy::Snapshot& snapshot, const policy::Subject& subject);
  // Of the policy of the moment.
  std::shared_ptr<const policy::ProtectedPlaces> Places();
  int DepthOf(pid_t tgid) const;

  const std::shared_ptr<const policy::CurrentSnapshot> policy_;
  const std::vector<gid_t> groups_;
  const bool armed_;
  std::atomic<bool> proving_{false};
  std::atomic<uint16_t> proxy_port_{0};
  const SystemClock clock_;
  mutable absl::Mutex mutex_;
  TrustedDirectories trusted_ ABSL_GUARDED_BY(mutex_);
  SessionTerminals terminals_ ABSL_GUARDED_BY(mutex_);
  pid_t first_process_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const policy::Snapshot> places_of_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const policy::ProtectedPlaces> places_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const policy::Snapshot> copies_of_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const ProgramCopies> copies_ ABSL_GUARDED_BY(mutex_);
  int64_t copies_until_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Mutex inodes_mutex_;  // held while directories are looked through
  std::shared_ptr<const policy::ProtectedPlaces> inodes_of_ ABSL_GUARDED_BY(inodes_mutex_);
  ProtectedInodes inodes_ ABSL_GUARDED_BY(inodes_mutex_);
};

// Whether something of this policy could stop an act, or all of it only records.
bool Enforces(const policy::Snapshot& snapshot);

}  // namespace agentmon
