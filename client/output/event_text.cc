#include "client/output/event_text.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/output/names.h"
#include "client/output/text.h"
#include "client/output/times.h"
#include "common/base/status.h"
#include "daemon/event/kinds.h"

namespace agentmon {
namespace {

std::string ExecText(const v1::Event& event) {
  const v1::Exec& exec = event.exec();
  if (exec.argv().empty()) return ShellQuote(exec.filename().empty() ? event.exe() : exec.filename());
  return absl::StrCat(ShellQuoteAll({exec.argv().begin(), exec.argv().end()}), exec.argv_cut() ? " …" : "");
}

std::string FileText(const v1::Event& event) {
  const v1::File& file = event.file();
  const std::string path = ShellQuote(file.path());
  const auto owner = [](int64_t id) { return id < 0 ? std::string() : absl::StrCat(id); };
  switch (event.kind()) {
    case v1::RENAME:
    case v1::LINK:
    case v1::SYMLINK:
      return absl::StrCat(path, " → ", ShellQuote(file.new_path()));
    case v1::CHMOD:
      return absl::StrCat(path, " ", ModeText(file.mode()));
    case v1::CHOWN:
      return absl::StrCat(path, " ", owner(file.uid()), ":", owner(file.gid()));
    case v1::TRUNCATE:
      return absl::StrCat(path, " to ", file.size(), " bytes");
    default:
      return path;
  }
}

std::string NetText(const v1::Net& net) {
  // Where the name was stopped nobody has asked for an address.
  const bool by_name = net.address().empty() && !net.name().empty();
  std::string text =
      absl::StrCat(by_name ? absl::StrCat(Printable(net.name()), ":", net.port()) : Destination(net), "/",
                   Printable(net.protocol()));
  if (!by_name && !net.name().empty()) absl::StrAppend(&text, " (", Printable(net.name()), ")");
  switch (net.result()) {
    case v1::Net::OK:
      return text + " ok";
    case v1::Net::IN_PROGRESS:
      return text + " in progress";
    case v1::Net::FAILED:
      return absl::StrCat(text, " failed: ", ErrnoName(net.error()));
    default:
      return text;
  }
}

std::string DnsText(const v1::Dns& dns) {
  std::vector<std::string> answers;
  for (const std::string& answer : dns.answers()) answers.push_back(Printable(answer));
  const bool bare = answers.empty() || dns.rcode() != "NOERROR";
  return absl::StrCat(Printable(dns.type()), " ", Printable(dns.name()), " → ",
                      bare ? Printable(dns.rcode()) : absl::StrJoin(answers, ", "));
}

std::string HttpText(const v1::Http& http) {
  const bool v6 = http.host().find(':') != std::string::npos;
  std::string text =
      absl::StrCat(Printable(http.method()), " ", v6 ? "[" : "", Printable(http.host()), v6 ? "]" : "");
  if (http.port() != 80 || http.path().empty()) absl::StrAppend(&text, ":", http.port());
  absl::StrAppend(&text, Printable(http.path()));
  return http.status() == 0 ? text : absl::StrCat(text, " → ", http.status());
}

std::string GapText(const v1::SessionChange& change) {
  if (change.gap_ns() == 0) return "nothing was recorded for a time that is not known";
  return absl::StrCat("nothing was recorded for ", ShortDuration(absl::Nanoseconds(change.gap_ns())));
}

std::string ChangeText(const v1::SessionChange& change) {
  if (change.what() == v1::SessionChange::ADOPTED && !change.detail().empty())
    return Printable(change.detail());
  std::string text = change.what() == v1::SessionChange::GAP ? GapText(change) : ChangeName(change.what());
  for (char& c : text) c = c == '_' ? ' ' : c;
  if (absl::StartsWith(change.detail(), text + " ")) return Printable(change.detail());  // "ended while ..."
  return change.detail().empty() ? text : absl::StrCat(text, ": ", Printable(change.detail()));
}

std::string LossText(const v1::Loss& loss) {
  return absl::StrCat(loss.lost(), " events of source ", SourceName(loss.source()),
                      " were lost: ", Printable(loss.where()));
}

std::string CallText(const v1::Call& call) { return Printable(call.name()); }

std::string SignalText(const v1::Signal& signal) {
  return absl::StrCat(SignalName(signal.signal()), " → ", signal.target().pid());
}

std::string Times(uint64_t count) { return count == 1 ? "" : absl::StrCat(", ", count, " times"); }

std::string LimitText(const v1::Limit& limit) {
  const std::string& resource = limit.resource();
  if (resource == "session_timeout" || resource == "idle_timeout") {
    return absl::StrCat(resource == "idle_timeout" ? "idle" : "session", " timeout of ",
                        ShortDuration(absl::Nanoseconds(static_cast<int64_t>(limit.limit()))), " was over");
  }
  if (resource == "pids")
    return absl::StrCat(limit.limit(), " processes and threads reached", Times(limit.hits()));
  if (resource == "cpu")
    return absl::StrCat(limit.limit(), " % of one processor used up", Times(limit.hits()));
  if (resource == "network")
    return absl::StrCat(limit.limit(), " Mbit/s of the network used up, ", limit.hits(), " packets dropped");
  return absl::StrCat(Printable(resource), " limit of ", ByteSize(limit.limit()), " reached",
                      Times(limit.hits()),
                      limit.killed() == 0   ? ""
                      : limit.killed() == 1 ? ", 1 process killed"
                                            : absl::StrCat(", ", limit.killed(), " processes killed"));
}

std::string JudgementText(const v1::Judgement& judgement) {
  if (judgement.decision() == v1::DECISION_UNSPECIFIED || judgement.decision() == v1::ALLOW) return "";
  std::string text = absl::StrCat("[", DecisionName(judgement.decision()));
  if (!judgement.rule().empty()) absl::StrAppend(&text, " by ", Printable(judgement.rule()));
  if (judgement.line() != 0) absl::StrAppend(&text, " ", Printable(judgement.file()), ":", judgement.line());
  if (judgement.decision() == v1::DENY && !judgement.enforced()) absl::StrAppend(&text, ", not enforced");
  if (judgement.error() != 0) absl::StrAppend(&text, ", ", ErrnoName(judgement.error()));
  return text + "] ";
}

}  // namespace

std::string UsageText(const v1::Usage& usage) {
  std::vector<std::string> parts{
      absl::StrCat("cpu ", ShortDuration(absl::Nanoseconds(static_cast<int64_t>(usage.cpu_ns()))))};
  if (usage.memory_peak_bytes() != 0)
    parts.push_back(absl::StrCat("memory ", ByteSize(usage.memory_bytes()), ", at most ",
                                 ByteSize(usage.memory_peak_bytes())));
  else if (usage.memory_bytes() != 0)
    parts.push_back(absl::StrCat("memory ", ByteSize(usage.memory_bytes())));
  if (usage.processes() != 0)
    parts.push_back(absl::StrCat(usage.processes(), usage.processes() == 1 ? " process" : " processes"));
  if (usage.read_bytes() != 0 || usage.written_bytes() != 0) {
    parts.push_back(absl::StrCat("disk ", ByteSize(usage.read_bytes()), " read, ",
                                 ByteSize(usage.written_bytes()), " written"));
  }
  return absl::StrJoin(parts, "; ");
}

std::string ProcessName(const v1::Event& event) {
  if (event.source() == v1::CGROUP) return "kernel";
  if (event.source() == v1::DAEMON && event.exe().empty()) return "agentmond";
  const absl::string_view exe = event.exe();
  const size_t slash = exe.rfind('/');
  return exe.empty() ? "?" : Printable(slash == absl::string_view::npos ? exe : exe.substr(slash + 1));
}

std::string Destination(const v1::Net& net) {
  const std::string address = Printable(net.address());
  return address.find(':') == std::string::npos ? absl::StrCat(address, ":", net.port())
                                                : absl::StrCat("[", address, "]:", net.port());
}

std::string ExitText(const v1::Exit& exit) {
  if (exit.signal() == 0) return absl::StrCat("status ", exit.status());
  return absl::StrCat("killed by ", SignalName(exit.signal()), exit.core_dumped() ? ", core dumped" : "");
}

std::string Subject(const v1::Event& event) {
  switch (event.detail_case()) {
    case v1::Event::kExec:
      return ExecText(event);
    case v1::Event::kFork:
      return absl::StrCat("→ ", event.fork().child().pid());
    case v1::Event::kExit:
      return ExitText(event.exit());
    case v1::Event::kFile:
      return FileText(event);
    case v1::Event::kNet:
      return NetText(event.net());
    case v1::Event::kDns:
      return DnsText(event.dns());
    case v1::Event::kHttp:
      return HttpText(event.http());
    case v1::Event::kUnix:
      return ShellQuote(event.unix().path());
    case v1::Event::kSessionChange:
      return ChangeText(event.session_change());
    case v1::Event::kLoss:
      return LossText(event.loss());
    case v1::Event::kCall:
      return CallText(event.call());
    case v1::Event::kSignal:
      return SignalText(event.signal());
    case v1::Event::kLimit:
      return LimitText(event.limit());
    case v1::Event::kUsage:
      return UsageText(event.usage());
    case v1::Event::DETAIL_NOT_SET:
      return "";
  }
  return "";
}

std::string KindText(const v1::Event& event) {
  return KindName(event.kind()) + (event.as_asked() ? "?" : "");
}

std::string WhatText::Fit(int columns) const {
  const bool roomy = DisplayWidth(Whole()) <= columns || DisplayWidth(decision) < columns / 2;
  const std::string& lead = roomy ? decision : short_decision;
  const int left = columns - DisplayWidth(lead) - DisplayWidth(count);
  const std::string cut = end_matters ? CutHead(subject, left) : CutToWidth(subject, left);
  return CutToWidth(lead + cut + count, columns);
}

WhatText What(const v1::Event& event) {
  WhatText what;
  what.decision = event.has_judgement() ? JudgementText(event.judgement()) : "";
  if (!what.decision.empty())
    what.short_decision = absl::StrCat("[", DecisionName(event.judgement().decision()), "] ");
  what.subject = Subject(event);
  if (event.count() > 1)
    what.count = absl::StrCat(event.count_is() == v1::AT_LEAST ? " ≥" : " ×", event.count());
  if (event.cut()) absl::StrAppend(&what.count, " (cut)");
  what.end_matters = event.has_file() || event.has_unix();
  return what;
}

}  // namespace agentmon
