#include <pwd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/output/event_text.h"
#include "client/output/names.h"
#include "client/output/session_output.h"
#include "client/output/text.h"
#include "client/output/times.h"
#include "daemon/event/kinds.h"

namespace agentmon {
namespace {

using Row = std::vector<std::string>;

std::string CommandText(const v1::Session& session) {
  return ShellQuoteAll({session.command().begin(), session.command().end()});
}

std::string UserName(uint32_t uid) {
  const passwd* user = getpwuid(uid);
  return user != nullptr ? Printable(user->pw_name) : absl::StrCat(uid);
}

// A watched tree is none that was put into a session.
std::string StateText(const v1::Session& session) {
  const bool is_watched = session.origin() == v1::Session::WATCH && session.state() == v1::Session::RUNNING;
  return is_watched ? "watched" : StateName(session.state());
}

absl::Duration Age(const v1::Session& session, absl::Time now) {
  const absl::Time end = session.ended_ns() == 0 ? now : absl::FromUnixNanos(session.ended_ns());
  return std::max(end - absl::FromUnixNanos(session.started_ns()), absl::ZeroDuration());
}

constexpr int kGap = 2;           // between columns
constexpr int kLeastElastic = 6;  // of a column that gives way
constexpr int kLeastLast = 8;     // of the last column

// As wide as the widest cell. On a terminal that has not enough, the elastic columns give way.
std::vector<int> Widths(const std::vector<Row>& rows, const std::vector<size_t>& elastic,
                        const Output& output) {
  std::vector<int> widths(rows[0].size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  if (!output.is_terminal()) return widths;
  int missing = kLeastLast - output.columns();
  for (size_t i = 0; i + 1 < widths.size(); ++i) missing += widths[i] + kGap;
  for (const size_t i : elastic) {
    const int given = std::clamp(widths[i] - kLeastElastic, 0, std::max(missing, 0));
    widths[i] -= given;
    missing -= given;
  }
  return widths;
}

// Columns side by side; the last one takes what is left.
void WriteRows(const std::vector<Row>& rows, const std::vector<size_t>& elastic, const Paint& paint,
               Output& output) {
  const std::vector<int> widths = Widths(rows, elastic, output);
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i + 1 < row.size(); ++i)
      absl::StrAppend(&line, PadRight(CutToWidth(row[i], widths[i]), widths[i] + kGap));
    absl::StrAppend(&line, row.back());
    if (output.is_terminal()) line = CutToWidth(line, output.columns());
    output.Line(&row == &rows[0] ? paint(Color::kDim, line) : line);
  }
}

void Field(absl::string_view name, absl::string_view value, Output& output) {
  if (!value.empty()) output.Line(absl::StrCat(PadRight(name, 11), value));
}

void WriteSources(const google::protobuf::RepeatedPtrField<v1::SourceState>& sources, const Paint& paint,
                  Output& output) {
  for (const v1::SourceState& source : sources) {
    std::string line = absl::StrCat("  ", PadRight(SourceName(source.source()), 9), "  ");
    if (source.active()) {
      absl::StrAppend(&line, paint(Color::kGreen, "active"), ", counts ", Printable(source.counts()), ", ",
                      source.events(), " events");
    } else {
      absl::StrAppend(&line, paint(Color::kYellow, "not active"), ", no ", SourceSees(source.source()), ": ",
                      Printable(source.why()));
    }
    if (source.lost() != 0)
      absl::StrAppend(&line, paint(Color::kRed, absl::StrCat(", ", source.lost(), " lost")));
    output.Line(line);
  }
}

void WriteControls(const google::protobuf::RepeatedPtrField<v1::ControlState>& controls, const Paint& paint,
                   Output& output) {
  if (!controls.empty()) output.Line("controls");
  for (const v1::ControlState& control : controls) {
    const std::string state =
        control.active() ? paint(Color::kGreen, "active")
                         : absl::StrCat(paint(Color::kYellow, "not active"), ": ", Printable(control.why()));
    output.Line(absl::StrCat("  ", PadRight(Printable(control.name()), 20), "  ",
                             PadRight(Printable(control.mechanism()), 9), "  ", state));
  }
}

void WritePolicy(const v1::PolicyState& policy, const Paint& paint, Output& output) {
  Field("policy", PolicyLine(policy), output);
  if (!policy.problem().empty())
    output.Line(absl::StrCat(paint(Color::kYellow, PadRight("problem", 11)), Printable(policy.problem())));
  // Rules by what becomes of them; names only, --json has their places.
  for (const auto& [how, text] :
       {std::pair(v1::RuleEnforcement::KERNEL, "enforced"), std::pair(v1::RuleEnforcement::ASKED, "asked"),
        std::pair(v1::RuleEnforcement::OBSERVED, "recorded, not enforced"),
        std::pair(v1::RuleEnforcement::NONE, "neither seen nor enforced")}) {
    std::vector<std::string> names, proxied;
    for (const v1::RuleEnforcement& rule : policy.rules()) {
      if (rule.how() != how) continue;
      const bool partly = how == v1::RuleEnforcement::NONE && rule.mechanism() == "proxy";
      (partly ? proxied : names).push_back(Printable(rule.rule()));
    }
    if (!proxied.empty()) {
      output.Line(absl::StrCat(
          "  ", proxied.size(), proxied.size() == 1 ? " rule holds" : " rules hold",
          " for what uses the session's proxy, and for nothing else: ", absl::StrJoin(proxied, ", ")));
    }
    if (names.empty()) continue;
    output.Line(absl::StrCat("  ", names.size(), names.size() == 1 ? " rule " : " rules ", text, ": ",
                             absl::StrJoin(names, ", ")));
  }
}

}  // namespace

