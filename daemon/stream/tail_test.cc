#include "daemon/stream/tail.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "daemon/store/store_fixture.h"

namespace agentmon {
namespace {

Tail::Backlog BacklogOf(EventStore& store, uint32_t limit) {
  return [&store, limit](uint64_t until_seq, const Tail::Give& give) {
    QueryOptions query;
    query.filter.set_session("*");
    query.limit = limit;
    query.until_seq = until_seq;
    return store.Query(query, give);
  };
}

v1::EventFilter Everything() {
  v1::EventFilter filter;
  filter.set_session("*");
  return filter;
}

}  // namespace

TEST_CASE("stored and live events join without a hole and without a duplicate while events pour in") {
  TempDir dir;
  FakeClock clock;
  StreamHub::Options hub_options;
  hub_options.max_events = 1'000'000;
  hub_options.max_bytes = 1 << 30;
  StreamHub hub(hub_options);
  EventStore::Options options = OptionsFor(dir, clock);
  options.writer.on_stored = [&hub](const Event& event, bool repeated) { hub.OnStored(event, repeated); };
  auto store = OpenStore(options);
  constexpr uint64_t kEvents = 20'000;
  std::thread producer([&] {
    for (uint64_t i = 1; i <= kEvents; ++i) {
      store->OnEvent(MakeEvent("session-1", static_cast<int64_t>(i)));
      if (i % 100 == 0) store->Flush(absl::Seconds(10));
    }
  });
  std::vector<std::thread> followers;
  std::vector<std::vector<uint64_t>> seen(4);
  for (auto& seqs : seen) {
    followers.emplace_back([&store, &hub, &seqs] {
      while (store->last_seq() < 1000) std::this_thread::yield();
      auto subscriber = hub.Subscribe(Everything(), std::nullopt);
      const auto send = [&seqs](std::vector<Event> events, uint64_t gap) {
        if (gap != 0) seqs.push_back(0);
        for (const Event& event : events) seqs.push_back(event.seq());
        return seqs.empty() || seqs.back() != kEvents;
      };
      const absl::Status status =
          Tail(*std::move(subscriber)).Run(BacklogOf(*store, 0), send, [] { return false; });
      if (!status.ok()) seqs.clear();
    });
  }
  producer.join();
  for (std::thread& follower : followers) follower.join();
  for (const auto& seqs : seen) {
    REQUIRE(seqs.size() == kEvents);
    for (uint64_t i = 0; i < kEvents; ++i) REQUIRE(seqs[i] == i + 1);
  }
}

TEST_CASE("a backlog of n gives the newest n stored events and then the live ones") {
  TempDir dir;
  FakeClock clock;
  StreamHub hub({});
  EventStore::Options options = OptionsFor(dir, clock);
  options.writer.on_stored = [&hub](const Event& event, bool repeated) { hub.OnStored(event, repeated); };
  auto store = OpenStore(options);
  for (int i = 1; i <= 50; ++i) store->OnEvent(MakeEvent("session-1", i));
  REQUIRE(store->Flush(absl::Seconds(10)));
  for (const uint32_t backlog : {0u, 5u}) {
    auto subscriber = hub.Subscribe(Everything(), std::nullopt).value();
    const uint64_t stored = store->last_seq();
    REQUIRE(subscriber->joined_at() == stored);
    store->OnEvent(MakeEvent("session-1", 100));
    std::vector<uint64_t> seqs;
    const auto send = [&](std::vector<Event> events, uint64_t) {
      for (const Event& event : events) seqs.push_back(event.seq());
      return seqs.empty() || seqs.back() != stored + 1;
    };
    REQUIRE(Tail(std::move(subscriber))
                .Run(backlog == 0 ? Tail::Backlog() : BacklogOf(*store, backlog), send, [] { return false; })
                .ok());
    std::vector<uint64_t> expected;
    for (uint64_t seq = stored + 1 - backlog; seq <= stored + 1; ++seq) expected.push_back(seq);
    CHECK(seqs == expected);
  }
}

TEST_CASE("a tail ends when its client is gone or cancels") {
  StreamHub hub({});
  Event event;
  event.set_seq(1);
  auto subscriber = hub.Subscribe(Everything(), std::nullopt).value();
  hub.OnStored(event, false);
  int sent = 0;
  CHECK(Tail(std::move(subscriber))
            .Run(
                nullptr, [&](auto, auto) { return ++sent < 1; }, [] { return false; })
            .ok());
  CHECK(sent == 1);
  CHECK(Tail(hub.Subscribe(Everything(), std::nullopt).value())
            .Run(
                nullptr, [](auto, auto) { return true; }, [] { return true; })
            .ok());
  CHECK(hub.subscribers() == 0);
}

}  // namespace agentmon
