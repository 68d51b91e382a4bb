#include "common/policy/key_table.h"

#include "absl/container/flat_hash_map.h"

namespace agentmon::policy {
namespace {

using V = ValueType;
using S = KeyState;
using Words = absl::string_view[];

constexpr absl::string_view kFileRule[] = {"file_rule"};
constexpr absl::string_view kNetworkRule[] = {"network_rule"};
constexpr absl::string_view kCommandRule[] = {"command_rule"};
constexpr absl::string_view kUnixRule[] = {"unix_socket_rule"};
constexpr absl::string_view kSignalRule[] = {"signal_rule"};
constexpr absl::string_view kTarget[] = {"signal_target"};
constexpr absl::string_view kRedirectTo[] = {"command_redirect"};
constexpr absl::string_view kDefaultsSection[] = {"defaults"};
constexpr absl::string_view kLimits[] = {"resource_limits"};
constexpr absl::string_view kEnv[] = {"env_policy"};
constexpr absl::string_view kAudit[] = {"audit"};
constexpr absl::string_view kTransparent[] = {"transparent_commands"};
constexpr absl::string_view kLinux[] = {"linux"};
constexpr absl::string_view kSeccomp[] = {"linux.seccomp"};
constexpr absl::string_view kFanotify[] = {"linux.fanotify"};
constexpr absl::string_view kLinuxNetwork[] = {"linux.network"};

constexpr absl::string_view kPostures[] = {"monitor", "warn", "enforce", "isolate"};
constexpr absl::string_view kEnforcements[] = {"required", "best_effort"};
constexpr absl::string_view kDecisions[] = {"allow", "deny",     "ask",        "approve",
                                            "audit", "redirect", "soft_delete"};
constexpr absl::string_view kSignalDecisions[] = {"allow", "deny",     "ask",   "approve",
                                                  "audit", "redirect", "absorb"};
constexpr absl::string_view kDefaultDecisions[] = {"allow", "deny", "ask", "approve", "audit"};
constexpr absl::string_view kFileOperations[] = {
    "*",     "open",  "read",   "stat",   "list",  "readlink", "access",  "write", "create",   "mkdir",
    "chmod", "chown", "rename", "delete", "rmdir", "link",     "symlink", "mknod", "truncate", "xattr"};
constexpr absl::string_view kUnixOperations[] = {"*", "connect", "bind", "listen", "sendto", "sendmsg"};
constexpr absl::string_view kProtocols[] = {"tcp", "udp"};
constexpr absl::string_view kTargets[] = {"self",    "children", "descendants", "siblings",
                                          "session", "parent",   "external",    "system",
                                          "user",    "process",  "pid_range"};
constexpr absl::string_view kModes[] = {"off", "monitor", "allowlist", "deny-all"};
constexpr absl::string_view kRecord[] = {"folded", "every"};
constexpr absl::string_view kNested[] = {"allow", "deny"};
constexpr absl::string_view kOnLoss[] = {"freeze", "kill"};

constexpr absl::string_view kTableLayers[] = {"table_layers"};
constexpr absl::string_view kTableRow[] = {"table_row"};
constexpr absl::string_view kExpected[] = {"allow",    "audit",       "ask",   "deny",
                                           "redirect", "soft_delete", "absorb"};

constexpr Key kTable[] = {
    {"", "version", V::kInteger, S::kUsed, "Version of the file's format, greater than 0; now 1."},
    {"", "name", V::kText, S::kUsed, "Name of the policy, shown in verdicts."},
    {"", "description", V::kText, S::kUsed, "What the policy is for."},
    {"", "metadata", V::kAny, S::kUsed, "Anything; not looked into."},
    {"", "posture", V::kWord, S::kUsed,
     "monitor: record only. warn: allow, and tell. enforce (the default). isolate: enforce, and no network "
     "at all.",
     kPostures},
    {"", "enforcement", V::kWord, S::kUsed,
     "required (the default): a session whose rules cannot all be enforced is refused. best_effort: it runs, "
     "and says so.",
     kEnforcements},
    {"", "nested", V::kWord, S::kUsed, "May a session start sessions inside itself (bound by both policies)?",
     kNested},
    {"", "on_daemon_loss", V::kWord, S::kUsed, "What happens to a session when no daemon is there to answer.",
     kOnLoss},
    {"", "allow_privileges", V::kBool, S::kUsed,
     "In the floor alone, true: set-uid programs such as sudo work, where the kernel's own rules hold "
     "sessions; nothing else of a session is confined then. false, in any policy: they gain nothing."},
    {"", "record", V::kWord, S::kUsed,
     "folded (the default): repeated acts are counted. every: each is a row.", kRecord},
    {"", "defaults", V::kSection, S::kUsed, "Decisions where no rule of the base policy matches.",
     kDefaultsSection},
    {"", "file_rules", V::kSectionList, S::kUsed, "Rules on files; the first that matches decides.",
     kFileRule},
    {"", "network_rules", V::kSectionList, S::kUsed, "Rules on connections, datagrams and name queries.",
     kNetworkRule},
    {"", "command_rules", V::kSectionList, S::kUsed, "Rules on programs that are started.", kCommandRule},
    {"", "unix_socket_rules", V::kSectionList, S::kUsed, "Rules on unix sockets.", kUnixRule},
    {"", "signal_rules", V::kSectionList, S::kUsed, "Rules on signals.", kSignalRule},
    {"", "resource_limits", V::kSection, S::kUsed, "Limits of the whole session.", kLimits},
    {"", "env_policy", V::kSection, S::kUsed, "Which environment variables the agent gets.", kEnv},
    {"", "env_inject", V::kTextMap, S::kUsed, "Environment variables that are set for the agent."},
    {"", "audit", V::kSection, S::kUsed, "What is recorded.", kAudit},
    {"", "transparent_commands", V::kSection, S::kUsed,
     "Programs whose arguments are a command that is judged too.", kTransparent},
    {"", "linux", V::kSection, S::kUsed, "Keys of Gensee Crate.", kLinux},
    {"", "dns_redirects", V::kAny, S::kNotEnforced, "Answers for names."},
    {"", "connect_redirects", V::kAny, S::kNotEnforced, "Other destinations for connections."},
    {"", "http_services", V::kAny, S::kNotEnforced, "Rules on HTTP requests."},
    {"", "process_contexts", V::kAny, S::kNotEnforced, "Rules by kind of parent process."},
    {"", "process_identities", V::kAny, S::kNotEnforced, "Names for kinds of processes."},
    {"", "package_rules", V::kAny, S::kNotEnforced, "Rules on package installs."},
    {"", "providers", V::kAny, S::kNotEnforced, "Providers of secrets."},
    {"", "mcp_rules", V::kAny, S::kNotEnforced, "Rules on MCP tools."},
    {"", "db_services", V::kAny, S::kNotEnforced, "Databases."},
    {"", "db_rules", V::kAny, S::kNotEnforced, "Rules on database statements."},
    {"", "policies", V::kAny, S::kNotEnforced, "Policies of parts."},
    {"", "inspection", V::kAny, S::kNotEnforced, "Inspection of contents."},
    {"", "soft_delete", V::kAny, S::kIgnored, "Where soft-deleted files go."},
    {"", "registry_rules", V::kAny, S::kIgnored, "Windows registry."},
    {"", "windows", V::kAny, S::kIgnored, "Windows."},
    {"", "darwin", V::kAny, S::kIgnored, "macOS."},
    {"", "macos", V::kAny, S::kIgnored, "macOS."},
    {"", "xpc_rules", V::kAny, S::kIgnored, "macOS XPC."},

    {"defaults", "command", V::kWord, S::kUsed, "A program that no rule matches; deny unless set.",
     kDefaultDecisions},
    {"defaults", "file_read", V::kWord, S::kUsed,
     "open, read, stat, list, readlink, access; allow unless set.", kDefaultDecisions},
    {"defaults", "file_write", V::kWord, S::kUsed, "All other file operations; deny unless set.",
     kDefaultDecisions},
    {"defaults", "network", V::kWord, S::kUsed, "Connections, datagrams, name queries; deny unless set.",
     kDefaultDecisions},
    {"defaults", "unix_socket", V::kWord, S::kUsed, "Unix sockets; deny unless set.", kDefaultDecisions},
    {"defaults", "signal", V::kWord, S::kUsed, "Signals; deny unless set.", kDefaultDecisions},

    {"file_rule", "name", V::kText, S::kUsed, "Name of the rule, shown in verdicts."},
    {"file_rule", "description", V::kText, S::kUsed, "What the rule is for."},
    {"file_rule", "paths", V::kTextList, S::kUsed,
     "Globs on the resolved path: absolute, ~/..., ${VAR}/... or **/..."},
    {"file_rule", "operations", V::kWordList, S::kUsed, "Operations; none or \"*\" = all.", kFileOperations},
    {"file_rule", "decision", V::kWord, S::kUsed, "What happens.", kDecisions},
    {"file_rule", "message", V::kText, S::kUsed,
     "Told to the agent and shown in the timeline; {{.Path}} is filled in."},
    {"file_rule", "timeout", V::kDuration, S::kUsed, "How long a question waits before it is a denial."},
    {"file_rule", "redirect_to", V::kText, S::kUsed,
     "With redirect: the directory that is used in place of the path."},
    {"file_rule", "preserve_tree", V::kBool, S::kUsed,
     "With redirect: keep the directories below redirect_to."},

    {"network_rule", "name", V::kText, S::kUsed, "Name of the rule, shown in verdicts."},
    {"network_rule", "description", V::kText, S::kUsed, "What the rule is for."},
    {"network_rule", "domains", V::kTextList, S::kUsed,
     "Globs on the host name: *.x is one label more, **.x any number, ** everything. An address means "
     "itself, localhost the loopback addresses."},
    {"network_rule", "cidrs", V::kTextList, S::kUsed, "Addresses and prefixes."},
    {"network_rule", "ports", V::kPortList, S::kUsed, "Ports and ranges: 443, \"8000-8099\"."},
    {"network_rule", "protocol", V::kWordList, S::kUsed, "tcp, udp or both; none = any.", kProtocols},
    {"network_rule", "verify_name", V::kBool, S::kUsed,
     "The name in the TLS handshake must be the one that was allowed."},
    {"network_rule", "decision", V::kWord, S::kUsed, "What happens.", kDecisions},
    {"network_rule", "message", V::kText, S::kUsed,
     "As in file rules; {{.RemoteAddr}} and {{.RemotePort}} are filled in."},
    {"network_rule", "timeout", V::kDuration, S::kUsed, "How long a question waits before it is a denial."},

    {"command_rule", "name", V::kText, S::kUsed, "Name of the rule, shown in verdicts."},
    {"command_rule", "description", V::kText, S::kUsed, "What the rule is for."},
    {"command_rule", "commands", V::kTextList, S::kUsed,
     "With a slash: glob on the resolved program's path. Without: its name, in directories that only root "
     "can write."},
    {"command_rule", "anywhere", V::kBool, S::kUsed, "Names match programs in any directory."},
    {"command_rule", "args_patterns", V::kTextList, S::kUsed,
     "RE2 expressions, searched in the arguments joined by single spaces; one must be found."},
    {"command_rule", "args", V::kTextList, S::kUsed, "Arguments that must all be there, exactly."},
    {"command_rule", "context", V::kContext, S::kUsed,
     "[direct], [nested], or {min_depth: N, max_depth: N}; direct = depth 0, -1 = no bound."},
    {"command_rule", "decision", V::kWord, S::kUsed, "What happens.", kDecisions},
    {"command_rule", "message", V::kText, S::kUsed, "As in file rules; {{.Args}} is filled in."},
    {"command_rule", "timeout", V::kDuration, S::kUsed, "How long a question waits before it is a denial."},
    {"command_rule", "redirect_to", V::kSection, S::kUsed,
     "With redirect: the program that is started in its place.", kRedirectTo},
    {"command_rule", "env_allow", V::kAny, S::kNotEnforced, "Environment of this command."},
    {"command_rule", "env_deny", V::kAny, S::kNotEnforced, "Environment of this command."},
    {"command_rule", "env_max_bytes", V::kAny, S::kNotEnforced, "Environment of this command."},
    {"command_rule", "env_max_keys", V::kAny, S::kNotEnforced, "Environment of this command."},
    {"command_rule", "env_block_iteration", V::kAny, S::kNotEnforced, "Environment of this command."},

    {"command_redirect", "command", V::kText, S::kUsed, "Program."},
    {"command_redirect", "args", V::kTextList, S::kUsed, "Arguments before the original ones."},
    {"command_redirect", "args_append", V::kTextList, S::kUsed, "Arguments after the original ones."},
    {"command_redirect", "environment", V::kTextMap, S::kUsed, "Variables to set."},

    {"unix_socket_rule", "name", V::kText, S::kUsed, "Name of the rule, shown in verdicts."},
    {"unix_socket_rule", "description", V::kText, S::kUsed, "What the rule is for."},
    {"unix_socket_rule", "paths", V::kTextList, S::kUsed,
     "Globs on the socket's path; abstract sockets are @name."},
    {"unix_socket_rule", "operations", V::kWordList, S::kUsed,
     "connect, bind, listen, sendto; none or \"*\" = all.", kUnixOperations},
    {"unix_socket_rule", "decision", V::kWord, S::kUsed, "What happens.", kDecisions},
    {"unix_socket_rule", "message", V::kText, S::kUsed, "As in file rules; {{.Path}} is filled in."},
    {"unix_socket_rule", "timeout", V::kDuration, S::kUsed,
     "How long a question waits before it is a denial."},

    {"signal_rule", "name", V::kText, S::kUsed, "Name of the rule, shown in verdicts."},
    {"signal_rule", "description", V::kText, S::kUsed, "What the rule is for."},
    {"signal_rule", "signals", V::kSignalList, S::kUsed,
     "Names, numbers, @all @fatal @job @reload @ignore; none = all."},
    {"signal_rule", "target", V::kSection, S::kUsed, "Who would get the signal.", kTarget},
    {"signal_rule", "decision", V::kWord, S::kUsed,
     "What happens; absorb: the sender sees success, nobody gets it.", kSignalDecisions},
    {"signal_rule", "fallback", V::kWord, S::kUsed, "Not used: a rule that nothing enforces is reported.",
     kSignalDecisions},
    {"signal_rule", "redirect_to", V::kText, S::kUsed,
     "With redirect: the signal that is sent in its place."},
    {"signal_rule", "message", V::kText, S::kUsed, "Told to the agent and shown in the timeline."},
    {"signal_rule", "timeout", V::kDuration, S::kUsed, "How long a question waits before it is a denial."},

    {"signal_target", "type", V::kWord, S::kUsed, "Relation of the target to the sender.", kTargets},
    {"signal_target", "pattern", V::kText, S::kUsed, "With process: glob on the target's name."},
    {"signal_target", "min", V::kInteger, S::kUsed, "With pid_range: the lowest pid."},
    {"signal_target", "max", V::kInteger, S::kUsed, "With pid_range: the highest pid."},

    {"resource_limits", "max_memory_mb", V::kInteger, S::kUsed, "Memory, MiB."},
    {"resource_limits", "memory_swap_max_mb", V::kInteger, S::kUsed, "Swap, MiB; 0 = none."},
    {"resource_limits", "cpu_quota_percent", V::kInteger, S::kUsed, "CPU, percent of one core."},
    {"resource_limits", "disk_read_bps_max", V::kInteger, S::kUsed, "Bytes read a second."},
    {"resource_limits", "disk_write_bps_max", V::kInteger, S::kUsed, "Bytes written a second."},
    {"resource_limits", "net_bandwidth_mbps", V::kInteger, S::kUsed, "Network, megabit a second."},
    {"resource_limits", "pids_max", V::kInteger, S::kUsed, "Processes and threads."},
    {"resource_limits", "command_timeout", V::kDuration, S::kUsed, "Longest run of one command of the API."},
    {"resource_limits", "session_timeout", V::kDuration, S::kUsed, "Longest life of the session."},
    {"resource_limits", "idle_timeout", V::kDuration, S::kUsed, "Longest time without an event."},

    {"env_policy", "allow", V::kTextList, S::kUsed,
     "Globs on names that pass; none = all but the built-in list of secrets and injection names."},
    {"env_policy", "deny", V::kTextList, S::kUsed, "Globs on names that never pass."},
    {"env_policy", "max_bytes", V::kInteger, S::kUsed, "Largest environment, bytes; more is an error."},
    {"env_policy", "max_keys", V::kInteger, S::kUsed, "Most variables; more is an error."},
    {"env_policy", "block_iteration", V::kAny, S::kNotEnforced, "Hiding the list of names."},

    {"audit", "log_allowed", V::kBool, S::kUsed, "Store what was allowed."},
    {"audit", "log_denied", V::kBool, S::kUsed, "Denials are always stored."},
    {"audit", "log_approved", V::kBool, S::kUsed, "Store what was asked and approved."},
    {"audit", "retention_days", V::kInteger, S::kUsed, "Days that events are kept at most."},
    {"audit", "include_stdout", V::kBool, S::kIgnored, "Output is not recorded."},
    {"audit", "include_stderr", V::kBool, S::kIgnored, "Output is not recorded."},
    {"audit", "include_file_content", V::kBool, S::kIgnored, "Contents are not recorded."},

    {"transparent_commands", "add", V::kTextList, S::kUsed, "Names of more wrappers."},
    {"transparent_commands", "remove", V::kTextList, S::kUsed,
     "Built-in wrappers that this file and those below it do not look through."},

    {"linux", "seccomp", V::kSection, S::kUsed, "System calls that are refused.", kSeccomp},
    {"linux", "fanotify", V::kSection, S::kUsed, "Files that may not be touched.", kFanotify},
    {"linux", "network", V::kSection, S::kUsed, "Destinations.", kLinuxNetwork},
    {"linux.seccomp", "enabled", V::kBool, S::kUsed, "false: the keys below do not count."},
    {"linux.seccomp", "deny_ptrace", V::kBool, S::kUsed, "ptrace, process_vm_readv, process_vm_writev."},
    {"linux.seccomp", "deny_bpf", V::kBool, S::kUsed, "The bpf system call."},
    {"linux.seccomp", "deny_kernel_modules", V::kBool, S::kUsed, "init_module, finit_module, delete_module."},
    {"linux.seccomp", "deny_mount_namespace_changes", V::kBool, S::kUsed,
     "mount, umount2, pivot_root, unshare, setns and their relatives."},
    {"linux.fanotify", "paths", V::kTextList, S::kUsed, "Globs: exact, dir/**, ~/dir/**, **/name."},
    {"linux.network", "mode", V::kWord, S::kUsed, "off, monitor (deny list only), allowlist, deny-all.",
     kModes},
    {"linux.network", "allow", V::kTextList, S::kUsed, "Addresses, prefixes, names."},
    {"linux.network", "deny", V::kTextList, S::kUsed,
     "Addresses, prefixes, names; without a mode this is a monitor's deny list."},

    // Files of `policy test`.
    {"table", "policy", V::kText, S::kUsed, "The base policy: a name, or a file relative to this one."},
    {"table", "layers", V::kSection, S::kUsed, "More layers.", kTableLayers},
    {"table", "variables", V::kTextMap, S::kUsed,
     "Variables of the session; HOME, USER and WORKSPACE have values of their own."},
    {"table", "approver", V::kBool, S::kUsed, "Is there somebody to ask? true unless set."},
    {"table", "rows", V::kSectionList, S::kUsed, "Acts and what must become of them.", kTableRow},
    {"table_layers", "floor", V::kTextList, S::kUsed, "Files of the floor."},
    {"table_layers", "user", V::kTextList, S::kUsed, "Files of the user."},
    {"table_layers", "session", V::kTextList, S::kUsed, "Further policies of the session."},
    {"table_row", "expect", V::kWord, S::kUsed, "What must happen to each act of the row.", kExpected},
    {"table_row", "rule", V::kText, S::kUsed, "The rule that must decide; \"default\" = none."},
    {"table_row", "exec", V::kTextList, S::kUsed,
     "Command lines, split like a shell does; a name without a slash is in /usr/bin."},
    {"table_row", "depth", V::kInteger, S::kUsed, "Of exec: how deep in the session."},
    {"table_row", "open", V::kTextList, S::kUsed, "Paths opened for reading."},
    {"table_row", "edit", V::kTextList, S::kUsed, "Paths opened for reading and writing."},
    {"table_row", "read", V::kTextList, S::kUsed, "Paths."},
    {"table_row", "stat", V::kTextList, S::kUsed, "Paths."},
    {"table_row", "list", V::kTextList, S::kUsed, "Paths."},
    {"table_row", "readlink", V::kTextList, S::kUsed, "Paths."},
    {"table_row", "access", V::kTextList, S::kUsed, "Paths."},
    {"table_row", "write", V::kTextList, S::kUsed, "Paths."},
    {"table_row", "create", V::kTextList, S::kUsed, "Paths."},
    {"table_row", "mkdir", V::kTextList, S::kUsed, "Paths."},
    {"table_row", "chmod", V::kTextList, S::kUsed, "Paths."},
    {"table_row", "chown", V::kTextList, S::kUsed, "Paths."},
    {"table_row", "rename", V::kTextList, S::kUsed, "\"OLD -> NEW\"."},
    {"table_row", "delete", V::kTextList, S::kUsed, "Paths."},
    {"table_row", "rmdir", V::kTextList, S::kUsed, "Paths."},
    {"table_row", "link", V::kTextList, S::kUsed, "\"OLD -> NEW\"."},
    {"table_row", "symlink", V::kTextList, S::kUsed, "Paths of the links themselves."},
    {"table_row", "mknod", V::kTextList, S::kUsed, "Paths."},
    {"table_row", "connect", V::kTextList, S::kUsed,
     "\"ADDRESS:PORT\", \"NAME:PORT\", with \" udp\" for datagrams; \"NAME=ADDRESS:PORT\" for both."},
    {"table_row", "query", V::kTextList, S::kUsed, "Names asked for."},
    {"table_row", "unix", V::kTextList, S::kUsed, "Sockets connected to."},
    {"table_row", "bind_unix", V::kTextList, S::kUsed, "Sockets bound."},
    {"table_row", "signal", V::kTextList, S::kUsed, "\"TERM external\"."},
    {"table_row", "env", V::kTextList, S::kUsed, "Variables: allow or deny."},
};

}  // namespace

absl::Span<const Key> KeyTable() { return kTable; }

const Key* FindKey(absl::string_view section, absl::string_view name) {
  static const auto* index = [] {
    auto* map = new absl::flat_hash_map<std::pair<absl::string_view, absl::string_view>, const Key*>();
    for (const Key& key : kTable) map->emplace(std::make_pair(key.section, key.name), &key);
    return map;
  }();
  const auto found = index->find({section, name});
  if (found != index->end()) return found->second;
  return section.empty() && name.substr(0, 3) == "db_" ? index->at({"", "db_rules"}) : nullptr;
}

}  // namespace agentmon::policy
