#include "common/policy/variables.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/policy/glob.h"

namespace agentmon::policy {
namespace {

constexpr int kDeepest = 8;

bool IsName(absl::string_view name) {
  if (name.empty() || absl::ascii_isdigit(name[0])) return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(c) && c != '_') return false;
  }
  return true;
}

class Expander {
 public:
  Expander(const Variables* variables, bool session_visible, Escape escape, ExpandResult& result,
           std::vector<std::string>* names)
      : variables_(variables), session_(session_visible), escape_(escape), result_(result), names_(names) {}

  std::string Text(absl::string_view text, size_t base, int depth) {
    if (depth > kDeepest) return Fail("defaults nested deeper than 8 levels", base);
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '$' || i + 1 == text.size() || text[i + 1] != '{') {
        out.push_back(text[i]);
        continue;
      }
      const size_t close = Close(text, i + 2);
      if (close == absl::string_view::npos) return Fail("${ without }", base + i);
      out += Reference(text.substr(i + 2, close - i - 2), base + i + 2, depth);
      i = close;
    }
    return out;
  }

  std::string Tilde(absl::string_view text) {
    if (!absl::StartsWith(text, "~")) return Text(text, 0, 0);
    if (text.size() > 1 && text[1] != '/')
      return Fail("another user's home (~name) is not looked up; write its path", 0);
    return absl::StrCat(Reference("HOME", 0, 0), Text(text.substr(1), 1, 0));
  }

 private:
  static size_t Close(absl::string_view text, size_t i) {
    int depth = 1;
    for (; i < text.size(); ++i) {
      if (text[i] == '$' && i + 1 < text.size() && text[i + 1] == '{') ++depth;
      if (text[i] == '}' && --depth == 0) return i;
    }
    return absl::string_view::npos;
  }

  std::string Reference(absl::string_view inner, size_t base, int depth) {
    const size_t sign = inner.find(":-");
    const absl::string_view name = inner.substr(0, sign);
    if (!IsName(name)) return Fail("not a variable's name: letters, digits and _", base);
    const bool has_default = sign != absl::string_view::npos;
    if (names_ != nullptr) {
      if (!has_default) names_->emplace_back(name);
      if (has_default) Text(inner.substr(sign + 2), base + sign + 2, depth + 1);
      return "x";
    }
    if (const std::string* value = Find(name)) {
      return escape_ == Escape::kGlob ? EscapeGlob(Trimmed(*value)) : std::string(Trimmed(*value));
    }
    if (has_default) return Text(inner.substr(sign + 2), base + sign + 2, depth + 1);
    result_.undefined = std::string(name);
    return Fail(absl::StrCat("the session has no variable ", name), base);
  }

  // An empty value counts as none, as in ${V:-default} of a shell.
  const std::string* Find(absl::string_view name) const {
    absl::string_view key =
        name == "PROJECT_ROOT" && !variables_->derived.contains(name) ? "WORKSPACE" : name;
    if (const auto found = variables_->derived.find(key); found != variables_->derived.end()) {
      return found->second.empty() ? nullptr : &found->second;
    }
    if (!session_) return nullptr;
    const auto found = variables_->session.find(key);
    return found == variables_->session.end() || found->second.empty() ? nullptr : &found->second;
  }

  static absl::string_view Trimmed(absl::string_view value) {
    while (value.size() > 1 && value.back() == '/') value.remove_suffix(1);
    return value;
  }

  std::string Fail(absl::string_view message, size_t offset) {
    if (result_.error.empty()) {
      result_.error = std::string(message);
      result_.offset = offset;
    }
    return "";
  }

  const Variables* variables_;
  const bool session_;
  const Escape escape_;
  ExpandResult& result_;
  std::vector<std::string>* names_;
};

}  // namespace

ExpandResult Expand(absl::string_view text, const Variables& variables, bool session_visible, Escape escape) {
  ExpandResult result;
  result.value = Expander(&variables, session_visible, escape, result, nullptr).Tilde(text);
  return result;
}

std::vector<std::string> VariableNames(absl::string_view text, ExpandResult& error) {
  std::vector<std::string> names;
  Expander(nullptr, false, Escape::kNone, error, &names).Tilde(text);
  return names;
}

}  // namespace agentmon::policy
