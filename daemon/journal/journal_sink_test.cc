#include "daemon/journal/journal_sink.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/fake/fake_task_runner.h"

namespace agentmon {
namespace {

struct Rig {
  FakeTaskRunner core;
  std::vector<std::map<std::string, std::string>> entries;
  JournalSink sink{core,
                   [this](const JournalFields& fields) {
                     auto& entry = entries.emplace_back();
                     for (const auto& [name, value] : fields) entry[std::string(name)] = value;
                   },
                   [](absl::string_view) { return uid_t{1000}; }};

  void Deny(const std::string& session, uint64_t times) {
    Event event;
    event.set_session(session);
    event.set_kind(v1::OPEN);
    event.mutable_file()->set_path("/x");
    event.mutable_judgement()->set_decision(v1::DENY);
    for (uint64_t i = 0; i < times; ++i) sink.OnEvent(event);
  }
};

}  // namespace

TEST_CASE("a flood of denials is cut per session, and what was left out is told") {
  Rig rig;
  rig.Deny("a", JournalSink::kPerSession + 7);
  rig.Deny("b", 1);
  REQUIRE(rig.entries.size() == JournalSink::kPerSession + 1);
  CHECK(rig.entries.back()["SESSION"] == "b");
  rig.core.Advance(JournalSink::kWindow);
  REQUIRE(rig.entries.size() == JournalSink::kPerSession + 2);
  CHECK(rig.entries.back()["SESSION"] == "a");
  CHECK(rig.entries.back()["LEFT_OUT"] == "7");
  rig.Deny("a", 1);
  CHECK(rig.entries.back()["VERDICT"] == "deny");
}

TEST_CASE("many sessions together are cut as well") {
  Rig rig;
  for (uint64_t i = 0; i < JournalSink::kInAll + 3; ++i) rig.Deny(absl::StrCat("s", i), 1);
  CHECK(rig.entries.size() == JournalSink::kInAll);
  rig.core.Advance(JournalSink::kWindow);
  CHECK(rig.entries.size() == JournalSink::kInAll + 3);
}

TEST_CASE("without denials there is no timer") {
  Rig rig;
  Event event;
  event.set_session("a");
  event.set_kind(v1::OPEN);
  rig.sink.OnEvent(event);
  rig.core.Advance(JournalSink::kWindow * 2);
  CHECK(rig.entries.empty());
}

}  // namespace agentmon
