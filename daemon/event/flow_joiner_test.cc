#include "daemon/event/flow_joiner.h"

#include <catch2/catch.hpp>
#include <vector>

namespace agentmon {
namespace {

Event Attempt(uint64_t flow, int64_t boot_ns, const char* protocol = "tcp") {
  Event event;
  event.set_kind(v1::CONNECT);
  event.set_session("s");
  event.set_boot_ns(boot_ns);
  event.mutable_net()->set_flow(flow);
  event.mutable_net()->set_protocol(protocol);
  event.mutable_net()->set_address("127.0.0.1");
  return event;
}

Event Result(uint64_t flow, int64_t boot_ns, int error) {
  Event event;
  event.set_kind(v1::CONNECT);
  event.set_boot_ns(boot_ns);
  event.mutable_net()->set_flow(flow);
  event.mutable_net()->set_result(error == 0 ? v1::Net::OK : v1::Net::FAILED);
  event.mutable_net()->set_error(error);
  return event;
}

struct Fixture {
  std::vector<Event> out;
  FlowJoiner joiner{[this](Event e) { out.push_back(std::move(e)); }};
};

constexpr int64_t kSecond = 1'000'000'000;

}  // namespace

TEST_CASE("an attempt and its result become one event with the attempt's time") {
  Fixture f;
  f.joiner.OnEvent(Attempt(1, 5));
  CHECK(f.out.empty());
  CHECK_FALSE(f.joiner.idle());
  f.joiner.OnEvent(Result(1, 9, 111));
  REQUIRE(f.out.size() == 1);
  CHECK(f.out[0].boot_ns() == 5);
  CHECK(f.out[0].net().result() == v1::Net::FAILED);
  CHECK(f.out[0].net().error() == 111);
  CHECK(f.joiner.idle());
}

TEST_CASE("a result that has the address too is no attempt") {
  Fixture f;
  Event result = Result(1, 9, 0);
  result.mutable_net()->set_protocol("tcp");
  result.mutable_net()->set_address("127.0.0.1");
  f.joiner.OnEvent(Attempt(1, 5));
  f.joiner.OnEvent(result);
  REQUIRE(f.out.size() == 1);
  CHECK(f.joiner.idle());
  f.joiner.OnEvent(result);  // its attempt is not remembered
  REQUIRE(f.out.size() == 2);
  CHECK(f.out[1].net().result() == v1::Net::OK);
}

TEST_CASE("a slow connection is told as in progress first and ended by an event of its own") {
  Fixture f;
  f.joiner.OnEvent(Attempt(1, 0));
  f.joiner.Flush(kSecond / 2);
  CHECK(f.out.empty());
  f.joiner.Flush(kSecond);
  REQUIRE(f.out.size() == 1);
  CHECK(f.out[0].net().result() == v1::Net::IN_PROGRESS);
  CHECK(f.joiner.idle());
  f.joiner.OnEvent(Result(1, 3 * kSecond, 0));
  REQUIRE(f.out.size() == 2);
  CHECK(f.out[1].net().result() == v1::Net::OK);
  CHECK(f.out[1].net().address() == "127.0.0.1");
  CHECK(f.out[1].boot_ns() == 3 * kSecond);
}

TEST_CASE("a socket that tries twice gives two events, and udp does not wait") {
  Fixture f;
  f.joiner.OnEvent(Attempt(1, 0));
  f.joiner.OnEvent(Attempt(1, 1));
  CHECK(f.out.size() == 1);
  f.joiner.OnEvent(Result(1, 2, 0));
  CHECK(f.out.size() == 2);
  f.joiner.OnEvent(Attempt(2, 3, "udp"));
  CHECK(f.out.size() == 3);
}

TEST_CASE("the end of a session gives out what waits, and a result without attempt is nothing") {
  Fixture f;
  f.joiner.OnEvent(Attempt(1, 0));
  f.joiner.EndSession("other");
  CHECK(f.out.empty());
  f.joiner.EndSession("s");
  CHECK(f.out.size() == 1);
  f.joiner.OnEvent(Result(1, 2, 0));
  CHECK(f.out.size() == 1);
  CHECK(f.joiner.idle());
}

}  // namespace agentmon
