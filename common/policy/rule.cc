#include "common/policy/rule.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace agentmon::policy {
namespace {

constexpr std::array<absl::string_view, kFileOps> kFileOpNames = {
    "open",  "read",  "stat",   "list",   "readlink", "access", "write",   "create", "mkdir",
    "chmod", "chown", "rename", "delete", "rmdir",    "link",   "symlink", "mknod"};
constexpr std::array<absl::string_view, 4> kUnixOpNames = {"connect", "bind", "listen", "sendto"};

template <size_t N>
std::string Join(const std::array<absl::string_view, N>& names, uint32_t mask) {
  if (mask == (1u << N) - 1) return "*";
  std::string out;
  for (size_t i = 0; i < N; ++i) {
    if (mask & (1u << i)) absl::StrAppend(&out, out.empty() ? "" : ",", names[i]);
  }
  return out;
}

template <size_t N>
uint32_t Parse(const std::array<absl::string_view, N>& names, absl::string_view word) {
  if (word == "*") return (1u << N) - 1;
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == word) return 1u << i;
  }
  return 0;
}

}  // namespace

int Strictness(Decision decision) {
  switch (decision) {
    case Decision::kNone:
      return 0;
    case Decision::kAllow:
      return 1;
    case Decision::kAudit:
      return 2;
    case Decision::kRedirect:
    case Decision::kSoftDelete:
      return 3;
    case Decision::kAsk:
      return 4;
    case Decision::kAbsorb:
      return 5;
    case Decision::kDeny:
      return 6;
  }
  return 6;
}

absl::string_view DecisionName(Decision decision) {
  switch (decision) {
    case Decision::kNone:
      return "none";
    case Decision::kAllow:
      return "allow";
    case Decision::kAudit:
      return "audit";
    case Decision::kRedirect:
      return "redirect";
    case Decision::kSoftDelete:
      return "soft_delete";
    case Decision::kAsk:
      return "ask";
    case Decision::kAbsorb:
      return "absorb";
    case Decision::kDeny:
      return "deny";
  }
  return "deny";
}

std::optional<Decision> ParseDecision(absl::string_view word) {
  const std::string lower = absl::AsciiStrToLower(word);
  if (lower == "allow") return Decision::kAllow;
  if (lower == "deny") return Decision::kDeny;
  if (lower == "approve" || lower == "ask") return Decision::kAsk;
  if (lower == "audit" || lower == "observe" || lower == "warn") return Decision::kAudit;
  if (lower == "redirect") return Decision::kRedirect;
  if (lower == "soft_delete") return Decision::kSoftDelete;
  if (lower == "absorb") return Decision::kAbsorb;
  if (lower == "speculate") return Decision::kDeny;  // no backend can take an act back
  return std::nullopt;
}

absl::string_view RuleKindName(RuleKind kind) {
  constexpr absl::string_view kNames[] = {"file", "network", "command", "unix_socket", "signal"};
  return kNames[static_cast<size_t>(kind)];
}

absl::string_view PostureName(Posture posture) {
  constexpr absl::string_view kNames[] = {"", "monitor", "warn", "enforce", "isolate"};
  return kNames[static_cast<size_t>(posture)];
}

std::optional<Posture> ParsePosture(absl::string_view word) {
  const std::string lower = absl::AsciiStrToLower(word);
  for (const Posture p : {Posture::kMonitor, Posture::kWarn, Posture::kEnforce, Posture::kIsolate}) {
    if (PostureName(p) == lower) return p;
  }
  return std::nullopt;
}

uint32_t ParseFileOp(absl::string_view word) {
  const std::string lower = absl::AsciiStrToLower(word);
  if (lower == "truncate" || lower == "xattr") return kWrite;
  return Parse(kFileOpNames, lower);
}

uint32_t ParseUnixOp(absl::string_view word) {
  const std::string lower = absl::AsciiStrToLower(word);
  if (lower == "sendmsg") return kUnixSendto;
  return Parse(kUnixOpNames, lower);
}

std::string FileOpNames(uint32_t mask) { return Join(kFileOpNames, mask); }
std::string UnixOpNames(uint32_t mask) { return Join(kUnixOpNames, mask); }

absl::string_view DefaultName(DefaultFor what) {
  constexpr absl::string_view kNames[] = {"command", "file_read",   "file_write",
                                          "network", "unix_socket", "signal"};
  return kNames[static_cast<size_t>(what)];
}

}  // namespace agentmon::policy
