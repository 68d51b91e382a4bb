#include "daemon/app/answer_progress.h"

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("threads that take no request of a session over two intervals stand still") {
  AnswerProgress progress;
  CHECK(progress.MakesProgress());
  progress.OnNotServed(7, 100);
  CHECK(progress.MakesProgress());
  progress.OnNotServed(7, 100);
  CHECK_FALSE(progress.MakesProgress());
}

TEST_CASE("a daemon that was stopped for a moment makes progress") {
  AnswerProgress progress;
  progress.OnNotServed(7, 100);
  CHECK(progress.MakesProgress());
  CHECK(progress.MakesProgress());
  progress.OnNotServed(7, 100);
  CHECK(progress.MakesProgress());
}

TEST_CASE("threads that came meanwhile make progress, whatever another session says") {
  AnswerProgress progress;
  progress.OnNotServed(7, 100);
  progress.MakesProgress();
  progress.OnNotServed(7, 101);
  progress.OnNotServed(8, 100);
  CHECK(progress.MakesProgress());
}

}  // namespace agentmon
