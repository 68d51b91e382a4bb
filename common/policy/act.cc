#include "common/policy/act.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/policy/lookthrough.h"
#include "common/policy/signals.h"

namespace agentmon::policy {
namespace {

absl::StatusOr<std::string> Expanded(absl::string_view text, const Variables& variables) {
  ExpandResult result = Expand(text, variables, true, Escape::kNone);
  if (!result.error.empty()) return absl::InvalidArgumentError(absl::StrCat(text, ": ", result.error));
  return std::move(result.value);
}

absl::Status ParseExec(absl::string_view text, Act& act) {
  const std::vector<Words> commands = SplitScript(text);
  if (commands.size() != 1) return absl::InvalidArgumentError(absl::StrCat("not one command: ", text));
  act.words = commands[0];
  if (absl::StartsWith(act.words[0], "./") || absl::StartsWith(act.words[0], "../")) {
    return absl::InvalidArgumentError(
        absl::StrCat("a relative program: ", act.words[0], "; write its full path"));
  }
  act.path = absl::StrContains(act.words[0], '/') ? act.words[0] : absl::StrCat("/usr/bin/", act.words[0]);
  act.argv.assign(act.words.begin(), act.words.end());
  act.subject = ExecSubject(act.path, act.argv);
  return absl::OkStatus();
}

absl::Status ParseConnect(absl::string_view text, Act& act) {
  uint8_t protocol = kTcp;
  if (absl::ConsumeSuffix(&text, " udp"))
    protocol = kUdp;
  else
    absl::ConsumeSuffix(&text, " tcp");
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("not HOST:PORT: ", text));
  }
  absl::string_view host = text.substr(0, colon);
  std::optional<Address> address;
  if (const size_t equals = host.find('='); equals != absl::string_view::npos) {
    act.name = std::string(host.substr(0, equals));
    address = ParseAddress(host.substr(equals + 1));
    if (!address)
      return absl::InvalidArgumentError(absl::StrCat("not an address: ", host.substr(equals + 1)));
  } else if (address = ParseAddress(host); !address) {
    act.name = std::string(host);
    // Some address of the documentation range; of this host's own name everybody knows what it leads to.
    address = ParseAddress(IsLocalhost(host) ? "127.0.0.1" : "198.51.100.1");
  }
  act.subject = ConnectSubject(*address, static_cast<uint16_t>(port), protocol, act.name);
  return absl::OkStatus();
}

absl::Status ParseSignal(absl::string_view text, Act& act) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  const uint64_t bits = words.empty() ? 0 : ParseSignals(words[0]);
  int number = 0;
  for (int n = 1; n <= 64; ++n) {
    if (SignalBit(n) == bits) number = n;
  }
  if (number == 0) return absl::InvalidArgumentError(absl::StrCat("not a signal: ", text));
  uint32_t target = 0;
  for (size_t i = 1; i < words.size(); ++i) {
    const uint32_t bit = ParseSignalTarget(words[i]);
    if (bit == 0) return absl::InvalidArgumentError(absl::StrCat("not a target: ", words[i]));
    target |= bit;
  }
  act.subject = SignalSubject(number, target);
  return absl::OkStatus();
}

absl::Status ParseFile(absl::string_view verb, absl::string_view text, const Variables& variables, Act& act) {
  const bool two = verb == "rename" || verb == "link";
  const std::vector<absl::string_view> names = absl::StrSplit(text, absl::MaxSplits(" -> ", two ? 1 : 0));
  if (two && names.size() != 2)
    return absl::InvalidArgumentError(absl::StrCat(verb, " needs \"OLD -> NEW\": ", text));
  auto path = Expanded(names[0], variables);
  if (!path.ok()) return path.status();
  act.path = *path;
  if (two) {
    auto new_path = Expanded(names[1], variables);
    if (!new_path.ok()) return new_path.status();
    act.new_path = *new_path;
  }
  const uint32_t operations = verb == "open"   ? kOpen | kRead
                              : verb == "edit" ? kOpen | kRead | kWrite
                                               : ParseFileOp(verb);
  act.subject = FileSubject(operations, act.path, act.new_path);
  if (!absl::StartsWith(act.path, "/"))
    return absl::InvalidArgumentError(absl::StrCat("not an absolute path: ", act.path));
  return absl::OkStatus();
}

}  // namespace

std::vector<absl::string_view> ActVerbs() {
  return {"exec",   "open",    "edit",  "read",  "stat",      "list",   "readlink", "access", "write",
          "create", "mkdir",   "chmod", "chown", "rename",    "delete", "rmdir",    "link",   "symlink",
          "mknod",  "connect", "query", "unix",  "bind_unix", "signal", "env"};
}

absl::StatusOr<std::unique_ptr<Act>> ParseAct(absl::string_view verb, absl::string_view text,
                                              const Variables& variables) {
  auto act = std::make_unique<Act>();
  act->verb = std::string(verb);
  act->text = std::string(text);
  absl::Status status;
  if (verb == "exec") {
    status = ParseExec(text, *act);
  } else if (verb == "connect") {
    status = ParseConnect(text, *act);
  } else if (verb == "query" || verb == "dns") {
    act->name = std::string(text);
    act->subject = QuerySubject(act->name);
  } else if (verb == "unix" || verb == "bind_unix") {
    auto path = Expanded(text, variables);
    if (!path.ok()) return path.status();
    act->path = *path;
    act->subject = UnixSubject(verb == "unix" ? kUnixConnect : kUnixBind, act->path);
  } else if (verb == "signal") {
    status = ParseSignal(text, *act);
  } else if (verb == "env") {
    act->env = true;
  } else if (verb == "open" || verb == "edit" || (verb != "*" && ParseFileOp(verb) != 0)) {
    status = ParseFile(verb, text, variables, *act);
  } else {
    std::vector<absl::string_view> verbs = ActVerbs();
    return absl::InvalidArgumentError(
        absl::StrCat("unknown act \"", verb, "\"; one of ", absl::StrJoin(verbs, ", ")));
  }
  if (!status.ok()) return status;
  return act;
}

}  // namespace agentmon::policy
