// The call maker: a process of its own that makes file-changing calls on mounts behind a server (FUSE, NFS,
// CIFS), each in a child that is its caller: a server that hangs holds up that child, and a FUSE mount lets
// its owner in. What may be done the daemon says, as it does to a broker of its own.
#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/unique_fd.h"
#include "daemon/enforce/file_broker.h"

namespace agentmon {

// The daemon's side. Any thread.
class CallMaker {
 public:
  // Has the call made; the socket to the child that makes it. Closed before the end, that child is killed.
  absl::StatusOr<UniqueFd> Begin(const BrokeredCall& call);

 private:
  absl::Mutex mutex_;
  UniqueFd channel_ ABSL_GUARDED_BY(mutex_);  // the process is started when it is needed
};

// Answers what the child asks until it is through: 0. EINTR when a signal came, to be called again; EIO when
// the child is gone, or was never made.
int FollowMadeCall(int socket, const FileJudge& judge, BrokerResult* result);

// For main: never returns in a process that CallMaker has started.
void RunCallMakerIfAsked(int argc, char** argv);

}  // namespace agentmon
