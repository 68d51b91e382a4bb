#include "common/policy/signals.h"

#include <csignal>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace agentmon::policy {
namespace {

struct Named {
  absl::string_view name;
  int number;
};
constexpr Named kSignals[] = {
    {"HUP", SIGHUP},   {"INT", SIGINT},       {"QUIT", SIGQUIT},     {"ILL", SIGILL},   {"TRAP", SIGTRAP},
    {"ABRT", SIGABRT}, {"IOT", SIGABRT},      {"BUS", SIGBUS},       {"FPE", SIGFPE},   {"KILL", SIGKILL},
    {"USR1", SIGUSR1}, {"SEGV", SIGSEGV},     {"USR2", SIGUSR2},     {"PIPE", SIGPIPE}, {"ALRM", SIGALRM},
    {"TERM", SIGTERM}, {"STKFLT", SIGSTKFLT}, {"CHLD", SIGCHLD},     {"CLD", SIGCHLD},  {"CONT", SIGCONT},
    {"STOP", SIGSTOP}, {"TSTP", SIGTSTP},     {"TTIN", SIGTTIN},     {"TTOU", SIGTTOU}, {"URG", SIGURG},
    {"XCPU", SIGXCPU}, {"XFSZ", SIGXFSZ},     {"VTALRM", SIGVTALRM}, {"PROF", SIGPROF}, {"WINCH", SIGWINCH},
    {"IO", SIGIO},     {"POLL", SIGIO},       {"PWR", SIGPWR},       {"SYS", SIGSYS}};

constexpr uint64_t Bits(std::initializer_list<int> numbers) {
  uint64_t out = 0;
  for (const int n : numbers) out |= uint64_t{1} << (n % 64);
  return out;
}

constexpr absl::string_view kTargets[] = {"self",    "children", "descendants", "siblings",
                                          "session", "parent",   "external",    "system",
                                          "user",    "process",  "pid_range"};

}  // namespace

uint64_t SignalBit(int number) { return number < 1 || number > 64 ? 0 : uint64_t{1} << (number % 64); }

uint64_t ParseSignals(absl::string_view word) {
  const std::string lower = absl::AsciiStrToLower(word);
  if (lower == "@all") return 0xfffffffeu;  // 1 to 31
  if (lower == "@fatal") return Bits({SIGKILL, SIGTERM, SIGQUIT, SIGABRT});
  if (lower == "@job") return Bits({SIGSTOP, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU});
  if (lower == "@reload") return Bits({SIGHUP, SIGUSR1, SIGUSR2});
  if (lower == "@ignore") return Bits({SIGCHLD, SIGURG, SIGWINCH});
  int number;
  if (absl::SimpleAtoi(word, &number)) return SignalBit(number);
  const std::string upper = absl::AsciiStrToUpper(word);
  absl::string_view name = absl::StripPrefix(upper, "SIG");
  for (const Named& s : kSignals) {
    if (s.name == name) return SignalBit(s.number);
  }
  if (absl::ConsumePrefix(&name, "RTMIN+") && absl::SimpleAtoi(name, &number)) return SignalBit(34 + number);
  return 0;
}

std::string SignalName(int number) {
  for (const Named& s : kSignals) {
    if (s.number == number) return absl::StrCat("SIG", s.name);
  }
  return absl::StrCat("signal ", number);
}

uint32_t ParseSignalTarget(absl::string_view word) {
  for (size_t i = 0; i < std::size(kTargets); ++i) {
    if (kTargets[i] == word) return 1u << i;
  }
  return 0;
}

std::string SignalTargetNames(uint32_t mask) {
  std::string out;
  for (size_t i = 0; i < std::size(kTargets); ++i) {
    if (mask >> i & 1) absl::StrAppend(&out, out.empty() ? "" : ",", kTargets[i]);
  }
  return out;
}

}  // namespace agentmon::policy
