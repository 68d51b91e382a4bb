#include "common/policy/builtin.h"

#include "absl/strings/str_cat.h"
#include "common/policy/glob.h"

namespace agentmon::policy {
namespace {

constexpr char kNameServices[] = "name-services";

Rule FileRule(absl::string_view name, Decision decision, uint32_t operations, std::vector<std::string> paths,
              absl::string_view message) {
  Rule rule;
  rule.name = std::string(name);
  rule.decision = decision;
  rule.operations = operations;
  rule.message = std::string(message);
  for (std::string& path : paths) rule.paths.push_back({std::move(path), {}});
  return rule;
}

std::vector<std::string> Trees(const std::vector<std::string>& directories) {
  std::vector<std::string> out;
  for (const std::string& directory : directories) out.push_back(absl::StrCat(EscapeGlob(directory), "/**"));
  return out;
}

void AddCanaries(const BuiltinPaths& paths, std::vector<Rule>& rules) {
  constexpr absl::string_view kWhy = "an object of agentmon's self-test";
  rules.push_back(FileRule("canary-files", Decision::kDeny, kAllFileOps, Trees(paths.canaries), kWhy));
  Rule exec;
  exec.kind = RuleKind::kCommand;
  exec.name = "canary-programs";
  exec.message = std::string(kWhy);
  for (std::string& tree : Trees(paths.canaries)) exec.commands.push_back({std::move(tree), {}});
  if (!exec.commands.empty()) rules.push_back(std::move(exec));
  for (const auto& [address, port] : paths.canary_addresses) {
    Rule net;
    net.kind = RuleKind::kNetwork;
    net.name = "canary-addresses";
    net.message = std::string(kWhy);
    net.cidrs.push_back({address, {}});
    net.ports.push_back({port, port});
    rules.push_back(std::move(net));
  }
}

void AddSockets(const BuiltinPaths& paths, std::vector<Rule>& rules) {
  Rule allowed = FileRule("agentmon-socket", Decision::kAllow, kUnixConnect, {}, "");
  for (const std::string& path : paths.agent_sockets) allowed.paths.push_back({EscapeGlob(path), {}});
  Rule hidden =
      FileRule("agentmon-sockets", Decision::kDeny, kAllUnixOps, Trees(paths.hidden), "sockets of agentmon");
  for (std::string& tree : Trees(paths.canaries)) hidden.paths.push_back({std::move(tree), {}});
  for (Rule* rule : {&allowed, &hidden}) {
    rule->kind = RuleKind::kUnix;
    rules.push_back(std::move(*rule));
  }
}

// systemd-resolved, nscd and avahi. Users and groups, too, come from nscd's socket: libc goes on without it.
// sssd and nslcd are left out, since nothing else knows the users that they do.
void AddNameServices(std::vector<Rule>& rules) {
  Rule closed =
      FileRule(kNameServices, Decision::kDeny, kAllUnixOps,
               {"/run/systemd/resolve/io.systemd.Resolve*", "/run/nscd/socket", "/run/avahi-daemon/socket"},
               "names are looked up by DNS in this session");
  closed.kind = RuleKind::kUnix;
  rules.push_back(std::move(closed));
}

}  // namespace

std::shared_ptr<const Document> BuiltinDocument(const BuiltinPaths& paths, bool judges_names) {
  auto document = std::make_shared<Document>();
  document->file = document->name = kBuiltinFile;
  document->version = 1;
  std::vector<Rule>& rules = document->rules;
  Rule socket_files = FileRule("agentmon-socket-file", Decision::kAllow, kStat | kAccess, {}, "");
  for (const std::string& path : paths.agent_sockets) socket_files.paths.push_back({EscapeGlob(path), {}});
  rules.push_back(std::move(socket_files));
  AddCanaries(paths, rules);
  rules.push_back(
      FileRule("agentmon-state", Decision::kDeny, kAllFileOps, Trees(paths.hidden), "files of agentmon"));
  rules.push_back(
      FileRule("agentmon-files", Decision::kDeny, kWriteOps, Trees(paths.read_only), "files of agentmon"));
  // Creating or deleting nodes is not among these: only the nodes themselves are safe.
  rules.push_back(FileRule("safe-devices", Decision::kAllow, kReadOps | kWrite,
                           {"/dev/{null,zero,full,random,urandom,tty,ptmx}", "/dev/fd/**", "/dev/pts/ptmx",
                            "/dev/std{in,out,err}"},
                           ""));
  rules.push_back(FileRule("loader-floor", Decision::kAllow, kReadOps,
                           {"/etc/ld.so.{cache,preload,conf}", "/etc/ld.so.conf.d/**",
                            "/{,usr/}lib{,32,64,x32}/**/ld-{linux,musl}*", "/{,usr/}lib{,32,64,x32}/**/*.so",
                            "/{,usr/}lib{,32,64,x32}/**/*.so.*"},
                           ""));
  AddSockets(paths, rules);
  if (judges_names) AddNameServices(rules);
  return document;
}

bool ClosesNameServices(const Document& builtin) {
  return !builtin.rules.empty() && builtin.rules.back().name == kNameServices;
}

std::shared_ptr<const Document> EmptyBase() {
  auto document = std::make_shared<Document>();
  document->file = document->name = "no base policy";
  document->version = 1;
  return document;
}

BuiltinPaths InstalledPaths(absl::string_view state_dir, absl::string_view runtime_dir,
                            absl::string_view home) {
  BuiltinPaths out;
  out.hidden = {std::string(state_dir), std::string(runtime_dir)};
  out.read_only = {"/etc/agentmon",         "/usr/share/agentmon", "/usr/lib/agentmon",
                   "/usr/libexec/agentmon", "/usr/bin/agentmon",   "/usr/bin/agentmon-shim",
                   "/usr/sbin/agentmond"};
  if (!home.empty()) out.read_only.push_back(absl::StrCat(home, "/.config/agentmon"));
  out.agent_sockets = {absl::StrCat(runtime_dir, "/agentmond.sock")};
  out.canaries = {absl::StrCat(runtime_dir, "/canary")};
  out.canary_addresses = {{kCanaryAddress, kCanaryPort}};
  return out;
}

}  // namespace agentmon::policy
