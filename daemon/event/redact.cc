#include "daemon/event/redact.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "daemon/event/redact_rules.h"

namespace agentmon {
namespace {

absl::string_view BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

bool IsOption(absl::string_view arg) { return arg.size() >= 2 && arg[0] == '-'; }

// Short options whose meaning depends on the command.
bool MayBeCommandsOption(absl::string_view arg) {
  if (!IsOption(arg)) return false;
  if (arg[1] != '-') return arg.find_first_of("paAPuUw") != absl::string_view::npos;
  return absl::StartsWith(arg, "--user") || absl::StartsWith(arg, "--proxy-user") ||
         absl::StartsWith(arg, "--auth");
}

// One replacement may make another one find more.
constexpr int kRounds = 8;

// What follows from one argument to the next.
class ArgvRedactor {
 public:
  explicit ArgvRedactor(v1::Exec* exec) : exec_(exec) {
    if (exec->argv_size() > 0) command_ = std::string(BaseName(exec->argv(0)));
    for (const std::string& arg : exec->argv()) login_ = login_ || arg == "login";
  }

  bool Run() {
    for (int i = 1; i < exec_->argv_size(); ++i) One(exec_->mutable_argv(i));
    if (exec_->argv_size() > 0) found_ = Redactor::RedactText(exec_->mutable_argv(0)) || found_;
    return found_;
  }

 private:
  void One(std::string* arg) {
    const SecretOption waiting = waiting_;
    waiting_ = SecretOption::kNone;
    if (waiting != SecretOption::kNone && IsFlagValue(flag_, *arg)) return Take(waiting, 0, arg);
    if (!IsOption(*arg)) {
      const absl::string_view base = BaseName(*arg);
      if (HasSecretOptions(base) || command_ == "sshpass") command_ = std::string(base);
    }
    if (Assigned(arg) || (IsOption(*arg) && Option(arg))) return;
    found_ = Redactor::RedactText(arg) || found_;
  }

  // --flag=VALUE, --flag:VALUE and NAME=VALUE: the value is all that follows, also with spaces. After
  // NAME=VALUE a command or the next pair of a form may follow.
  bool Assigned(std::string* arg) {
    const size_t equals = arg->find('=');
    if (const size_t colon = arg->find(':'); colon < equals && IsOption(*arg)) {
      const absl::string_view flag = absl::string_view(*arg).substr(0, colon);
      if (IsSecretFlag(flag) && IsFlagValue(flag, absl::string_view(*arg).substr(colon + 1))) {
        Take(SecretOption::kWhole, colon + 1, arg);
        return true;
      }
    }
    if (equals == std::string::npos) return false;
    const absl::string_view name = absl::string_view(*arg).substr(0, equals);
    const absl::string_view value = absl::string_view(*arg).substr(equals + 1);
    const bool secret =
        IsOption(name) ? IsSecretFlag(name) && IsFlagValue(name, value) : IsSecretAssignment(name, value);
    if (secret && IsOption(name)) {
      Take(SecretOption::kWhole, equals + 1, arg);
      return true;
    }
    if (secret) {
      std::string tail(value.substr(WithoutTail(value).size()));
      arg->resize(arg->size() - tail.size());
      Take(SecretOption::kWhole, equals + 1, arg);
      found_ = Redactor::RedactText(&tail) || found_;
      *arg += tail;
      return true;
    }
    if (!IsOption(name)) return false;
    const SecretOption how = OptionOf(command_, name, true);
    if (how == SecretOption::kNone) return false;
    Take(how, equals + 1, arg);
    return true;
  }

  bool Option(std::string* arg) {
    if (IsSecretFlag(*arg)) {
      Wait(SecretOption::kWhole, *arg);
      return true;
    }
    if (const SecretOption how = OptionOf(command_, *arg, false); how != SecretOption::kNone) {
      Wait(how, *arg);
      return true;
    }
    if (arg->size() <= 2 || (*arg)[1] == '-') return false;
    size_t value_at = 2;
    SecretOption how = OptionOf(command_, absl::string_view(*arg).substr(0, 2), true);
    if (how == SecretOption::kNone) how = LastOfCluster(command_, *arg, &value_at);
    if (how == SecretOption::kNone) return false;
    value_at == 0 ? Wait(how, *arg) : Take(how, value_at, arg);
    return true;
  }

