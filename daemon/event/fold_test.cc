#include "daemon/event/fold.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

struct Collected : EventSink {
  void OnEvent(const Event& event) override { events.push_back(event); }
  uint64_t Sum() const {
    uint64_t sum = 0;
    for (const Event& event : events) sum += event.count();
    return sum;
  }
  std::vector<Event> events;
};

Event File(v1::EventKind kind, const std::string& path, int64_t at_ns, pid_t pid = 10) {
  Event event;
  event.set_kind(kind);
  event.set_source(v1::NOTIFY);
  event.set_session("s1");
  event.set_boot_ns(at_ns);
  event.set_count(1);
  ProcessKey{pid, 5}.To(event.mutable_process());
  event.mutable_file()->set_path(path);
  return event;
}

TEST_CASE("what is counted can be looked at before its window ends, and changes tells whether it is new") {
  Collected out;
  Folder folder(out);
  folder.OnEvent(File(v1::OPEN_WRITE, "/a", kSecond));
  CHECK(folder.Pending().empty());
  const uint64_t before = folder.changes();
  for (int i = 1; i < 5; ++i) folder.OnEvent(File(v1::OPEN_WRITE, "/a", kSecond + i));
  CHECK(folder.changes() != before);
  REQUIRE(folder.Pending().size() == 1);
  CHECK(folder.Pending()[0]->count() == 4);
  const uint64_t counted = folder.changes();
  folder.Flush(30 * kSecond);
  CHECK(folder.changes() != counted);
  CHECK(folder.Pending().empty());
}

TEST_CASE("the first act goes on at once, the others as one event when the window ends") {
  Collected out;
  Folder folder(out);
  for (int i = 0; i < 100; ++i) folder.OnEvent(File(v1::OPEN_WRITE, "/a", kSecond + i));
  REQUIRE(out.events.size() == 1);
  CHECK(out.events[0].count() == 1);
  folder.Flush(9 * kSecond);
  CHECK(out.events.size() == 1);
  folder.Flush(13 * kSecond);
  REQUIRE(out.events.size() == 2);
  CHECK(out.events[1].count() == 99);
  CHECK(out.events[1].boot_ns() == kSecond + 99);  // the last one's time
}

TEST_CASE("a key that goes on repeating is one event a window, one that paused begins anew") {
  Collected out;
  Folder folder(out);
  for (int i = 0; i < 600; ++i) folder.OnEvent(File(v1::OPEN, "/a", i * kSecond / 10));
  CHECK(out.events.size() <= 7);  // a minute: the first and one per window
  CHECK(out.events.size() >= 5);
  folder.Flush(200 * kSecond);
  folder.Flush(300 * kSecond);
  CHECK(out.Sum() == 600);
  CHECK(folder.keys() == 0);
  folder.OnEvent(File(v1::OPEN, "/a", 400 * kSecond));
  CHECK(out.Sum() == 601);
}

TEST_CASE("acts that differ are not folded into each other") {
  Collected out;
  Folder folder(out);
  std::vector<Event> different;
  different.push_back(File(v1::OPEN, "/a", 1));
  different.push_back(File(v1::OPEN, "/b", 1));
  different.push_back(File(v1::CREATE, "/a", 1));
  different.push_back(File(v1::OPEN, "/a", 1, 11));
  different.push_back(File(v1::RENAME, "/a", 1));
  different.back().mutable_file()->set_new_path("/c");
  different.push_back(File(v1::RENAME, "/", 1));
  different.back().mutable_file()->set_new_path("a/c");
  different.push_back(File(v1::CHMOD, "/a", 1));
  different.push_back(File(v1::CHMOD, "/a", 1));
  different.back().mutable_file()->set_mode(0777);
  different.push_back(File(v1::OPEN, "/a", 1));
  different.back().set_as_asked(true);
  different.push_back(File(v1::OPEN, "/a", 1));
  different.back().set_session("s2");
  for (int result : {v1::Net::IN_PROGRESS, v1::Net::OK, v1::Net::FAILED}) {
    Event event = File(v1::CONNECT, "", 1);
    event.mutable_net()->set_address("10.0.0.1");
    event.mutable_net()->set_result(static_cast<v1::Net::Result>(result));
    different.push_back(event);
  }
  for (const Event& event : different) folder.OnEvent(event);
  CHECK(out.events.size() == different.size());
}

