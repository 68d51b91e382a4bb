#include "shim/restrict.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/kernel/landlock.h"
#include "shim/stage/capabilities.h"
#include "shim/stage/descriptors.h"
#include "shim/stage/environment.h"
#include "shim/stage/no_new_privileges.h"
#include "shim/stage/notify_filter.h"
#include "shim/stage/scope.h"

namespace agentmon {
namespace {

absl::StatusOr<std::vector<std::string>> Environment(const v1::AttachResponse& response) {
  const v1::ShimPlan& plan = response.plan();
  std::vector<std::string> inherited;
  for (char** word = environ; *word != nullptr; ++word) inherited.emplace_back(*word);
  ASSIGN_OR_RETURN(
      const EnvironmentFilter filter,
      EnvironmentFilter::Parse({plan.unset_environment().begin(), plan.unset_environment().end()}));
  Variables set;
  for (const v1::NameValue& variable : plan.set_environment())
    set.emplace_back(variable.name(), variable.value());
  set.emplace_back("AGENTMON_SESSION", response.session());
  return MakeEnvironment(inherited, filter, set);
}

absl::Status Capabilities(const v1::ShimPlan& plan) {
  if (!plan.drop_capabilities()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const CapabilitySet keep,
                   ParseCapabilities({plan.keep_capabilities().begin(), plan.keep_capabilities().end()}));
  return DropCapabilities(keep);
}

absl::StatusOr<CallFamilies> FamiliesOf(const v1::ShimPlan& plan) {
  CallFamilies families;
  for (const std::string& name : plan.refuse_calls()) {
    const auto family = ParseCallFamily(name);
    if (!family.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the daemon wants calls refused that this agentmon-shim does not know (", name,
                       "): install the same version of both"));
    }
    families.Add(*family);
  }
  return families;
}

// What is refused does not depend on a listener; what is observed does.
absl::Status Filter(const v1::AttachResponse& response, const CallFamilies& refuse, Restricted& restricted) {
  restricted.no_listener = "not asked for";
  if (response.notify()) {
    const v1::ShimPlan& plan = response.plan();
    auto listener = InstallNotifyFilter(
        {refuse, true, plan.ask_exec(), plan.ask_unix(), plan.ask_network(), plan.judge_network()});
    if (listener.ok()) {
      restricted.listener = *std::move(listener);
      return absl::OkStatus();
    }
    restricted.no_listener = std::string(listener.status().message());
  }
  return refuse.empty() ? absl::OkStatus() : InstallRefusingFilter(refuse);
}

// Filters and domains are for those who can gain nothing, and what looks like one would be none.
absl::Status CheckUnfiltered(const v1::AttachResponse& response) {
  const v1::ShimPlan& plan = response.plan();
  if (!response.notify() && plan.refuse_calls().empty() && !plan.landlock_scope() && !plan.ask_exec() &&
      !plan.ask_unix())
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the daemon wants privileges kept and calls filtered, and both cannot be had: install the same version "
      "of agentmond and agentmon-shim");
}

bool NeedsOutsider(const v1::ShimPlan& plan) {
  return std::any_of(plan.canaries().begin(), plan.canaries().end(),
                     [](const v1::Canary& c) { return c.act() == v1::Canary::SIGNAL && c.pid() == 0; });
}

}  // namespace

absl::StatusOr<Restricted> RestrictSelf(const v1::AttachResponse& response,
                                        const std::vector<int>& keep_fds) {
  const v1::ShimPlan& plan = response.plan();
  Restricted restricted;
  ASSIGN_OR_RETURN(const CallFamilies refuse, FamiliesOf(plan));
  if (plan.keep_privileges()) RETURN_IF_ERROR(CheckUnfiltered(response));
  if (NeedsOutsider(plan)) {
    ASSIGN_OR_RETURN(Outsider outsider, Outsider::Find());
    restricted.outsider.emplace(std::move(outsider));
  }
  // Fails most easily, and nothing is lost yet when it does.
  ASSIGN_OR_RETURN(restricted.environment, Environment(response));
  // Emptying the bounding set takes CAP_SETPCAP, which goes with the rest.
  RETURN_IF_ERROR(WithContext(Capabilities(plan), "give up capabilities"));
  // Reads /proc/self/fd, which the filter might make wait.
  if (plan.close_directories()) RETURN_IF_ERROR(CloseWhatLeadsOut(keep_fds));
  if (plan.keep_privileges()) {
    restricted.no_listener = "the session may gain privileges";
    return restricted;
  }
  // Landlock and seccomp ask for it, without CAP_SYS_ADMIN.
  RETURN_IF_ERROR(SetNoNewPrivileges());
  // Landlock's calls are none that the filter knows, but a later filter could.
  if (plan.landlock_scope())
    RETURN_IF_ERROR(WithContext(EnterScope(LandlockAbi(), !plan.ask_unix()), "close off the session"));
  // Last: from here on what is mediated waits for the daemon.
  RETURN_IF_ERROR(Filter(response, refuse, restricted));
  return restricted;
}

}  // namespace agentmon
