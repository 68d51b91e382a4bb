// What a session's policy says of a request to connect: of its name, and of each address that it leads to.
#pragma once

#include <string>

#include "agentmon/v1/event.pb.h"
#include "common/policy/snapshot.h"
#include "daemon/proxy/destination.h"
#include "daemon/resolver/address_scope.h"
#include "daemon/resolver/question_judge.h"

namespace agentmon {

struct ConnectVerdict {
  bool stop = false;
  v1::Judgement judgement;  // of who allows or stops it; decision allow alone for what a default allows
};

// The name by itself, before anybody is asked for its addresses.
QuestionVerdict JudgeName(const policy::Snapshot& snapshot, const Destination& destination);

// One address of it. `trusted`: the destination is this address itself, or root's hosts file leads there; of
// others that lead into this host or a local network, rules must say so (rebinding).
ConnectVerdict JudgeConnect(const policy::Snapshot& snapshot, const Destination& destination,
                            const policy::Address& address, AddressScope scope, bool trusted);

// What the proxy itself stops. `always`: also where the policy only records.
v1::Judgement ProxyDenial(const policy::Snapshot& snapshot, absl::string_view rule, absl::string_view message,
                          bool always = false);

// One line for the program that was stopped: the rule, its place and its words.
std::string WhyDenied(const v1::Judgement& judgement);

}  // namespace agentmon
