// The seccomp program of a session, made from the tables that shim and daemon share.
//
// Ours and not libseccomp's, which cannot say "none of these values" and "any of these bits" of an argument:
// it spends a rule on every bit. A binary tree over the numbers; the kernel asks it only about calls that it
// may not simply let through (Linux 5.11 keeps a bitmap of the others).
#pragma once

#include <linux/filter.h>

#include <vector>

#include "common/kernel/refused_calls.h"

namespace agentmon {

struct FilterPlan {
  CallFamilies refuse;
  // A listener is installed with the filter: it gets the mediated calls. Without one they are let through.
  bool listener = true;
  // Execs are mediated as well.
  bool ask_exec = false;
  bool ask_unix = false;  // calls that name a socket go to the listener as well
  // Those that name one in their arguments do.
  bool ask_network = false;
  // All of them do, and what would get past the listener is refused. With ask_network.
  bool judge_network = false;
};

// Architectures that the tables do not know are killed, calls that they do not name are allowed.
std::vector<sock_filter> BuildFilter(const FilterPlan& plan);

}  // namespace agentmon
