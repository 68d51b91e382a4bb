#include "client/command/watch.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agentmon/v1/sessions.grpc.pb.h"
#include "client/command/interrupt.h"
#include "client/command/stream.h"
#include "client/exit_status.h"
#include "client/output/event_writer.h"
#include "client/output/names.h"
#include "client/output/text.h"

namespace agentmon {

namespace {

// The daemon keeps a watched tree as a session; who watches it started none.
bool IsFrame(const v1::Event& event, const EventWriterOptions& options) {
  return options.format != "json" && event.kind() == v1::SESSION &&
         (event.session_change().what() == v1::SessionChange::STARTED ||
          event.session_change().what() == v1::SessionChange::ENDED);
}

void Announce(const VerbContext& context, int pid, const v1::Session& session) {
  std::vector<std::string> unseen;
  for (const v1::SourceState& source : session.sources()) {
    if (!source.active()) unseen.push_back(SourceSees(source.source()));
  }
  Complain(context.err_fd,
           absl::StrCat("watching process ", pid, " and its descendants",
                        unseen.empty() ? "" : absl::StrCat("; not seen: ", absl::StrJoin(unseen, ", ")),
                        "; ^C ends it"));
}

}  // namespace

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
  const bool on_terminal = isatty(context.err_fd) == 1;
  bool is_over = false;
  v1::WatchResponse response;
  while (context.output->ok() && stream->Read(&response)) {
    if (response.what_case() == v1::WatchResponse::kGap) writer->OnGap(response.gap());
    if (response.what_case() == v1::WatchResponse::kSession && on_terminal)
      Announce(context, options.pid, response.session());
    const v1::SessionChange& change = response.event().session_change();
    if (change.what() == v1::SessionChange::ENDED) {
      is_over = true;
      if (on_terminal) Complain(context.err_fd, change.detail());
    }
    if (response.what_case() == v1::WatchResponse::kEvent && !IsFrame(response.event(), writer_options))
      writer->OnEvent(response.event());
    context.output->Flush();
  }
  writer->Finish();
  if (!context.output->ok()) client_context.TryCancel();
  const grpc::Status status = stream->Finish();
  interrupt.Stop();
  return is_over ? EndOfStream(context, status, interrupt.happened())
                 : EndOfFollowing(context, status, interrupt.happened());
}

}  // namespace agentmon
