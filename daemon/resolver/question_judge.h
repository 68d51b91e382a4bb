// What a session's policy says of a question, and of the addresses that answer it.
#pragma once

#include <optional>
#include <string>

#include "agentmon/v1/event.pb.h"
#include "common/policy/evaluate.h"
#include "common/policy/snapshot.h"
#include "daemon/resolver/address_scope.h"
#include "daemon/resolver/dns_message.h"

namespace agentmon {

struct QuestionVerdict {
  bool stop = false;
  v1::Judgement judgement;  // of who allows or stops it; decision allow alone for what a default allows
  const policy::Rule* rule = nullptr;  // of the snapshot; null: a default, or something built in
  bool spelled_out = false;            // the rule names this very name
};

// By the name that is asked. Nobody can be asked through an answer: `ask` denies.
QuestionVerdict JudgeQuestion(const policy::Snapshot& snapshot, const DnsQuestion& question);

// `scope`: of the address. Why an address must not be opened by this name, which `verdict` lets through: it
// is one of this host or of a local network, the name is one that strangers can register, and the policy
// would not let the session reach the address by itself. Nullopt: it may.
std::optional<v1::Judgement> JudgeAnswer(const policy::Snapshot& snapshot, const QuestionVerdict& verdict,
                                         const std::string& name, const policy::Address& address,
                                         AddressScope scope);

// The same for a connection of which the port is known.
std::optional<v1::Judgement> JudgeAnswerAt(const policy::Snapshot& snapshot, const std::string& name,
                                           const policy::Address& address, AddressScope scope, uint16_t port,
                                           uint8_t protocol);

// What is stored of a verdict that holds at once; `mechanism` is who stops what it stops.
v1::Judgement JudgementOf(const policy::Snapshot& snapshot, const policy::Verdict& verdict,
                          const policy::Subject& subject, const char* mechanism);

// What the resolver itself stops, whatever the policy; enforced unless the policy only records.
v1::Judgement ResolverDenial(const policy::Snapshot& snapshot, absl::string_view rule,
                             absl::string_view message);

}  // namespace agentmon
