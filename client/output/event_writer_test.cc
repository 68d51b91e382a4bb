#include "client/output/event_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "client/output/event_text.h"
#include "client/output/text.h"
#include "common/base/unique_fd.h"
#include "tests/fake/fake_daemon.h"
#include "tests/fixture/child.h"

namespace agentmon {
namespace {

std::string Written(const std::string& format, const std::vector<v1::Event>& events, uint64_t gap = 0) {
  const UniqueFd file(memfd_create("out", MFD_CLOEXEC));
  Output output(file.get());
  EventWriterOptions options;
  options.format = format;
  options.zone = absl::UTCTimeZone();
  const std::unique_ptr<EventWriter> writer = MakeEventWriter(options, output);
  for (const v1::Event& event : events) writer->OnEvent(event);
  if (gap != 0) writer->OnGap(gap);
  writer->Finish();
  output.Flush();
  return ReadAll(file.get());
}

// What a terminal of that many columns gets.
std::string WrittenOnTerminal(const std::string& format, const std::vector<v1::Event>& events,
                              unsigned short columns) {
  int leader_fd, terminal_fd;
  winsize size{24, columns, 0, 0};
  REQUIRE(openpty(&leader_fd, &terminal_fd, nullptr, nullptr, &size) == 0);
  const UniqueFd leader(leader_fd), terminal(terminal_fd);
  Output output(terminal.get());
  EventWriterOptions options;
  options.format = format;
  options.zone = absl::UTCTimeZone();
  const std::unique_ptr<EventWriter> writer = MakeEventWriter(options, output);
  std::string text;
  for (const v1::Event& event : events) {
    writer->OnEvent(event);
    output.Flush();
    char buffer[4096];
    pollfd ready{leader.get(), POLLIN, 0};
    while (poll(&ready, 1, 50) > 0) text.append(buffer, read(leader.get(), buffer, sizeof buffer));
  }
  return text;
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

v1::Event Delete(const std::string& path) {
  v1::Event event;
  event.set_kind(v1::DELETE);
  event.mutable_file()->set_path(path);
  event.set_count(1);
  return event;
}

}  // namespace

TEST_CASE("a table row is whole where nobody looks, with date, process and object") {
  const std::vector<std::string> lines = Lines(Written("table", SampleEvents()));
  REQUIRE(lines.size() == SampleEvents().size() + 1);
  CHECK(absl::StartsWith(lines[0], "TIME"));
  CHECK(lines[4] == "2026-01-02 03:04:05.004     1001  python3.11       open          /etc/hosts ≥3");
  CHECK(lines[5] ==
        "2026-01-02 03:04:05.005     1001  python3.11       open_write?   /home/dev/project/a.txt ×2");
  CHECK(absl::EndsWith(
      lines[9],
      "  [deny by no-keys /etc/agentmon/policies/default.yaml:12, EPERM] /home/dev/.ssh/id_ed25519"));
  CHECK(absl::EndsWith(lines[10], "10.0.0.7:443/tcp failed: ECONNREFUSED"));
}

TEST_CASE("on a terminal rows fit and no name moves the cursor") {
  const std::string text =
      WrittenOnTerminal("table", {Delete("/" + std::string(300, 'x')), Delete("/e\x1b[31m\nvil")}, 90);
  CHECK_FALSE(absl::StrContains(text, "\x1b"));
  for (std::string line : Lines(text)) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    CHECK(DisplayWidth(line) <= 90);
  }
  CHECK(absl::StrContains(text, "$'/e\\x1b[31m\\nvil'"));
  CHECK(absl::StrContains(text, "…"));
}

TEST_CASE("on a narrow terminal the decision, the end of a path and the count stay") {
  v1::Event event = Delete("/home/somebody/with/a/long/path/to/the/file.txt");
  event.set_count(12);
  event.mutable_judgement()->set_decision(v1::DENY);
  event.mutable_judgement()->set_enforced(true);
  event.mutable_judgement()->set_rule("a-rule-with-a-long-name");
  const std::string text = WrittenOnTerminal("table", {event}, 80);
  CHECK(absl::StrContains(text, "[deny] …"));
  CHECK(absl::StrContains(text, "/file.txt ×12"));
}

TEST_CASE("what happened to a session is said once") {
  v1::Event event;
  event.set_source(v1::DAEMON);
  event.set_kind(v1::SESSION);
  event.mutable_process()->set_pid(77);
  const auto text = [&](v1::SessionChange::What what, const std::string& detail) {
    event.mutable_session_change()->set_what(what);
    event.mutable_session_change()->set_detail(detail);
    return Subject(event);
  };
  CHECK(text(v1::SessionChange::ENDED, "ended while the daemon was away") ==
        "ended while the daemon was away");
  CHECK(text(v1::SessionChange::ENDED, "its last process ended") == "ended: its last process ended");
  CHECK(text(v1::SessionChange::ADOPTED, "found again by its cgroup") == "found again by its cgroup");
  CHECK(text(v1::SessionChange::GAP, "the daemon was away") ==
        "nothing was recorded for a time that is not known: the daemon was away");
  event.mutable_session_change()->set_gap_ns(2'500'000'000);
  CHECK(text(v1::SessionChange::GAP, "the daemon was away") ==
        "nothing was recorded for 2.5s: the daemon was away");
  CHECK(absl::StrContains(Written("table", {event}), "      -  agentmond "));
}

TEST_CASE("a limit that was hit and what was used are said in words, in tables, trees and CSV") {
  std::vector<v1::Event> events;
  for (const v1::Event& event : EventOfEachKind()) {
    if (event.kind() == v1::LIMIT || event.kind() == v1::USAGE) events.push_back(event);
  }
  REQUIRE(events.size() == 2);
  for (const char* format : {"table", "tree", "csv"}) {
    const std::string text = Written(format, events);
    CAPTURE(text);
    CHECK(absl::StrContains(text, "memory limit of 100.0 MiB reached, 2 times, 1 process killed"));
    CHECK(absl::StrContains(text,
                            "cpu 1.5s; memory 90.0 MiB, at most 100.0 MiB; 3 processes; disk 4.0 KiB read"));
  }
  v1::Event network = events[0].kind() == v1::LIMIT ? events[0] : events[1];
  network.mutable_limit()->set_resource("network");
  network.mutable_limit()->set_limit(20);
  CHECK(
      absl::StrContains(Written("table", {network}), "20 Mbit/s of the network used up, 2 packets dropped"));
  CHECK(absl::StrContains(Written("table", events), "  kernel "));
  v1::Event& timeout = events[0];
  timeout.mutable_limit()->set_resource("idle_timeout");
  timeout.mutable_limit()->set_limit(90'000'000'000);
  CHECK(Subject(timeout) == "idle timeout of 1m 30s was over");
  timeout.mutable_limit()->set_resource("pids");
  timeout.mutable_limit()->set_limit(20);
  CHECK(Subject(timeout) == "20 processes and threads reached, 2 times");
  timeout.mutable_limit()->set_resource("cpu");
  timeout.mutable_limit()->set_hits(1);
  CHECK(Subject(timeout) == "20 % of one processor used up");
}

TEST_CASE("CSV quotes what needs it and has as many fields as its header") {
  std::vector<v1::Event> events = SampleEvents();
  events.push_back(Delete("/a,\"b\"\nc"));
  const std::string text = Written("csv", events);
  CHECK(absl::StrContains(text, ",\"/a,\"\"b\"\"\nc\","));
  const std::vector<std::string> lines = Lines(text);
  const auto fields = [](const std::string& line) { return std::count(line.begin(), line.end(), ',') + 1; };
  CHECK(fields(lines[0]) == 34);
  CHECK(fields(lines[1]) == 34);
  CHECK(fields(lines[4]) == 34);
  CHECK(fields(Lines(Written("csv", {}, 5))[1]) == 34);
}

TEST_CASE("a name that is no UTF-8 stands in CSV a second time, as base64") {
  const std::vector<std::string> lines = Lines(Written("csv", {Delete("/a\xff"), Delete("/b")}));
  CHECK(absl::EndsWith(lines[0], ",detail,exe_b64,path_b64,new_path_b64,cwd_b64"));
  CHECK(absl::StrContains(lines[1], ",/a\xef\xbf\xbd,"));
  CHECK(absl::EndsWith(lines[1], ",,L2H/,,"));
  CHECK(absl::EndsWith(lines[2], ",,,,,"));
}

TEST_CASE("JSON escapes what reorders or moves text, and means the same") {
  const std::string name = "/a\u202e\u2066\u0085\ufeff\U000e0041\x7f\u00e9";
  const std::string json = Written("json", {Delete(name)});
  CHECK(absl::StrContains(json, "\"/a\\u202e\\u2066\\u0085\\ufeff\\udb40\\udc41\\u007f\u00e9\""));
  CHECK(nlohmann::json::parse(json)["path"] == name);
}

TEST_CASE("CSV on a terminal escapes what moves the cursor") {
  CHECK_FALSE(absl::StrContains(WrittenOnTerminal("csv", {Delete("/e\x1b[31m")}, 80), "\x1b"));
}

TEST_CASE("an empty CSV still has its header") { CHECK(absl::StartsWith(Written("csv", {}), "seq,time,")); }

TEST_CASE("the tree hangs a process below its parent and folds what it did") {
  const std::string text = Written("tree", SampleEvents());
  CHECK(absl::StrContains(text, "session s-1\n"));
  CHECK(absl::StrContains(text, "└─ 1000 (claude)\n   └─ 1001 python3 -c"));
  CHECK(absl::StrContains(text, "open_write? 2: /home/dev/project/a.txt ×2\n"));
  CHECK(absl::StrContains(text, "[killed by SIGKILL]"));
  CHECK(absl::StrContains(text, "12 events of source network were lost"));
}

TEST_CASE("the tree shows each process once, also when the events claim a circle") {
  v1::Event a = Delete("/x"), b = Delete("/y");
  a.mutable_process()->set_pid(1);
  a.mutable_parent()->set_pid(2);
  b.mutable_process()->set_pid(2);
  b.mutable_parent()->set_pid(1);
  const std::string text = Written("tree", {a, b});
  CHECK(absl::StrContains(text, "/x"));
  CHECK(absl::StrContains(text, "/y"));
}

TEST_CASE("a long list of names is cut with how many more there are") {
  std::vector<v1::Event> events;
  for (int i = 0; i < 8; ++i) {
    events.push_back(Delete("/f" + std::to_string(i)));
    events.back().mutable_process()->set_pid(7);
  }
  CHECK(absl::StrContains(Written("tree", events), "delete 8: /f0, /f1, /f2, /f3, /f4 and 3 more"));
}

TEST_CASE("a gap is told in every format") {
  CHECK(absl::StrContains(Written("table", {}, 5), "5 events are missing"));
  CHECK(Written("json", {}, 5) == "{\"kind\":\"stream_gap\",\"missed\":5}\n");
  CHECK(absl::StrContains(Written("csv", {}, 5), "stream_gap"));
}

TEST_CASE("output ends quietly when nobody reads it") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  close(ends[0]);
  const auto old = signal(SIGPIPE, SIG_IGN);
  Output output(ends[1]);
  output.Line("x");
  output.Flush();
  CHECK_FALSE(output.ok());
  CHECK(output.error() == EPIPE);
  signal(SIGPIPE, old);
  close(ends[1]);
}

}  // namespace agentmon
