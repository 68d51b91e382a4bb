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
  return IsOption(arg) && (absl::string_view("paAPuUw").find(arg[1]) != absl::string_view::npos ||
                           absl::StartsWith(arg, "--user") || absl::StartsWith(arg, "--proxy-user") ||
                           absl::StartsWith(arg, "--auth"));
}

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

  // --flag=VALUE and NAME=VALUE: the value is all that follows, also with spaces.
  bool Assigned(std::string* arg) {
    const size_t equals = arg->find('=');
    if (equals == std::string::npos) return false;
    const absl::string_view name = absl::string_view(*arg).substr(0, equals);
    const absl::string_view value = absl::string_view(*arg).substr(equals + 1);
    const bool secret =
        IsOption(name) ? IsSecretFlag(name) && IsFlagValue(name, value) : IsSecretAssignment(name, value);
    if (secret) {
      Take(SecretOption::kWhole, equals + 1, arg);
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
    const SecretOption how = OptionOf(command_, absl::string_view(*arg).substr(0, 2), true);
    if (how == SecretOption::kNone) return false;
    Take(how, 2, arg);
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
  bool found = false;
  for (const RedactionRule& rule : rules) found = ApplyRule(rule, text) || found;
  return found;
}

}  // namespace

bool Redactor::RedactText(std::string* text) { return MaySecret(*text) && ApplyAll(TextRules(), text); }

bool Redactor::RedactUrl(std::string* text) {
  return absl::StrContains(*text, "://") && ApplyAll(UrlRules(), text);
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
  return (suspicious || command) && ArgvRedactor(exec).Run();
}

bool Redactor::Redact(Event* event) const {
  bool found = false;
  switch (event->detail_case()) {
    case Event::kExec:
      found = RedactArgv(event->mutable_exec());
      found = RedactUrl(event->mutable_exec()->mutable_filename()) || found;
      found = RedactUrl(event->mutable_exec()->mutable_cwd()) || found;
      break;
    case Event::kFile:
      found = RedactUrl(event->mutable_file()->mutable_path());
      found = RedactUrl(event->mutable_file()->mutable_new_path()) || found;
      break;
    case Event::kUnix:
      found = RedactUrl(event->mutable_unix()->mutable_path());
      break;
    default:
      break;
  }
  if (found) event->set_redacted(true);
  return found;
}

}  // namespace agentmon
