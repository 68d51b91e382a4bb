#include "daemon/enforce/proof.h"

#include <cerrno>

#include <catch2/catch.hpp>

#include "common/kernel/landlock.h"

namespace agentmon {
namespace {

v1::ShimPlan Plan() {
  v1::ShimPlan plan;
  for (const char* family : {"bpf", "perf"}) {
    v1::Canary* canary = plan.add_canaries();
    canary->set_control(std::string("call.") + family);
    canary->set_act(v1::Canary::CALL);
    canary->set_subject(family);
    canary->add_errors(EPERM);
  }
  return plan;
}

v1::ProveRequest Tried(std::initializer_list<int> errors) {
  v1::ProveRequest request;
  for (const int error : errors) request.add_results()->set_error(error);
  return request;
}

}  // namespace

TEST_CASE("before it is tried no control is active, and what the kernel lacks says so") {
  const auto controls = ControlsOf(Plan(), kLandlockScopeAbi - 1);
  REQUIRE(controls.size() == 3);
  CHECK(controls[0].name() == "call.bpf");
  CHECK(controls[0].mechanism() == "seccomp");
  CHECK(controls[0].why() == "not tried yet");
  CHECK(controls[2].name() == "signal");
  CHECK(controls[2].why() == "Landlock of this kernel has ABI 5, and scopes need 6 (Linux 6.12)");
  for (const v1::ControlState& control : controls) CHECK_FALSE(control.active());
  CHECK(ControlsOf({}, 0).empty());
}

TEST_CASE("a control is active when its act failed as it should") {
  auto controls = ControlsOf(Plan(), 0);
  REQUIRE(EnterProof(Plan(), Tried({EPERM, EPERM}), true, controls).ok());
  CHECK((controls[0].active() && controls[0].why().empty()));
  CHECK(controls[1].active());
  CHECK_FALSE(controls[2].active());  // no canary: as it was
}

TEST_CASE("an act that succeeds, or fails by itself, is an error where enforcement is required") {
  auto controls = ControlsOf(Plan(), 0);
  const absl::Status failed = EnterProof(Plan(), Tried({EPERM, 0}), true, controls);
  CHECK(absl::IsFailedPrecondition(failed));
  CHECK(std::string(failed.message()) ==
        "the control call.perf (seccomp) does not hold: the forbidden act succeeded");
  CHECK(controls[0].active());
  CHECK_FALSE(controls[1].active());
  CHECK(EnterProof(Plan(), Tried({ENOSYS, EPERM}), false, controls).ok());
  CHECK(controls[0].why() == "the forbidden act failed by itself (ENOSYS), which proves nothing");
  CHECK(controls[1].active());
}

TEST_CASE("a control with several acts is active when all of them failed") {
  v1::ShimPlan plan = Plan();
  *plan.add_canaries() = plan.canaries(0);
  auto controls = ControlsOf(plan, 0);
  REQUIRE(EnterProof(plan, Tried({EPERM, EPERM, 0}), false, controls).ok());
  CHECK_FALSE(controls[0].active());
}

TEST_CASE("results that are not those of the plan prove nothing") {
  auto controls = ControlsOf(Plan(), 0);
  CHECK(absl::IsInvalidArgument(EnterProof(Plan(), Tried({EPERM}), false, controls)));
  CHECK_FALSE(controls[0].active());
}

}  // namespace agentmon
