#include "client/output/event_json.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "client/output/names.h"
#include "tests/fake/fake_daemon.h"

namespace agentmon {
namespace {

using Json = nlohmann::ordered_json;

// What a program that reads our output sees.
Json RoundTrip(const v1::Event& event) { return Json::parse(DumpJson(EventToJson(event))); }

Json First(v1::EventKind kind) {
  for (const v1::Event& event : SampleEvents()) {
    if (event.kind() == kind) return RoundTrip(event);
  }
  return {};
}

}  // namespace

TEST_CASE("the common fields stand first, in their documented order") {
  const std::string line = DumpJson(EventToJson(SampleEvents()[2]));
  const std::string beginning =
      R"j({"seq":3,"time":"2026-01-02T03:04:05.003000000Z","time_ns":1767323045003000000,"boot_ns":3000000,)j"
      R"j("session":"s-1","kind":"exec","pid":1001,"start_ns":500,"ppid":1000,"parent_start_ns":400,)j"
      R"j("exe":"/usr/bin/python3.11","uid":1000,"source":"process","count":1,"count_is":"exact",)j"
      R"j("argv":["python3","-c","print('hi')"],"cwd":"/home/dev/project")j";
  CHECK(line.substr(0, beginning.size()) == beginning);
  CHECK(line.find('\n') == std::string::npos);
}

TEST_CASE("marks stand there only when they are true") {
  const Json open = First(v1::OPEN);
  CHECK(open["count"] == 3);
  CHECK(open["count_is"] == "at_least");
  for (const char* mark : {"as_asked", "redacted", "cut", "verdict", "enforced", "path_b64"}) {
    CAPTURE(mark);
    CHECK_FALSE(open.contains(mark));
  }
  CHECK(First(v1::OPEN_WRITE)["as_asked"] == true);
}

TEST_CASE("a name that is no UTF-8 comes twice, the others once") {
  const Json rename = First(v1::RENAME);
  CHECK(rename["new_path"] == "/home/dev/project/b\xef\xbf\xbd.txt");
  CHECK(rename["new_path_b64"] == "L2hvbWUvZGV2L3Byb2plY3QvYv8udHh0");
  CHECK_FALSE(rename.contains("path_b64"));
}

TEST_CASE("arguments that are no UTF-8 come twice, all of them") {
  v1::Event event;
  event.set_kind(v1::EXEC);
  event.mutable_exec()->add_argv("ls");
  event.mutable_exec()->add_argv("\xff");
  const Json json = RoundTrip(event);
  CHECK(json["argv"] == Json({"ls", "\xef\xbf\xbd"}));
  CHECK(json["argv_b64"] == Json({"bHM=", "/w=="}));
}

TEST_CASE("a denial says who decided, how, and what the program saw") {
  Json denied;
  for (const v1::Event& event : SampleEvents()) {
    if (event.has_judgement()) denied = RoundTrip(event);
  }
  CHECK(denied["verdict"] == "deny");
  CHECK(denied["enforced"] == true);
  CHECK(denied["mechanism"] == "fanotify");
  CHECK(denied["errno"] == 1);
  CHECK(denied["errno_name"] == "EPERM");
  CHECK(denied["rule"] == "no-keys");
  CHECK(denied["rule_line"] == 12);
}

TEST_CASE("each kind has its own fields") {
  CHECK(First(v1::FORK)["child_pid"] == 1001);
  CHECK(First(v1::OPEN_WRITE)["open_flags_text"] == "O_WRONLY|O_CREAT|O_TRUNC");
  CHECK(First(v1::CHMOD)["mode"] == "0755");
  CHECK(First(v1::CONNECT)["result"] == "failed");
  CHECK(First(v1::CONNECT)["error"] == "ECONNREFUSED");
  CHECK(First(v1::UNIX_CONNECT)["path"] == "/run/docker.sock");
  CHECK(First(v1::EXIT)["signal_name"] == "SIGKILL");
  CHECK_FALSE(First(v1::EXIT).contains("status"));
  CHECK(First(v1::SESSION)["change"] == "started");
  CHECK(First(v1::LOSS)["lost"] == 12);
}

TEST_CASE("limits and usage have their numbers") {
  std::map<int, Json> rows;
  for (const v1::Event& event : EventOfEachKind()) rows[event.kind()] = RoundTrip(event);
  CHECK(rows[v1::LIMIT]["resource"] == "memory");
  CHECK(rows[v1::LIMIT]["limit"] == 104857600);
  CHECK(rows[v1::LIMIT]["hits"] == 2);
  CHECK(rows[v1::LIMIT]["killed"] == 1);
  CHECK(rows[v1::LIMIT]["source"] == "cgroup");
  CHECK(rows[v1::USAGE]["cpu_ns"] == 1'500'000'000);
  CHECK(rows[v1::USAGE]["memory_peak_bytes"] == 104857600);
  CHECK(rows[v1::USAGE]["processes"] == 3);
}

TEST_CASE("a line of JSON has no control byte in it, and reads back as it was") {
  v1::Event event;
  event.set_kind(v1::OPEN);
  const std::string nasty =
      "/a\x1b[2J\n\x7f\xc2\x9b"
      "31m";
  event.mutable_file()->set_path(nasty);
  const std::string line = DumpJson(EventToJson(event));
  for (const char c : line) CHECK(static_cast<unsigned char>(c) >= 0x20);
  CHECK(line.find('\x7f') == std::string::npos);
  CHECK(line.find("\xc2\x9b") == std::string::npos);
  CHECK(Json::parse(line)["path"] == nasty);
}

TEST_CASE("docs/events.md names every field and shows every kind as it is printed") {
  std::ifstream file(AGENTMON_SOURCE_DIR "/docs/events.md");
  const std::string document{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::set<int> kinds;
  for (const v1::Event& event : EventOfEachKind()) {
    kinds.insert(event.kind());
    const std::string line = DumpJson(EventToJson(event));
    INFO(line);
    CHECK(document.find("\n" + line + "\n") != std::string::npos);
    const Json json = Json::parse(line);
    for (const auto& [key, value] : json.items()) {
      const std::string name = key.size() > 4 && key.substr(key.size() - 4) == "_b64" ? "NAME_b64" : key;
      INFO(name);
      CHECK(document.find("`" + name + "`") != std::string::npos);
    }
  }
  for (int kind = v1::EXEC; kind <= v1::EventKind_MAX; ++kind) {
    if (v1::EventKind_IsValid(kind)) CHECK(kinds.count(kind) == 1);
  }
}

TEST_CASE("open flags are named, the unknown ones shown as a number") {
  CHECK(OpenFlagsText(0) == "O_RDONLY");
  CHECK(OpenFlagsText(02000002) == "O_RDWR|O_CLOEXEC");
  CHECK(OpenFlagsText(0x40000000) == "O_RDONLY|0x40000000");
}

}  // namespace agentmon
