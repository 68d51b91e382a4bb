#include "client/command/stream.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/exit_status.h"

namespace agentmon {

int EndOfStream(const VerbContext& context, const grpc::Status& status, bool stopped_by_us) {
  context.output->Flush();
  if (context.output->error() == EPIPE) return kOk;
  if (!context.output->ok()) {
    return context.Fail(kNegative, absl::StrCat("write the output: ", strerrordesc_np(context.output->error())));
  }
  if (status.ok() || (stopped_by_us && status.error_code() == grpc::StatusCode::CANCELLED)) return kOk;
  return context.FailRpc(status);
}

}  // namespace agentmon
