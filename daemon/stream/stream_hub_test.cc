#include "daemon/stream/stream_hub.h"

#include <catch2/catch.hpp>
#include <thread>

#include "absl/time/clock.h"

namespace agentmon {
namespace {

Event MakeEvent(uint64_t seq, const std::string& session = "s1") {
  Event event;
  event.set_seq(seq);
  event.set_session(session);
  event.set_kind(v1::OPEN);
  event.mutable_file()->set_path("/x");
  return event;
}

v1::EventFilter Session(const std::string& session) {
  v1::EventFilter filter;
  filter.set_session(session);
  return filter;
}

struct Got {
  std::vector<uint64_t> seqs;
  uint64_t gap = 0;
  Subscriber::Result result;
};

Got Next(Subscriber& subscriber, size_t most = 1000, absl::Duration wait = absl::ZeroDuration()) {
  Got got;
  std::vector<Event> events;
  got.result = subscriber.Next(absl::Now() + wait, most, &events, &got.gap);
  for (const Event& event : events) got.seqs.push_back(event.seq());
  return got;
}

using Seqs = std::vector<uint64_t>;

}  // namespace

TEST_CASE("each subscriber gets the events that its filter and its uid allow") {
  StreamHub::Options options;
  options.owner_of = [](absl::string_view session) -> std::optional<uint32_t> {
    if (session == "s1") return 1000;
    if (session == "s2") return 1001;
    return std::nullopt;
  };
  StreamHub hub(options);
  auto all = hub.Subscribe(Session("*"), std::nullopt).value();
  auto one = hub.Subscribe(Session("s1"), std::nullopt).value();
  auto ann = hub.Subscribe(Session("*"), 1000).value();
  auto wrong = hub.Subscribe(Session("s2"), 1000).value();
  v1::EventFilter kinds;
  kinds.add_kinds(v1::EXEC);
  auto execs = hub.Subscribe(kinds, std::nullopt).value();
  hub.OnStored(MakeEvent(1, "s1"), false);
  hub.OnStored(MakeEvent(2, "s2"), false);
  hub.OnStored(MakeEvent(3, "unknown"), false);
  hub.OnStored(MakeEvent(4, ""), false);
  CHECK(Next(*all).seqs == Seqs{1, 2, 3, 4});
  CHECK(Next(*one).seqs == Seqs{1});
  CHECK(Next(*ann).seqs == Seqs{1});
  CHECK(Next(*wrong).result == Subscriber::Result::kTimeout);
  CHECK(Next(*execs).result == Subscriber::Result::kTimeout);

  v1::EventFilter bad;
  bad.set_path_glob("/[");
  CHECK(absl::IsInvalidArgument(hub.Subscribe(bad, std::nullopt).status()));
}

TEST_CASE("a slow subscriber is told how many events it missed, at the place where they are missing") {
  StreamHub::Options options;
  options.max_events = 3;
  StreamHub hub(options);
  auto slow = hub.Subscribe(Session("*"), std::nullopt).value();
  auto quick = hub.Subscribe(Session("*"), std::nullopt).value();
  for (uint64_t seq = 1; seq <= 5; ++seq) {
    hub.OnStored(MakeEvent(seq), false);
    CHECK(Next(*quick).seqs == Seqs{seq});
  }
  Got first = Next(*slow, 2);
  CHECK(first.seqs == Seqs{1, 2});
  CHECK(first.gap == 0);
  hub.OnStored(MakeEvent(6), false);
  hub.OnStored(MakeEvent(7), false);
  CHECK(Next(*slow).seqs == Seqs{3});
  Got after = Next(*slow);
  CHECK(after.seqs == Seqs{6, 7});
  CHECK(after.gap == 2);
  CHECK(Next(*quick).gap == 0);
}

TEST_CASE("a gap is told even when no event comes after it") {
  StreamHub::Options options;
  options.max_bytes = 1;
  StreamHub hub(options);
  auto subscriber = hub.Subscribe(Session("*"), std::nullopt).value();
  hub.OnStored(MakeEvent(1), false);
  const Got got = Next(*subscriber);
  CHECK(got.result == Subscriber::Result::kEvents);
  CHECK(got.seqs.empty());
  CHECK(got.gap == 1);
}

TEST_CASE("a waiting reader wakes up for an event, for Cancel and for the end of the hub") {
  StreamHub hub({});
  auto subscriber = hub.Subscribe(Session("*"), std::nullopt).value();
  std::thread giver([&] { hub.OnStored(MakeEvent(1), false); });
  CHECK(Next(*subscriber, 10, absl::Seconds(10)).seqs == Seqs{1});
  giver.join();

  std::thread canceller([&] { subscriber->Cancel(); });
  CHECK(Next(*subscriber, 10, absl::Seconds(10)).result == Subscriber::Result::kEnded);
  canceller.join();

  auto other = hub.Subscribe(Session("*"), std::nullopt).value();
  std::thread ender([&] { hub.End(); });
  CHECK(Next(*other, 10, absl::Seconds(10)).result == Subscriber::Result::kEnded);
  ender.join();
  auto late = hub.Subscribe(Session("*"), std::nullopt).value();
  CHECK(Next(*late, 10, absl::Seconds(10)).result == Subscriber::Result::kEnded);
}

TEST_CASE("subscriptions are bounded and a dropped one makes room") {
  StreamHub::Options options;
  options.max_subscribers = 2;
  StreamHub hub(options);
  auto a = hub.Subscribe(Session("*"), std::nullopt).value();
  auto b = hub.Subscribe(Session("*"), std::nullopt).value();
  CHECK(absl::IsResourceExhausted(hub.Subscribe(Session("*"), std::nullopt).status()));
  a.reset();
  CHECK(hub.subscribers() == 1);
  CHECK(hub.Subscribe(Session("*"), std::nullopt).ok());
}

TEST_CASE("a subscription knows up to which number events came before it") {
  StreamHub::Options options;
  options.last_seq = 5;
  StreamHub hub(options);
  CHECK(hub.Subscribe(Session("*"), std::nullopt).value()->joined_at() == 5);
  hub.OnStored(MakeEvent(6), false);
  hub.OnStored(MakeEvent(0), false);
  CHECK(hub.Subscribe(Session("*"), std::nullopt).value()->joined_at() == 6);
  auto subscriber = hub.Subscribe(Session("*"), std::nullopt).value();
  hub.OnStored(MakeEvent(7), true);
  CHECK(Next(*subscriber).result == Subscriber::Result::kTimeout);
  CHECK(hub.Subscribe(Session("*"), std::nullopt).value()->joined_at() == 7);
}

}  // namespace agentmon
