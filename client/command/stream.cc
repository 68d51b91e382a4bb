#include "client/command/stream.h"

#include "absl/strings/str_cat.h"
#include "client/connection/socket.h"
#include "client/exit_status.h"

namespace agentmon {

int EndOfStream(const VerbContext& context, const grpc::Status& status, bool stopped_by_us) {
  context.output->Flush();
  if (!context.output->ok()) return kOk;  // the call was cancelled for it; RunCli tells
  if (status.ok() || (stopped_by_us && status.error_code() == grpc::StatusCode::CANCELLED)) return kOk;
  return context.FailRpc(status);
}

int EndOfFollowing(const VerbContext& context, const grpc::Status& status, bool stopped_by_us) {
  const int exit_status = EndOfStream(context, status, stopped_by_us);
  if (!status.ok() || stopped_by_us || !context.output->ok()) return exit_status;
  return context.Fail(kNoDaemon, absl::StrCat("agentmond has stopped; nothing more comes: ", HowToStart()));
}

}  // namespace agentmon
