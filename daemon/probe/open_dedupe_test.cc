#include "daemon/probe/open_dedupe.h"

#include <catch2/catch.hpp>

namespace agentmon {
namespace {
constexpr int64_t kSecond = 1'000'000'000;
}

TEST_CASE("an open for writing is known for a second, to its session, process and path only") {
  OpenDedupe dedupe;
  dedupe.OpenedForWriting(1, 10, "/a", 100 * kSecond);
  CHECK(dedupe.TakeOpenedForWriting(1, 10, "/a", 100 * kSecond + 1));
  CHECK_FALSE(dedupe.TakeOpenedForWriting(1, 10, "/a", 100 * kSecond + 1));  // the next open is a read
  dedupe.OpenedForWriting(1, 10, "/a", 100 * kSecond);
  dedupe.OpenedForWriting(1, 10, "/a", 100 * kSecond);
  CHECK(dedupe.TakeOpenedForWriting(1, 10, "/a", 101 * kSecond - 1));
  CHECK(dedupe.TakeOpenedForWriting(1, 10, "/a", 101 * kSecond - 1));
  CHECK_FALSE(dedupe.TakeOpenedForWriting(1, 10, "/a", 101 * kSecond - 1));
  CHECK_FALSE(dedupe.TakeOpenedForWriting(2, 10, "/a", 100 * kSecond + 2));
  CHECK_FALSE(dedupe.TakeOpenedForWriting(1, 11, "/a", 100 * kSecond + 2));
  CHECK_FALSE(dedupe.TakeOpenedForWriting(1, 10, "/b", 100 * kSecond + 2));
}

TEST_CASE("an open for writing is forgotten after two seconds, with and without others in between") {
  OpenDedupe dedupe;
  dedupe.OpenedForWriting(1, 10, "/a", 100 * kSecond);
  CHECK_FALSE(dedupe.TakeOpenedForWriting(1, 10, "/a", 103 * kSecond));
  dedupe.OpenedForWriting(1, 10, "/b", 104 * kSecond);
  dedupe.OpenedForWriting(1, 10, "/c", 105 * kSecond);
  dedupe.OpenedForWriting(1, 10, "/d", 106 * kSecond);
  CHECK_FALSE(dedupe.TakeOpenedForWriting(1, 10, "/b", 106 * kSecond));
  CHECK(dedupe.TakeOpenedForWriting(1, 10, "/d", 106 * kSecond));
}

}  // namespace agentmon
