#include "client/connection/connection.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "client/exit_status.h"
#include "tests/fake/fake_daemon.h"

namespace agentmon {
namespace {

grpc::Status CallStatus(const std::string& socket) {
  const auto channel = OpenChannel(DaemonChoice{socket});
  REQUIRE(channel.ok());
  grpc::ClientContext context;
  SetDeadline(context, absl::Seconds(20));
  v1::StatusResponse response;
  return v1::Host::NewStub(*channel)->Status(&context, {}, &response);
}

}  // namespace

TEST_CASE("message, reason and hint of an error come from its details") {
  FakeDaemon daemon;
  daemon.state().refusal =
      DetailedError(grpc::StatusCode::PERMISSION_DENIED, "not your session", "NOT_YOURS", "ask its owner");
  const Failure failure = RpcFailure(CallStatus(daemon.socket()));
  CHECK(failure.message == "not your session: ask its owner");
  CHECK(failure.reason == "NOT_YOURS");
  CHECK(failure.exit_status == kNegative);
}

TEST_CASE("an error without details is its message") {
  const Failure failure = RpcFailure({grpc::StatusCode::INVALID_ARGUMENT, "no such glob"});
  CHECK(failure.message == "no such glob");
  CHECK(failure.exit_status == kUsage);
}

TEST_CASE("a daemon that goes away during a call is unreachable") {
  FakeDaemon daemon;
  const auto channel = OpenChannel(DaemonChoice{daemon.socket()});
  REQUIRE(channel.ok());
  daemon.Stop();
  grpc::ClientContext context;
  SetDeadline(context, absl::Seconds(20));
  v1::StatusResponse response;
  const Failure failure = RpcFailure(v1::Host::NewStub(*channel)->Status(&context, {}, &response));
  CHECK(failure.exit_status == kNoDaemon);
  CHECK(absl::StrContains(failure.message, "the connection to the daemon broke"));
}

TEST_CASE("a call that a daemon cancels since it stops is unreachable, too") {
  const Failure failure = RpcFailure({grpc::StatusCode::CANCELLED, "Cancelling all calls"});
  CHECK(failure.exit_status == kNoDaemon);
  CHECK(absl::StrContains(failure.message, "the connection to the daemon broke"));
}

}  // namespace agentmon
