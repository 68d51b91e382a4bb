// agentmon timeline: what happened, stored and as it happens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agentmon/v1/timeline.pb.h"
#include "client/command/verb.h"

namespace agentmon {

struct TimelineOptions {
  std::string session;
  std::string since;
  std::string until;
  std::vector<std::string> kinds;
  std::string verdict;
  std::string enforced;
  std::string path;
  std::string dest;
  std::string exe;
  int pid = 0;
  bool follow = false;
  bool tree = false;
  std::optional<uint32_t> limit;
  std::string format = "table";
};

// InvalidArgument when a value is none.
absl::StatusOr<v1::EventFilter> MakeFilter(const TimelineOptions& options, absl::Time now,
                                           absl::TimeZone zone);

int Timeline(const VerbContext& context, const TimelineOptions& options);
int TimelineVerify(const VerbContext& context);

}  // namespace agentmon