std::string PolicyLine(const v1::PolicyState& policy) {
  std::vector<std::string> parts;
  for (const v1::PolicyState::Layer& layer : policy.layers()) {
    if (layer.kind() == v1::LAYER_BUILTIN) continue;
    parts.push_back(absl::StrCat(Printable(layer.name()), " (", PostureName(layer.posture()), ")"));
  }
  return absl::StrJoin(parts, ", ");
}

std::string NotEnforced(const v1::Session& session) {
  const uint64_t open = session.denials_not_enforced();
  if (open == 0) return "";
  return open >= session.denials() ? ", not enforced" : absl::StrCat(", ", open, " of them not enforced");
}

void WriteSessionTable(const std::vector<v1::Session>& sessions, absl::Time now, const Paint& paint,
                       Output& output) {
  constexpr size_t kName = 1, kUser = 2;
  std::vector<Row> rows{{"ID", "NAME", "USER", "STATE", "AGE", "PROCS", "EVENTS", "DENIED", "COMMAND"}};
  for (const v1::Session& session : sessions) {
    rows.push_back({Printable(session.id()), session.name().empty() ? "-" : Printable(session.name()),
                    UserName(session.uid()), StateText(session), ShortDuration(Age(session, now)),
                    absl::StrCat(session.processes()), absl::StrCat(session.events()),
                    absl::StrCat(session.denials()), CommandText(session)});
  }
  WriteRows(rows, {kName, kUser}, paint, output);
}

void WriteSession(const v1::Session& session, absl::Time now, const Paint& paint, Output& output) {
  const absl::TimeZone zone = absl::LocalTimeZone();
  Field("session", paint(Color::kBold, Printable(session.id())), output);
  Field("name", Printable(session.name()), output);
  Field("state",
        absl::StrCat(StateText(session), ", made by ", OriginName(session.origin()),
                     session.state() == v1::Session::STARTING
                         ? ": no process has entered it yet; it ends by itself when none comes within 30 s"
                         : ""),
        output);
  Field("user", absl::StrCat(UserName(session.uid()), " (", session.uid(), ")"), output);
  Field("command", CommandText(session), output);
  Field("workspace", session.workspace().empty() ? "" : ShellQuote(session.workspace()), output);
  for (const auto& [key, value] :
       std::map<std::string, std::string>(session.labels().begin(), session.labels().end())) {
    Field("label", absl::StrCat(Printable(key), "=", Printable(value)), output);
  }
  Field("started",
        absl::StrCat(LocalDateTime(session.started_ns(), zone), ", ", ShortDuration(Age(session, now)),
                     session.ended_ns() == 0 ? " ago" : " long"),
        output);
  if (session.ended_ns() != 0) {
    Field("ended",
          absl::StrCat(LocalDateTime(session.ended_ns(), zone), ": ", Printable(session.end_reason())),
          output);
  }
  Field("processes", absl::StrCat(session.processes(), " alive, first ", session.first_process().pid()),
        output);
  Field("events", absl::StrCat(session.events(), ", ", session.denials(), " denied", NotEnforced(session)),
        output);
  Field("cgroup", Printable(session.cgroup()), output);
  Field("unit", Printable(session.unit()), output);
  Field("limits", Printable(absl::StrJoin(session.limits(), "; ")), output);
  if (session.has_usage()) Field("used", UsageText(session.usage()), output);
  if (!session.sources().empty()) output.Line("sources");
  WriteSources(session.sources(), paint, output);
  WriteControls(session.controls(), paint, output);
  WritePolicy(session.policy(), paint, output);
}

void WriteStatus(const v1::StatusResponse& status, absl::Time now, const Paint& paint, Output& output) {
  const absl::TimeZone zone = absl::LocalTimeZone();
  const v1::StoreState& store = status.store();
  Field("agentmond",
        absl::StrCat(Printable(status.version()), ", pid ", status.pid(), ", up ",
                     ShortDuration(now - absl::FromUnixNanos(status.started_ns()))),
        output);
  Field("kernel", Printable(status.kernel()), output);
  Field("you are", Printable(status.role()), output);
  Field("socket", Printable(status.socket()), output);
  const uint32_t open = status.sessions_not_enforced();
  Field("sessions",
        absl::StrCat(status.sessions(), " running",
                     open == 0 ? "" : absl::StrCat(", ", open, " with rules that nothing enforces")),
        output);
  output.Line("sources");
  WriteSources(status.sources(), paint, output);
  std::string text = paint(store.state() == "ok" ? Color::kGreen : Color::kRed, Printable(store.state()));
  absl::StrAppend(&text, ", ", store.events(), " events, ", ByteSize(store.bytes()), " in ",
                  Printable(status.state_dir()));
  if (store.waiting() != 0) absl::StrAppend(&text, ", ", store.waiting(), " waiting");
  if (store.lost() != 0)
    absl::StrAppend(&text, paint(Color::kRed, absl::StrCat(", ", store.lost(), " lost")));
  if (store.oldest_ns() != 0) absl::StrAppend(&text, ", since ", LocalDateTime(store.oldest_ns(), zone));
  Field("store", text, output);
  std::vector<std::string> floor;
  for (const std::string& file : status.floor()) floor.push_back(Printable(file));
  Field("policy",
        absl::StrCat(Printable(status.default_policy()), " where a session names none, ",
                     floor.empty() ? "no floor" : absl::StrCat("floor ", absl::StrJoin(floor, ", "))),
        output);
  for (const std::string& warning : status.warnings()) {
    output.Line(absl::StrCat(paint(Color::kYellow, PadRight("warning", 11)), Printable(warning)));
  }
}

}  // namespace agentmon