TEST_CASE("programs, denials that took effect and the daemon's own events are never folded") {
  Collected out;
  Folder folder(out);
  Event denied = File(v1::OPEN, "/a", 1);
  denied.mutable_judgement()->set_decision(v1::DENY);
  denied.mutable_judgement()->set_enforced(true);
  Event own = File(v1::LOSS, "", 1);
  own.set_source(v1::DAEMON);
  for (int i = 0; i < 5; ++i) {
    folder.OnEvent(File(v1::EXEC, "", 1));
    folder.OnEvent(File(v1::FORK, "", 1));
    folder.OnEvent(denied);
    folder.OnEvent(own);
  }
  CHECK(out.events.size() == 20);
  CHECK(folder.keys() == 0);
  // One that stopped nothing goes on as often as the program likes.
  denied.mutable_judgement()->set_enforced(false);
  for (int i = 0; i < 5; ++i) folder.OnEvent(denied);
  CHECK(out.events.size() == 21);
}

TEST_CASE("what a process had counted comes before its exit") {
  Collected out;
  Folder folder(out);
  for (int i = 0; i < 3; ++i) folder.OnEvent(File(v1::OPEN, "/a", 1));
  for (int i = 0; i < 3; ++i) folder.OnEvent(File(v1::OPEN, "/a", 1, 11));
  folder.OnEvent(File(v1::EXIT, "", 2));
  REQUIRE(out.events.size() == 4);
  CHECK(out.events[2].count() == 2);
  CHECK(out.events[3].kind() == v1::EXIT);
  CHECK(folder.keys() == 1);
  folder.EndSession("other");
  CHECK(out.events.size() == 4);
  folder.EndSession("s1");
  CHECK(out.Sum() == 7);
  CHECK(folder.keys() == 0);
}

TEST_CASE("a count that is at least stays at least") {
  Collected out;
  Folder folder(out);
  Event event = File(v1::OPEN, "/a", 1);
  for (int i = 0; i < 4; ++i) {
    event.set_count_is(i == 1 ? v1::AT_LEAST : v1::EXACT);
    folder.OnEvent(event);
  }
  folder.EndAll();
  REQUIRE(out.events.size() == 2);
  CHECK(out.events[1].count() == 3);
  CHECK(out.events[1].count_is() == v1::AT_LEAST);
}

TEST_CASE("beyond the bound events go on one by one") {
  Collected out;
  Folder::Options options;
  options.max_keys = 10;
  Folder folder(out, options);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 20; ++i) folder.OnEvent(File(v1::OPEN, absl::StrCat("/", i), 1, 10 + i));
  }
  CHECK(folder.keys() == 10);
  CHECK(out.events.size() == 10 + 3 * 10);
  folder.EndAll();
  CHECK(out.Sum() == 60);
}

TEST_CASE("no act is lost or counted twice, whatever comes in which order") {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    Collected out;
    Folder::Options options;
    options.max_keys = static_cast<size_t>(1 + pick(30));
    options.window = absl::Milliseconds(1 + pick(5000));
    Folder folder(out, options);
    std::map<std::string, uint64_t> acts, told;
    int64_t now = 0;
    for (int i = 0; i < 500; ++i) {
      now += pick(2) * pick(1'000'000'000);
      Event event = File(v1::OPEN, absl::StrCat("/", pick(20)), now - pick(1'000'000), 10 + pick(5));
      event.set_session(absl::StrCat("s", pick(2)));
      event.set_count(static_cast<uint64_t>(1 + pick(3)));
      switch (pick(30)) {
        case 0:
          event.set_kind(v1::EXIT);
          break;
        case 1:
          event.mutable_judgement()->set_decision(v1::DENY);
          break;
        case 2:
          folder.Flush(now + pick(3) * kSecond);
          break;
        case 3:
          folder.EndSession(absl::StrCat("s", pick(2)));
          break;
        default:
          break;
      }
      acts[absl::StrCat(event.session(), event.process().pid(), event.file().path(), event.kind())] +=
          event.count();
      folder.OnEvent(event);
      REQUIRE(folder.keys() <= options.max_keys);
    }
    folder.EndAll();
    for (const Event& event : out.events) {
      told[absl::StrCat(event.session(), event.process().pid(), event.file().path(), event.kind())] +=
          event.count();
    }
    REQUIRE(acts == told);
    REQUIRE(folder.keys() == 0);
  }
}

}  // namespace
}  // namespace agentmon
