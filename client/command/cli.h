// The command line of agentmon: verbs, options and what they do. One definition for the program, the manual
// pages and the completions.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/command/attach.h"
#include "client/command/debug.h"
#include "client/command/policy.h"
#include "client/command/run.h"
#include "client/command/session.h"
#include "client/command/status.h"
#include "client/command/timeline.h"
#include "client/command/verb.h"
#include "client/command/watch.h"
#include "client/command/why.h"
#include "common/cli/usage_error.h"

namespace agentmon {

// Everything that parsing fills in. Lives as long as its CLI::App.
struct Cli {
  VerbContext context;
  // What each verb does; returns the exit status.
  std::vector<std::pair<const CLI::App*, std::function<int()>>> verbs;

  RunOptions run;
  SessionOptions session;
  AttachOptions attach;
  TimelineOptions timeline;
  WatchOptions watch;
  StatusOptions status;
  WhyOptions why;
  PolicyOptions policy;
  DebugOptions debug;
};

// An option whose value is named A|B|C takes one of these. Descriptions are one sentence; a footer's lines
// that start with two blanks are examples.
std::unique_ptr<CLI::App> MakeApp(Cli& cli);

// What stands behind the options in the usage of a verb: "-- CMD [ARGS]...", or nothing.
std::string UsageTail(const CLI::App& app);

// Parses and runs. The words from the first "--" on are split off before anything looks at them.
int RunCli(std::vector<std::string> arguments, int out_fd, int err_fd);

}  // namespace agentmon
