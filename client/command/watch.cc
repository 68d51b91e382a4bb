#include "client/command/watch.h"

#include "absl/strings/str_cat.h"
#include "agentmon/v1/sessions.grpc.pb.h"
#include "client/command/interrupt.h"
#include "client/command/stream.h"
#include "client/exit_status.h"
#include "client/output/event_writer.h"

namespace agentmon {

int Watch(const VerbContext& context, const WatchOptions& options) {
  int exit_status = kOk;
  Interrupt interrupt;  // before gRPC makes threads
  const auto channel = context.Connect(&exit_status);
  if (channel == nullptr) return exit_status;
  v1::WatchRequest request;
  request.set_pid(options.pid);
  EventWriterOptions writer_options;
  writer_options.format = context.json ? "json" : options.format;
  writer_options.color = UseColor(context.color, *context.output);
  const std::unique_ptr<EventWriter> writer = MakeEventWriter(writer_options, *context.output);
  const Watchdog watchdog(GrpcWatchdog(absl::InfiniteDuration(), kNoDaemon, context.err_fd));
  grpc::ClientContext client_context;
  interrupt.Cancels(&client_context,
                    options.duration > 0 ? absl::Seconds(options.duration) : absl::InfiniteDuration());
  const auto stream = v1::Sessions::NewStub(channel)->Watch(&client_context, request);
  v1::WatchResponse response;
  while (context.output->ok() && stream->Read(&response)) {
    if (response.what_case() == v1::WatchResponse::kGap) writer->OnGap(response.gap());
    if (response.what_case() == v1::WatchResponse::kEvent) writer->OnEvent(response.event());
    context.output->Flush();
  }
  writer->Finish();
  if (!context.output->ok()) client_context.TryCancel();
  const grpc::Status status = stream->Finish();
  interrupt.Stop();
  return EndOfStream(context, status, interrupt.happened());
}

}  // namespace agentmon
