// An act to be judged. Borrows all its text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/policy/address.h"
#include "common/policy/rule.h"

namespace agentmon::policy {

enum class NetworkOp : uint8_t { kConnect, kSend, kQuery, kListen };  // kQuery: a DNS question for `name`

struct Subject {
  RuleKind kind = RuleKind::kFile;

  // File: the resolved path, and for rename and link the new name (of a symlink only its own name counts).
  // Unix: a path or "@name".
  absl::string_view path, new_path;
  uint32_t operations = 0;    // FileOp or UnixOp bits
  bool own_terminal = false;  // path is a terminal of the session itself
  bool directory = false;     // path is a directory (rename and rmdir then reach what is below it)

  // Command.
  absl::string_view exe;   // resolved binary
  absl::string_view file;  // as asked, made absolute; empty = not known
  absl::Span<const absl::string_view> argv;
  int depth = 0;  // 0 = started by the session's first program

  // Network.
  NetworkOp network_op = NetworkOp::kConnect;
  std::optional<Address> address;
  absl::string_view name;  // host name that led to the address, when known; else empty
  uint16_t port = 0;
  uint8_t protocol = 0;  // kTcp, kUdp; 0 = another one

  // Signal.
  int signal = 0;
  uint32_t target = 0;  // all SignalTarget relations that hold
  absl::string_view target_name;
  int target_pid = 0;
};

Subject FileSubject(uint32_t operations, absl::string_view path, absl::string_view new_path = {});
Subject ExecSubject(absl::string_view exe, absl::Span<const absl::string_view> argv);
Subject UnixSubject(uint32_t operation, absl::string_view path);
Subject ConnectSubject(const Address& address, uint16_t port, uint8_t protocol = kTcp,
                       absl::string_view name = {});
Subject QuerySubject(absl::string_view name);
Subject SignalSubject(int signal, uint32_t target);

// Operations of an open(2) with these flags: create, write (and open and read for O_RDWR), else open and
// read.
uint32_t OperationsOfOpen(int flags);

// What can be done with a decision, and who is there to be asked.
struct EvaluateOptions {
  bool approver = false;  // somebody can answer a question
  bool can_redirect_file = false, can_redirect_command = false, can_redirect_network = false,
       can_redirect_signal = false;
  bool can_soft_delete = false;
  bool can_absorb = false;
  // Is this directory root's, and not writable by the session's user? Null: only the usual system
  // directories.
  const std::function<bool(absl::string_view directory)>* trusted_directory = nullptr;
};

}  // namespace agentmon::policy
