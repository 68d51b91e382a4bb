#include "client/output/names.h"

#include <fcntl.h>

#include <csignal>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "daemon/event/kinds.h"

namespace agentmon {
namespace {

struct Flag {
  uint32_t bits;
  const char* name;
};
// O_SYNC contains O_DSYNC, O_TMPFILE contains O_DIRECTORY: the longer ones first.
constexpr Flag kOpenFlags[] = {
    {O_SYNC, "O_SYNC"},           {O_DSYNC, "O_DSYNC"},       {020200000, "O_TMPFILE"},
    {O_DIRECTORY, "O_DIRECTORY"}, {O_CREAT, "O_CREAT"},       {O_EXCL, "O_EXCL"},
    {O_NOCTTY, "O_NOCTTY"},       {O_TRUNC, "O_TRUNC"},       {O_APPEND, "O_APPEND"},
    {O_NONBLOCK, "O_NONBLOCK"},   {O_ASYNC, "O_ASYNC"},       {040000, "O_DIRECT"},
    {0100000, "O_LARGEFILE"},     {O_NOFOLLOW, "O_NOFOLLOW"}, {01000000, "O_NOATIME"},
    {O_CLOEXEC, "O_CLOEXEC"},     {010000000, "O_PATH"},
};

}  // namespace

std::vector<std::string> KindWords() {
  std::vector<std::string> words{"process", "file", "net", "unix"};
  for (int number = v1::EXEC; number <= v1::EventKind_MAX; ++number) {
    if (v1::EventKind_IsValid(number)) words.push_back(KindName(static_cast<v1::EventKind>(number)));
  }
  return words;
}

std::string CountIsName(v1::CountIs count_is) { return count_is == v1::AT_LEAST ? "at_least" : "exact"; }

std::string DecisionName(v1::Decision decision) {
  return decision == v1::DECISION_UNSPECIFIED ? "" : absl::AsciiStrToLower(v1::Decision_Name(decision));
}

v1::Decision DecisionByName(absl::string_view name) {
  if (name == "approve") return v1::ASK;
  v1::Decision decision;
  return v1::Decision_Parse(absl::AsciiStrToUpper(name), &decision) ? decision : v1::DECISION_UNSPECIFIED;
}

std::string ResultName(v1::Net::Result result) { return absl::AsciiStrToLower(v1::Net::Result_Name(result)); }
std::string ChangeName(v1::SessionChange::What what) {
  return absl::AsciiStrToLower(v1::SessionChange::What_Name(what));
}
std::string PostureName(v1::Posture posture) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::Posture_Name(posture), "POSTURE_"));
}
std::string LayerName(v1::LayerKind kind) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::LayerKind_Name(kind), "LAYER_"));
}
std::string HowName(v1::RuleEnforcement::How how) {
  return absl::AsciiStrToLower(v1::RuleEnforcement::How_Name(how));
}
std::string StateName(v1::Session::State state) {
  return absl::AsciiStrToLower(v1::Session::State_Name(state));
}
std::string OriginName(v1::Session::Origin origin) {
  return absl::AsciiStrToLower(v1::Session::Origin_Name(origin));
}

std::string SourceSees(v1::Source source) {
  switch (source) {
    case v1::PROCESS:
      return "programs";
    case v1::NETWORK:
      return "connections";
    case v1::RESOLVER:
      return "names";
    case v1::PROXY:
      return "requests";
    case v1::NOTIFY:
      return "file changes";
    case v1::FANOTIFY:
      return "file reads";
    default:
      return SourceName(source);
  }
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", signal);
}

std::string OpenFlagsText(uint32_t flags) {
  static constexpr const char* kAccess[] = {"O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"};
  std::string text = kAccess[flags & O_ACCMODE];
  flags &= ~uint32_t{O_ACCMODE};
  for (const Flag& flag : kOpenFlags) {
    if ((flags & flag.bits) != flag.bits) continue;
    absl::StrAppend(&text, "|", flag.name);
    flags &= ~flag.bits;
  }
  if (flags != 0) absl::StrAppendFormat(&text, "|%#x", flags);
  return text;
}

std::string ModeText(uint32_t mode) { return absl::StrFormat("%04o", mode & 07777); }

}  // namespace agentmon
