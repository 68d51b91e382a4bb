// A policy file as data: rules with the place that they come from. Nothing here is compiled or expanded.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/policy/diagnostic.h"

namespace agentmon::policy {

enum class Decision : uint8_t { kNone, kAllow, kAudit, kRedirect, kSoftDelete, kAsk, kAbsorb, kDeny };
// Order in which layers win: deny > absorb > ask > redirect = soft_delete > audit > allow > none.
int Strictness(Decision decision);
absl::string_view DecisionName(Decision decision);  // "ask" for kAsk, "none" for kNone
std::optional<Decision> ParseDecision(absl::string_view word);

enum class RuleKind : uint8_t { kFile, kNetwork, kCommand, kUnix, kSignal };
constexpr size_t kRuleKinds = 5;
absl::string_view RuleKindName(RuleKind kind);  // "file", "network", ...

enum class Posture : uint8_t { kUnset, kMonitor, kWarn, kEnforce, kIsolate };
absl::string_view PostureName(Posture posture);
std::optional<Posture> ParsePosture(absl::string_view word);

enum class Enforcement : uint8_t { kUnset, kRequired, kBestEffort };

// Operations of file rules, one bit each, in the order of FileOperationNames().
enum FileOp : uint32_t {
  kOpen = 1u << 0,
  kRead = 1u << 1,
  kStat = 1u << 2,
  kList = 1u << 3,
  kReadlink = 1u << 4,
  kAccess = 1u << 5,
  kWrite = 1u << 6,
  kCreate = 1u << 7,
  kMkdir = 1u << 8,
  kChmod = 1u << 9,
  kChown = 1u << 10,
  kRename = 1u << 11,
  kDelete = 1u << 12,
  kRmdir = 1u << 13,
  kLink = 1u << 14,
  kSymlink = 1u << 15,
  kMknod = 1u << 16,
};
constexpr int kFileOps = 17;
constexpr uint32_t kAllFileOps = (1u << kFileOps) - 1;
constexpr uint32_t kReadOps = kOpen | kRead | kStat | kList | kReadlink | kAccess;
constexpr uint32_t kWriteOps = kAllFileOps & ~kReadOps;

// Operations of unix_socket_rules.
enum UnixOp : uint32_t {
  kUnixConnect = 1u << 0,
  kUnixBind = 1u << 1,
  kUnixListen = 1u << 2,
  kUnixSendto = 1u << 3
};
constexpr uint32_t kAllUnixOps = 0xf;
constexpr uint32_t kJudgedUnixOps = kUnixConnect | kUnixSendto;  // those that can be stopped

// One bit for a name; 0 for an unknown one. "*" is all. Aliases: truncate and xattr are write, sendmsg is
// sendto.
uint32_t ParseFileOp(absl::string_view word);
uint32_t ParseUnixOp(absl::string_view word);
std::string FileOpNames(uint32_t mask);  // "read,write"; "*" for all
std::string UnixOpNames(uint32_t mask);

// A string of the file, with its place.
struct Text {
  std::string value;
  Position at;
};

struct PortRange {
  uint16_t low = 0;
  uint16_t high = 0;
};
constexpr uint8_t kTcp = 1, kUdp = 2;

// Who may get a signal; a target may have several of these relations to the sender.
enum SignalTarget : uint32_t {
  kTargetSelf = 1u << 0,
  kTargetChildren = 1u << 1,
  kTargetDescendants = 1u << 2,
  kTargetSiblings = 1u << 3,
  kTargetSession = 1u << 4,
  kTargetParent = 1u << 5,
  kTargetExternal = 1u << 6,
  kTargetSystem = 1u << 7,
  kTargetUser = 1u << 8,
  kTargetProcess = 1u << 9,
  kTargetPidRange = 1u << 10,
};

struct Redirect {
  Text target;  // file: directory; signal: name; command: program
  std::vector<std::string> args, args_append;
  std::vector<std::pair<std::string, std::string>> environment;
  bool preserve_tree = false;
};

// One rule of any kind; the fields of other kinds are empty. Lists that are empty do not restrict.
struct Rule {
  RuleKind kind = RuleKind::kFile;
  std::string name, description, message;
  Decision decision = Decision::kDeny;
  absl::Duration timeout = absl::ZeroDuration();  // of a question; zero = the daemon's default
  Position at;

  std::vector<Text> paths;           // file, unix: globs
  uint32_t operations = 0;           // file, unix: FileOp or UnixOp bits, never 0 once loaded
  std::vector<Text> domains, cidrs;  // network
  std::vector<PortRange> ports;
  uint8_t protocols = 0;  // kTcp, kUdp; 0 = any
  bool verify_name = false;
  std::vector<Text> commands, args_patterns, args;  // command
  bool anywhere = false;
  int min_depth = 0, max_depth = -1;  // -1 = no bound
  uint64_t signals = 0;               // signal: bit N = signal N
  uint32_t target = 0;                // SignalTarget
  Text target_pattern;                // of kTargetProcess: a glob on the name
  int pid_min = 0, pid_max = 0;
  Redirect redirect;
};

enum class DefaultFor : uint8_t { kCommand, kFileRead, kFileWrite, kNetwork, kUnixSocket, kSignal };
constexpr size_t kDefaults = 6;
absl::string_view DefaultName(DefaultFor what);  // "file_read"

struct ResourceLimits {  // 0 = not limited
  int64_t max_memory_mb = 0, memory_swap_max_mb = -1, cpu_quota_percent = 0, disk_read_bps_max = 0,
          disk_write_bps_max = 0, net_bandwidth_mbps = 0, pids_max = 0;  // swap: -1 = not limited, 0 = none
  absl::Duration command_timeout = absl::ZeroDuration(), session_timeout = absl::ZeroDuration(),
                 idle_timeout = absl::ZeroDuration();
};

struct EnvRules {
  bool given = false;
  std::vector<Text> allow, deny;
  int64_t max_bytes = 0, max_keys = 0;
};

struct Audit {
  bool log_allowed = true, log_denied = true, log_approved = true;
  int64_t retention_days = 0;
  bool record_every = false;  // `record: every`
};

// System calls that linux.seccomp refuses to a session.
struct SeccompRules {
  bool ptrace = false, bpf = false, kernel_modules = false, mount_namespace = false;
};

// Something of a file that nothing enforces yet: a key, or a condition of a rule.
struct Unenforced {
  std::string key;
  Position at;
};

struct Document {
  std::string file;  // as shown in messages
  std::string name, description;
  int64_t version = 0;
  Posture posture = Posture::kUnset;
  Enforcement enforcement = Enforcement::kUnset;
  bool nested_allowed = false;  // `nested: allow`
  std::optional<bool> allow_privileges;
  std::string on_daemon_loss;                  // "", "freeze" or "kill"
  std::array<Decision, kDefaults> defaults{};  // kNone = not given
  std::vector<Rule> rules;                     // in file order within a kind
  ResourceLimits limits;
  EnvRules env;
  std::vector<std::pair<std::string, std::string>> env_inject;
  std::vector<std::string> transparent_add, transparent_remove;
  SeccompRules seccomp;
  Audit audit;
  std::vector<Unenforced> unenforced;
};

}  // namespace agentmon::policy
