#include "client/command/timeline.h"

#include <deque>
#include <nlohmann/json.hpp>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "agentmon/v1/timeline.grpc.pb.h"
#include "client/command/interrupt.h"
#include "client/command/stream.h"
#include "client/exit_status.h"
#include "client/output/event_json.h"
#include "client/output/event_writer.h"
#include "client/output/names.h"
#include "client/output/text.h"
#include "client/output/times.h"
#include "common/base/status.h"
#include "common/cli/usage_error.h"
#include "daemon/event/kinds.h"

namespace agentmon {
namespace {

constexpr uint32_t kTableLimit = 1000;
constexpr uint32_t kFollowBacklog = 10;
constexpr absl::Duration kVerifyTime = absl::Hours(1);

std::string FormatOf(const VerbContext& context, const TimelineOptions& options) {
  if (options.tree) return "tree";
  return context.json ? "json" : options.format;
}

// A tree is of one session; rows are of all, as a log is.
std::string SessionOf(const TimelineOptions& options) {
  if (options.session == "all" || (options.session.empty() && !options.tree)) return "*";
  return options.session;
}

std::unique_ptr<EventWriter> MakeWriter(const VerbContext& context, const TimelineOptions& options) {
  EventWriterOptions writer;
  writer.format = FormatOf(context, options);
  writer.show_session = SessionOf(options) == "*";
  writer.color = UseColor(context.color, *context.output);
  return MakeEventWriter(writer, *context.output);
}

int Follow(const VerbContext& context, const TimelineOptions& options, const v1::EventFilter& filter) {
  int exit_status = kOk;
  Interrupt interrupt;  // before gRPC makes threads
  const auto channel = context.Connect(&exit_status);
  if (channel == nullptr) return exit_status;
  v1::TailRequest request;
  *request.mutable_filter() = filter;
  request.set_backlog(options.limit.value_or(options.since.empty() ? kFollowBacklog : UINT32_MAX));
  if (options.limit == 0) request.set_backlog(UINT32_MAX);
  const std::unique_ptr<EventWriter> writer = MakeWriter(context, options);
  const Watchdog watchdog(GrpcWatchdog(absl::InfiniteDuration(), kNoDaemon, context.err_fd));
  grpc::ClientContext client_context;
  interrupt.Cancels(&client_context);
  const auto stream = v1::Timeline::NewStub(channel)->Tail(&client_context, request);
  v1::TailResponse response;
  while (context.output->ok() && stream->Read(&response)) {
    if (response.gap() != 0) writer->OnGap(response.gap());
    for (const v1::Event& event : response.events()) writer->OnEvent(event);
    context.output->Flush();
  }
  writer->Finish();
  if (!context.output->ok()) client_context.TryCancel();
  const grpc::Status status = stream->Finish();
  interrupt.Stop();
  return EndOfFollowing(context, status, interrupt.happened());
}

// Reads the answer and writes it as it comes. With a default limit one more than that is asked for and held
// back, so that a cut can be told.
grpc::Status WriteAnswer(const VerbContext& context, const v1::QueryRequest& request, bool default_limit,
                         const std::shared_ptr<grpc::Channel>& channel, EventWriter& writer,
                         uint64_t* events) {
  const Watchdog watchdog(GrpcWatchdog(absl::InfiniteDuration(), kNoDaemon, context.err_fd));
  grpc::ClientContext client_context;
  const auto stream = v1::Timeline::NewStub(channel)->Query(&client_context, request);
  v1::QueryResponse response;
  std::deque<v1::Event> held;
  while (context.output->ok() && stream->Read(&response)) {
    *events += static_cast<uint64_t>(response.events_size());
    for (v1::Event& event : *response.mutable_events()) {
      if (default_limit) {
        held.push_back(std::move(event));
      } else {
        writer.OnEvent(event);
      }
    }
  }
  const bool is_cut = held.size() > kTableLimit;
  if (is_cut) held.pop_front();
  for (const v1::Event& event : held) writer.OnEvent(event);
  writer.Finish();
  context.output->Flush();
  if (!context.output->ok()) client_context.TryCancel();
  const grpc::Status status = stream->Finish();
  if (is_cut && status.ok() && context.output->ok()) {
    Complain(context.err_fd, absl::StrCat("these are the newest ", kTableLimit,
                                          " events: --limit 0 shows all, --since and --kind choose"));
  }
  return status;
}

}  // namespace

namespace {

absl::Status AddKind(absl::string_view name, v1::EventFilter* filter) {
  const std::vector<v1::EventKind> kinds = KindsByName(name);
  if (kinds.empty()) {
    const std::vector<std::string> words = KindWords();
    const std::string near = DidYouMean(name, words);
    return absl::InvalidArgumentError(
        absl::StrCat("--kind: '", name, "' is no kind of event",
                     near.empty() ? absl::StrCat(", there are ", absl::StrJoin(words, ", ")) : near));
  }
  for (const v1::EventKind kind : kinds) filter->add_kinds(kind);
  return absl::OkStatus();
}

// Options that contradict each other; empty when none do.
std::string Contradiction(const VerbContext& context, const TimelineOptions& options,
                          const v1::EventFilter& filter, absl::Time now) {
  if (options.tree && options.follow) return "--tree needs the whole timeline and cannot go with --follow";
  if (options.tree && (context.json || options.format != "table"))
    return "--tree is a form of its own and cannot go with --json or --format";
  if (options.follow && filter.until_ns() != 0 && filter.until_ns() <= absl::ToUnixNanos(now))
    return "--until has passed, so that nothing could follow: leave it out, or --follow";
  return "";
}

// An empty table says nothing about why it is empty.
void TellWhyEmpty(const VerbContext& context, const TimelineOptions& options) {
  const char first = options.path.empty() ? '/' : options.path[0];
  Complain(context.err_fd, first == '/' || first == '*'
                               ? "no events match"
                               : "no events match: paths are absolute, so that --path begins with / or **/");
}

}  // namespace

absl::StatusOr<v1::EventFilter> MakeFilter(const TimelineOptions& options, absl::Time now,
                                           absl::TimeZone zone) {
  v1::EventFilter filter;
  filter.set_session(SessionOf(options));
  for (const auto& [name, text, set] :
       {std::tuple("--since", &options.since, &v1::EventFilter::set_since_ns),
        std::tuple("--until", &options.until, &v1::EventFilter::set_until_ns)}) {
    if (text->empty()) continue;
    const absl::StatusOr<absl::Time> time = ParseWhen(*text, now, zone);
    if (!time.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", time.status().message()));
    (filter.*set)(absl::ToUnixNanos(*time));
  }
  if (filter.since_ns() != 0 && filter.until_ns() != 0 && filter.since_ns() > filter.until_ns())
    return absl::InvalidArgumentError("--since is later than --until: no event lies between");
  for (const std::string& names : options.kinds) {
    for (const absl::string_view name : absl::StrSplit(names, ',')) RETURN_IF_ERROR(AddKind(name, &filter));
  }
  filter.set_decision(DecisionByName(options.verdict));
  if (!options.verdict.empty() && filter.decision() == v1::DECISION_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat("--verdict ", options.verdict, " is no verdict"));
  }
  if (!options.enforced.empty()) {
    filter.set_enforced(options.enforced == "yes" ? v1::EventFilter::YES : v1::EventFilter::NO);
  }
  filter.set_path_glob(options.path);
  filter.set_dest(options.dest);
  filter.set_exe_glob(options.exe);
  filter.set_pid(options.pid);
  return filter;
}

int Timeline(const VerbContext& context, const TimelineOptions& options) {
  const absl::Time now = absl::Now();
  const absl::StatusOr<v1::EventFilter> filter = MakeFilter(options, now, absl::LocalTimeZone());
  if (!filter.ok()) return context.Fail(kUsage, absl::StrCat("timeline: ", filter.status().message()));
  if (const std::string wrong = Contradiction(context, options, *filter, now); !wrong.empty())
    return context.Fail(kUsage, absl::StrCat("timeline: ", wrong));
  if (options.follow) return Follow(context, options, *filter);
  int exit_status = kOk;
  const auto channel = context.Connect(&exit_status);
  if (channel == nullptr) return exit_status;
  const bool default_limit = !options.limit.has_value() && FormatOf(context, options) == "table";
  v1::QueryRequest request;
  *request.mutable_filter() = *filter;
  request.set_limit(default_limit ? kTableLimit + 1 : options.limit.value_or(0));
  const std::unique_ptr<EventWriter> writer = MakeWriter(context, options);
  const std::string format = FormatOf(context, options);
  uint64_t events = 0;
  const grpc::Status status = WriteAnswer(context, request, default_limit, channel, *writer, &events);
  if (status.ok() && events == 0 && (format == "table" || format == "tree")) TellWhyEmpty(context, options);
  return EndOfStream(context, status, false);
}

int TimelineVerify(const VerbContext& context) {
  int exit_status = kOk;
  const auto channel = context.Connect(&exit_status);
  if (channel == nullptr) return exit_status;
  v1::VerifyResponse response;
  const auto stub = v1::Timeline::NewStub(channel);
  const grpc::Status status =
      context.Ask(kVerifyTime, [&](grpc::ClientContext* call) { return stub->Verify(call, {}, &response); });
  if (!status.ok()) return context.FailRpc(status);
  if (context.json) {
    nlohmann::ordered_json out;
    out["intact"] = response.intact();
    out["batches"] = response.batches();
    out["events"] = response.events();
    out["pruned_batches"] = response.pruned_batches();
    out["head"] = ToUtf8(response.head());
    out["findings"] = nlohmann::ordered_json::array();
    for (const std::string& finding : response.findings()) out["findings"].push_back(ToUtf8(finding));
    context.output->Line(DumpJson(out, 2));
  } else {
    const Paint paint = context.paint();
    context.output->Line(
        absl::StrCat(response.intact() ? paint(Color::kGreen, "intact") : paint(Color::kRed, "damaged"), ": ",
                     response.events(), " events in ", response.batches(), " batches, ",
                     response.pruned_batches(), " batches pruned"));
    if (!response.head().empty()) context.output->Line(absl::StrCat("head ", Printable(response.head())));
    for (const std::string& finding : response.findings()) context.output->Line(Printable(finding));
  }
  return response.intact() ? kOk : kNegative;
}

}  // namespace agentmon
