#include "daemon/journal/event_entry.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

namespace agentmon {
namespace {

Event DeniedOpen() {
  Event event;
  event.set_session("abc");
  event.set_kind(v1::OPEN);
  event.mutable_process()->set_pid(42);
  event.set_exe("/usr/bin/cat");
  event.mutable_file()->set_path("/home/u/.env");
  event.mutable_judgement()->set_decision(v1::DENY);
  event.mutable_judgement()->set_rule("secret-files");
  event.mutable_judgement()->set_file("/etc/agentmon/floor.d/a.yaml");
  event.mutable_judgement()->set_line(7);
  return event;
}

std::map<std::string, std::string> EntryOf(const Event& event) {
  std::map<std::string, std::string> fields;
  for (const auto& [name, value] : JournalEntryOf(event, 1000)) fields[std::string(name)] = value;
  return fields;
}

Event Change(v1::SessionChange::What what) {
  Event event;
  event.set_session("abc");
  event.set_kind(v1::SESSION);
  event.mutable_session_change()->set_what(what);
  event.mutable_session_change()->set_detail("why");
  return event;
}

}  // namespace

TEST_CASE("a denial can be found by session, rule and verdict, and says whether it was enforced") {
  Event event = DeniedOpen();
  auto fields = EntryOf(event);
  CHECK(fields["MESSAGE"] == "session abc: open /home/u/.env denied by rule secret-files, not enforced");
  CHECK(fields["SESSION"] == "abc");
  CHECK(fields["SESSION_UID"] == "1000");
  CHECK(fields["VERDICT"] == "deny");
  CHECK(fields["RULE"] == "secret-files");
  CHECK(fields["RULE_FILE"] == "/etc/agentmon/floor.d/a.yaml:7");
  CHECK(fields["PATH"] == "/home/u/.env");
  CHECK(fields["AGENT_PID"] == "42");
  CHECK(fields["AGENT_EXE"] == "/usr/bin/cat");
  CHECK(fields["AGENTMON_EVENT"] == "open");
  CHECK(fields["PRIORITY"] == "4");
  CHECK(fields["ENFORCED"] == "no");
  event.mutable_judgement()->set_enforced(true);
  CHECK(EntryOf(event)["ENFORCED"] == "yes");
}

TEST_CASE("bytes of a name that are no text do not break the message") {
  Event event = DeniedOpen();
  event.mutable_file()->set_path("/a\nMESSAGE=x\x1b[31m");
  auto fields = EntryOf(event);
  CHECK(fields["MESSAGE"] == "session abc: open /a?MESSAGE=x?[31m denied by rule secret-files, not enforced");
  CHECK(fields["PATH"] == event.file().path());
}

TEST_CASE("a refused connection names its destination") {
  Event event = DeniedOpen();
  event.set_kind(v1::CONNECT);
  event.mutable_net()->set_protocol("tcp");
  event.mutable_net()->set_address("2001:db8::1");
  event.mutable_net()->set_port(443);
  auto fields = EntryOf(event);
  CHECK(fields["DESTINATION"] == "tcp [2001:db8::1]:443");
  CHECK(fields.count("PATH") == 0);
}

TEST_CASE("a limit that was hit names the resource and what was killed") {
  Event event;
  event.set_session("abc");
  event.set_kind(v1::LIMIT);
  event.mutable_limit()->set_resource("memory");
  event.mutable_limit()->set_hits(1);
  event.mutable_limit()->set_killed(2);
  REQUIRE(BelongsInJournal(event));
  auto fields = EntryOf(event);
  CHECK(fields["MESSAGE"] == "session abc: limit of memory hit 1 time, 2 killed");
  CHECK(fields["RESOURCE"] == "memory");
  CHECK(fields["KILLED"] == "2");
}

TEST_CASE("what is allowed and what does not warn stays out of the journal") {
  Event event = DeniedOpen();
  CHECK(BelongsInJournal(event));
  event.mutable_judgement()->set_decision(v1::ALLOW);
  CHECK_FALSE(BelongsInJournal(event));
  CHECK_FALSE(BelongsInJournal(Change(v1::SessionChange::STARTED)));
  CHECK_FALSE(BelongsInJournal(Change(v1::SessionChange::ENDED)));
  REQUIRE(BelongsInJournal(Change(v1::SessionChange::SOURCE_INACTIVE)));
  auto fields = EntryOf(Change(v1::SessionChange::SOURCE_INACTIVE));
  CHECK(fields["MESSAGE"] == "session abc: source_inactive: why");
  CHECK(fields["CHANGE"] == "source_inactive");
  CHECK(fields.count("VERDICT") == 0);
}

}  // namespace agentmon
