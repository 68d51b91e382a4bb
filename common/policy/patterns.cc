#include "common/policy/patterns.h"

#include <re2/re2.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace agentmon::policy {
namespace {

constexpr int64_t kExpressionMemory = 1 << 20;

bool Fail(GlobError& error, absl::string_view message, size_t offset = 0) {
  error = {std::string(message), offset};
  return false;
}

// Labels that are not ASCII in punycode; they may hold no wildcard.
bool NormalizePattern(absl::string_view text, std::string& out, GlobError& error) {
  if (absl::EndsWith(text, ".") && text.size() > 1) text.remove_suffix(1);
  std::vector<std::string> labels;
  size_t offset = 0;
  for (const absl::string_view label : absl::StrSplit(text, '.')) {
    if (label.empty()) return Fail(error, "an empty label", offset);
    const bool wild = label.find_first_of("*?[]{}\\,") != absl::string_view::npos;
    const std::optional<std::string> ascii = LabelToAscii(label);
    if (!ascii) return Fail(error, "not a host name", offset);
    if (wild && absl::StartsWith(*ascii, "xn--") && !absl::StartsWith(label, "xn--")) {
      return Fail(error, "wildcards and letters beyond ASCII in one label", offset);
    }
    labels.push_back(*ascii);
    offset += label.size() + 1;
  }
  out = absl::StrJoin(labels, ".");
  return true;
}

}  // namespace

bool ParsePathPattern(absl::string_view text, RuleKind kind, std::vector<Glob>& out, GlobError& error) {
  const bool unix_name = kind == RuleKind::kUnix && (absl::StartsWith(text, "@") || text == "*");
  const bool absolute =
      absl::StartsWith(text, "/") || absl::StartsWith(text, "**") || absl::StartsWith(text, "{/");
  if (!unix_name && !absolute) {
    return Fail(error, "a relative path: rules need absolute ones; **/NAME means everywhere");
  }
  // Paths of files all start with a slash, so that these two are one.
  return Glob::Parse(text == "**" && kind != RuleKind::kUnix ? "/**" : text, GlobKind::kPath, out, error);
}

bool ParseCommandToken(absl::string_view text, bool& is_path, std::vector<Glob>& out, GlobError& error) {
  is_path = absl::StrContains(text, '/');
  if (is_path) return ParsePathPattern(text, RuleKind::kCommand, out, error);
  return Glob::Parse(absl::AsciiStrToLower(text), GlobKind::kWord, out, error);
}

bool ParseDomainPattern(absl::string_view text, DomainPattern& out, GlobError& error) {
  if (text == "**") {
    out.any = true;
    return true;
  }
  if (const size_t scheme = text.find("://"); scheme != absl::string_view::npos) {
    return Fail(error, "a URL: write the host name only", scheme);
  }
  if (const std::optional<Address> address = ParseAddress(text)) {
    out.addresses.push_back({*address, address->bits()});
    return true;
  }
  if (const size_t bad = text.find_first_of("/: \t"); bad != absl::string_view::npos) {
    return Fail(error,
                text[bad] == ':'   ? "a port belongs into ports:"
                : text[bad] == '/' ? "a prefix belongs into cidrs:"
                                   : "not a host name",
                bad);
  }
  std::string normal;
  if (!NormalizePattern(text, normal, error)) return false;
  if (normal == "localhost") {
    std::string unused;
    out.addresses.push_back(*ParsePrefix("127.0.0.0/8", unused));
    out.addresses.push_back(*ParsePrefix("::1", unused));
  }
  return Glob::Parse(normal, GlobKind::kDomain, out.names, error);
}

std::shared_ptr<const re2::RE2> CompileExpression(absl::string_view text, std::string& error) {
  re2::RE2::Options options;
  options.set_encoding(re2::RE2::Options::EncodingLatin1);
  options.set_dot_nl(true);
  options.set_log_errors(false);
  options.set_max_mem(kExpressionMemory);
  auto expression = std::make_shared<const re2::RE2>(re2::StringPiece(text.data(), text.size()), options);
  if (expression->ok()) return expression;
  error = expression->error();
  return nullptr;
}

}  // namespace agentmon::policy
