#include "client/command/stream.h"

#include "client/exit_status.h"

namespace agentmon {

int EndOfStream(const VerbContext& context, const grpc::Status& status, bool stopped_by_us) {
  context.output->Flush();
  if (!context.output->ok()) return kOk;  // the call was cancelled for it; RunCli tells
  if (status.ok() || (stopped_by_us && status.error_code() == grpc::StatusCode::CANCELLED)) return kOk;
  return context.FailRpc(status);
}

}  // namespace agentmon
