#include "daemon/journal/event_entry.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/event/kinds.h"

namespace agentmon {
namespace {

bool IsDenial(const Event& event) { return event.judgement().decision() == v1::DENY; }

bool Warns(const v1::SessionChange& change) {
  switch (change.what()) {
    case v1::SessionChange::GAP:
    case v1::SessionChange::SOURCE_INACTIVE:
    case v1::SessionChange::POLICY_REJECTED:
    case v1::SessionChange::NOT_ENFORCED:
    case v1::SessionChange::LIMITS_MISSING:
      return true;
    default:
      return false;
  }
}

std::string ChangeName(v1::SessionChange::What what) {
  return absl::AsciiStrToLower(v1::SessionChange::What_Name(what));
}

// One line of text: what a program names may hold any bytes.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = '?';
  }
  return text;
}

std::string DestinationOf(const v1::Net& net) {
  if (net.address().empty()) return absl::StrCat(net.protocol(), " ", net.name(), ":", net.port());
  const bool v6 = absl::string_view(net.address()).find(':') != absl::string_view::npos;
  return absl::StrCat(net.protocol(), " ", v6 ? "[" : "", net.address(), v6 ? "]" : "", ":", net.port());
}

// What the act was about, in the words of the timeline.
std::string SubjectOf(const Event& event) {
  if (event.has_exec()) return absl::StrJoin(event.exec().argv(), " ");
  if (event.has_file()) return event.file().path();
  if (event.has_net()) return DestinationOf(event.net());
  if (event.has_dns()) return absl::StrCat(event.dns().type(), " ", event.dns().name());
  if (event.has_http())
    return absl::StrCat(event.http().method(), " ", event.http().host(), event.http().path());
  if (event.has_unix()) return event.unix().path();
  if (event.has_signal()) return absl::StrCat(event.signal().signal(), " to ", event.signal().target().pid());
  if (event.has_call()) return event.call().name();
  return "";
}

std::string MessageOf(const Event& event) {
  const std::string session = absl::StrCat("session ", event.session(), ": ");
  if (event.has_limit()) {
    const v1::Limit& limit = event.limit();
    return absl::StrCat(session, "limit of ", limit.resource(), " hit ", limit.hits(),
                        limit.hits() == 1 ? " time" : " times",
                        limit.killed() > 0 ? absl::StrCat(", ", limit.killed(), " killed") : "");
  }
  if (event.has_session_change()) {
    const v1::SessionChange& change = event.session_change();
    return absl::StrCat(session, ChangeName(change.what()), change.detail().empty() ? "" : ": ",
                        change.detail());
  }
  const v1::Judgement& judgement = event.judgement();
  return absl::StrCat(session, KindName(event.kind()), " ", SubjectOf(event), " denied by rule ",
                      judgement.rule().empty() ? "(default)" : judgement.rule(),
                      judgement.enforced() ? "" : ", not enforced");
}

class Builder {
 public:
  void Add(absl::string_view name, std::string value) {
    if (!value.empty()) fields_.emplace_back(name, std::move(value));
  }
  JournalFields Take() { return std::move(fields_); }

 private:
  JournalFields fields_;
};

void AddJudgement(const v1::Judgement& judgement, Builder& to) {
  to.Add("VERDICT", "deny");
  to.Add("ENFORCED", judgement.enforced() ? "yes" : "no");
  to.Add("MECHANISM", judgement.mechanism());
  to.Add("RULE", judgement.rule());
  to.Add("RULE_LAYER", judgement.layer());
  if (!judgement.file().empty()) to.Add("RULE_FILE", absl::StrCat(judgement.file(), ":", judgement.line()));
}

void AddSubject(const Event& event, Builder& to) {
  if (event.has_exec()) to.Add("ARGV", absl::StrJoin(event.exec().argv(), " "));
  if (event.has_file()) {
    to.Add("PATH", event.file().path());
    to.Add("NEW_PATH", event.file().new_path());
  }
  if (event.has_unix()) to.Add("PATH", event.unix().path());
  if (event.has_net()) {
    to.Add("DESTINATION", DestinationOf(event.net()));
    to.Add("NAME", event.net().name());
  }
  if (event.has_dns()) to.Add("NAME", event.dns().name());
  if (event.has_http()) to.Add("NAME", event.http().host());
  if (event.has_call()) to.Add("CALL", event.call().name());
  if (event.has_limit()) {
    to.Add("RESOURCE", event.limit().resource());
    to.Add("LIMIT", absl::StrCat(event.limit().limit()));
    to.Add("HITS", absl::StrCat(event.limit().hits()));
    to.Add("KILLED", absl::StrCat(event.limit().killed()));
  }
  if (event.has_session_change()) to.Add("CHANGE", ChangeName(event.session_change().what()));
}

}  // namespace

bool BelongsInJournal(const Event& event) {
  return IsDenial(event) || event.has_limit() ||
         (event.has_session_change() && Warns(event.session_change()));
}

JournalFields JournalEntryOf(const Event& event, std::optional<uid_t> owner) {
  Builder fields;
  fields.Add("MESSAGE", OneLine(MessageOf(event)));
  fields.Add("PRIORITY", absl::StrCat(static_cast<int>(LogLevel::kWarning)));
  fields.Add("SYSLOG_IDENTIFIER", kJournalIdentifier);
  fields.Add("AGENTMON_EVENT", KindName(event.kind()));
  fields.Add("SESSION", event.session());
  if (owner.has_value()) fields.Add("SESSION_UID", absl::StrCat(*owner));
  if (IsDenial(event)) AddJudgement(event.judgement(), fields);
  AddSubject(event, fields);
  if (event.process().pid() != 0) fields.Add("AGENT_PID", absl::StrCat(event.process().pid()));
  fields.Add("AGENT_EXE", event.exe());
  if (event.count() > 1) fields.Add("COUNT", absl::StrCat(event.count()));
  return fields.Take();
}

}  // namespace agentmon
