// How a verb that prints a stream ends.
#pragma once

#include <grpcpp/support/status.h>

#include "client/command/verb.h"

namespace agentmon {

// The exit status after the last message. That the reader of our output has gone away, or that we ended the
// call ourselves, is no failure.
int EndOfStream(const VerbContext& context, const grpc::Status& status, bool stopped_by_us);

// The same for a stream that has no end of its own: the daemon ends it when it stops itself.
int EndOfFollowing(const VerbContext& context, const grpc::Status& status, bool stopped_by_us);

}  // namespace agentmon
