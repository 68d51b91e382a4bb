#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/output/session_output.h"
#include "client/output/text.h"
#include "common/base/unique_fd.h"
#include "tests/fake/fake_daemon.h"
#include "tests/fixture/child.h"

namespace agentmon {
namespace {

v1::Session LongSession() {
  v1::Session session = SampleSession();
  session.set_id("sxyr4k9gkths");
  session.set_name("a name that is much too long for a column of a table");
  session.clear_command();
  session.add_command("claude");
  session.add_command(std::string(100, 'x'));
  return session;
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

// The table on a terminal of that many columns.
std::vector<std::string> LinesOnTerminal(const std::vector<v1::Session>& sessions, unsigned short columns) {
  int leader_fd, terminal_fd;
  winsize size{24, columns, 0, 0};
  REQUIRE(openpty(&leader_fd, &terminal_fd, nullptr, nullptr, &size) == 0);
  const UniqueFd leader(leader_fd), terminal(terminal_fd);
  Output output(terminal.get());
  WriteSessionTable(sessions, absl::Now(), Paint(false), output);
  output.Flush();
  std::string text(4096, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(read(leader.get(), text.data(), text.size()), 0)));
  std::vector<std::string> lines = Lines(text);
  for (std::string& line : lines) {
    if (absl::EndsWith(line, "\r")) line.pop_back();
  }
  return lines;
}

}  // namespace

TEST_CASE("on a terminal of 80 columns the list of sessions keeps every column; names are cut") {
  const std::vector<std::string> lines = LinesOnTerminal({LongSession(), SampleSession()}, 80);
  REQUIRE(lines.size() == 3);
  for (const std::string& line : lines) CHECK(DisplayWidth(line) <= 80);
  CHECK(absl::EndsWith(lines[0], "DENIED  COMMAND"));
  CHECK(absl::StartsWith(lines[1], "sxyr4k9gkths  a nam…"));
  CHECK(absl::StrContains(lines[1], "…  "));
  CHECK(absl::StrContains(lines[1], "  claude"));
  CHECK(absl::EndsWith(lines[1], "…"));
}

TEST_CASE("on a wide terminal names are whole") {
  CHECK(absl::StrContains(LinesOnTerminal({LongSession()}, 300)[1], LongSession().name() + "  "));
}

TEST_CASE("elsewhere the list of sessions is whole") {
  const UniqueFd file(memfd_create("out", MFD_CLOEXEC));
  Output output(file.get());
  WriteSessionTable({LongSession()}, absl::Now(), Paint(false), output);
  output.Flush();
  const std::string text = ReadAll(file.get());
  CHECK(absl::StrContains(text, LongSession().name()));
  CHECK(absl::StrContains(text, std::string(100, 'x')));
}

TEST_CASE("denials that nothing stopped are told from those that were") {
  const auto events = [](uint64_t denials, uint64_t not_enforced) {
    const UniqueFd file(memfd_create("out", MFD_CLOEXEC));
    Output output(file.get());
    v1::Session session = SampleSession();
    session.set_events(9);
    session.set_denials(denials);
    session.set_denials_not_enforced(not_enforced);
    session.mutable_policy()->set_not_enforced(2);  // rules: no matter here
    WriteSession(session, absl::Now(), Paint(false), output);
    output.Flush();
    const std::string text = ReadAll(file.get());
    const size_t at = text.find("events ");
    return text.substr(at, text.find('\n', at) - at);
  };
  CHECK(events(0, 0) == "events     9, 0 denied");
  CHECK(events(7, 0) == "events     9, 7 denied");
  CHECK(events(7, 2) == "events     9, 7 denied, 2 of them not enforced");
  CHECK(events(7, 7) == "events     9, 7 denied, not enforced");
}

TEST_CASE("a watched tree is told from a session, and what is to come of a starting one is said") {
  const auto shown = [](v1::Session::State state, v1::Session::Origin origin) {
    const UniqueFd file(memfd_create("out", MFD_CLOEXEC));
    Output output(file.get());
    v1::Session session = SampleSession();
    session.set_state(state);
    session.set_origin(origin);
    WriteSession(session, absl::Now(), Paint(false), output);
    output.Flush();
    return ReadAll(file.get());
  };
  CHECK(absl::StrContains(shown(v1::Session::RUNNING, v1::Session::WATCH), "state      watched"));
  CHECK(
      absl::StrContains(shown(v1::Session::RUNNING, v1::Session::RUN), "state      running, made by run\n"));
  CHECK(absl::StrContains(shown(v1::Session::STARTING, v1::Session::RUN), "no process has entered it yet"));
}

}  // namespace agentmon