  void Wait(SecretOption how, const std::string& flag) {
    waiting_ = how;
    flag_ = flag;
  }

  // Replaces what of the value, which begins at `from`, is secret.
  void Take(SecretOption how, size_t from, std::string* arg) {
    if (how == SecretOption::kWholeAtLogin && !login_) return;
    if (how == SecretOption::kAfterColon || how == SecretOption::kAfterPercent) {
      const size_t separator = arg->find(how == SecretOption::kAfterColon ? ':' : '%', from);
      if (separator == std::string::npos) return;
      from = separator + 1;
    }
    if (from >= arg->size() || absl::string_view(*arg).substr(from) == Redactor::kMark) return;
    arg->replace(from, std::string::npos, Redactor::kMark.data(), Redactor::kMark.size());
    found_ = true;
  }

  v1::Exec* exec_;
  std::string command_;
  std::string flag_;
  SecretOption waiting_ = SecretOption::kNone;
  bool login_ = false;
  bool found_ = false;
};

bool ApplyAll(const std::vector<RedactionRule>& rules, std::string* text) {
  bool found = false, again = true;
  for (int round = 0; again && round < kRounds; ++round) {
    again = false;
    for (const RedactionRule& rule : rules) again = ApplyRule(rule, text) || again;
    found = found || again;
  }
  return found;
}

}  // namespace

bool Redactor::RedactText(std::string* text) { return MaySecret(*text) && ApplyAll(TextRules(), text); }

bool Redactor::RedactNamed(absl::string_view name, std::string* value) {
  if (IsSecretAssignment(name, *value)) {
    if (*value == kMark) return false;
    *value = std::string(kMark);
    return true;
  }
  return RedactText(value);
}

bool Redactor::RedactPath(std::string* path) {
  const bool may_be_url = absl::StrContains(*path, ":/") && absl::StrContains(*path, '@');
  return (may_be_url || MaySecret(*path)) && ApplyAll(PathRules(), path);
}

bool Redactor::RedactArgv(v1::Exec* exec) {
  bool suspicious = false, command = false, option = false;
  for (const std::string& arg : exec->argv()) {
    suspicious =
        suspicious || MaySecret(arg) ||
        (IsOption(arg) && (absl::EndsWithIgnoreCase(arg, "key") || absl::EndsWithIgnoreCase(arg, "pwd")));
    option = option || MayBeCommandsOption(arg);
  }
  for (int i = 0; option && !suspicious && !command && i < exec->argv_size(); ++i) {
    command = HasSecretOptions(BaseName(exec->argv(i)));
  }
  if (!suspicious && !command) return false;
  bool found = false;
  for (int round = 0; round < kRounds && ArgvRedactor(exec).Run(); ++round) found = true;
  return found;
}

bool Redactor::Redact(Event* event) const {
  bool found = false;
  switch (event->detail_case()) {
    case Event::kExec:
      found = RedactArgv(event->mutable_exec());
      found = RedactPath(event->mutable_exec()->mutable_filename()) || found;
      found = RedactPath(event->mutable_exec()->mutable_cwd()) || found;
      break;
    case Event::kFile:
      found = RedactPath(event->mutable_file()->mutable_path());
      found = RedactPath(event->mutable_file()->mutable_new_path()) || found;
      break;
    case Event::kUnix:
      found = RedactPath(event->mutable_unix()->mutable_path());
      break;
    case Event::kHttp:
      found = RedactPath(event->mutable_http()->mutable_path());
      break;
    default:
      break;
  }
  if (found) event->set_redacted(true);
  return found;
}

}  // namespace agentmon
