#include "common/base/bounded_queue.h"

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("a full queue refuses and keeps what it has in order") {
  BoundedQueue<int> queue(2);
  CHECK(queue.TryPush(1));
  CHECK(queue.TryPush(2));
  CHECK_FALSE(queue.TryPush(3));
  std::vector<int> out;
  CHECK(queue.PopAll(&out, absl::ZeroDuration()));
  CHECK(out == std::vector<int>{1, 2});
}

TEST_CASE("a closed queue gives out the rest and then says that it ended") {
  BoundedQueue<int> queue(2);
  CHECK(queue.TryPush(7));
  queue.Close();
  CHECK_FALSE(queue.TryPush(8));
  std::vector<int> out;
  CHECK(queue.PopAll(&out, absl::InfiniteDuration()));
  CHECK(out == std::vector<int>{7});
  out.clear();
  CHECK_FALSE(queue.PopAll(&out, absl::InfiniteDuration()));
}

}  // namespace agentmon
