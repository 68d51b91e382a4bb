// Rules that every snapshot starts with and that no key, flag or variable switches off: our own files and
// sockets, the objects of canaries, safe device nodes, and what programs need to start at all.
#pragma once

#include <memory>

#include "common/policy/snapshot.h"

namespace agentmon::policy {

inline constexpr char kBuiltinFile[] = "built-in";  // Document::file of these rules
// Where nobody listens and no session may connect to: what a session tries, to prove its network rules.
inline constexpr char kCanaryAddress[] = "127.86.53.9";
inline constexpr uint16_t kCanaryPort = 9;
// judges_names: of a session whose policy stops something of the network. Services that answer for names and
// are no servers of DNS are closed then: libc falls back to DNS, and that is answered by the policy.
std::shared_ptr<const Document> BuiltinDocument(const BuiltinPaths& paths, bool judges_names);
bool ClosesNameServices(const Document& builtin);

// The base of a session that names none: what Document's defaults say, no rules.
std::shared_ptr<const Document> EmptyBase();

}  // namespace agentmon::policy
