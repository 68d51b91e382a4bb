#include "common/base/status.h"

#include <cerrno>

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("an errno status names the object, the text and the errno") {
  const absl::Status s = ErrnoStatus(ENOENT, "open /x");
  CHECK(s.code() == absl::StatusCode::kNotFound);
  CHECK(s.message() == "open /x: No such file or directory (ENOENT)");
}

TEST_CASE("an unknown errno is shown by its number") {
  CHECK(ErrnoStatus(99999, "x").message() == "x: unknown error (errno 99999)");
}

TEST_CASE("context is added before the message and keeps the code") {
  const absl::Status s = WithContext(ErrnoStatus(EBUSY, "write memory.max"), "apply limits");
  CHECK(s.message() == "apply limits: write memory.max: Device or resource busy (EBUSY)");
  CHECK(WithContext(absl::OkStatus(), "x").ok());
}

}  // namespace agentmon
