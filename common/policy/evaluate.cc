#include "common/policy/evaluate.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/policy/signals.h"

namespace agentmon::policy {
namespace {

constexpr absl::string_view kDefaultReasons[] = {"default for command",     "default for file_read",
                                                 "default for file_write",  "default for network",
                                                 "default for unix_socket", "default for signal"};

// What one layer says of the act: the strictest of its parts.
struct Answer {
  Decision decision = Decision::kNone;
  const Rule* rule = nullptr;
  absl::string_view reason;
  const DerivedCommand* derived = nullptr;

  void Take(Decision d, const Rule* r, absl::string_view why, const DerivedCommand* from = nullptr) {
    if (Strictness(d) > Strictness(decision)) *this = {d, r, why, from};
  }
};

absl::string_view Directory(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? absl::string_view() : slash == 0 ? "/" : path.substr(0, slash);
}

// The operations that an act performs besides the one it is called by: they count only where a rule stops
// them.
uint32_t ImpliedOnPath(uint32_t operations) {
  uint32_t implied = 0;
  if (operations & (kRename | kLink)) implied |= kOpen | kRead | kWrite;  // the object gets another name
  if (operations & (kCreate | kMkdir | kChmod | kChown | kDelete | kRmdir | kSymlink | kMknod))
    implied |= kWrite;
  if (operations & (kSymlink | kMknod | kMkdir)) implied |= kCreate;
  return implied & ~operations;
}
constexpr uint32_t kImpliedOnNewPath = kWrite | kCreate;

class Evaluation {
 public:
  Evaluation(const Snapshot& snapshot, const Subject& subject, const EvaluateOptions& options, Trace* trace)
      : snapshot_(snapshot), subject_(subject), options_(options), trace_(trace) {}

  Verdict Run() {
    if (!Prepare()) {
      verdict_.reason = "not an absolute path";
      const bool enforced =
          std::any_of(snapshot_.layers().begin() + 1, snapshot_.layers().end(), [](const CompiledLayer& l) {
            return l.posture == Posture::kEnforce || l.posture == Posture::kIsolate;
          });
      if (!enforced) verdict_.effective = UnderPosture(Decision::kDeny, verdict_.posture = Posture::kMonitor);
      return verdict_;
    }
    verdict_.decision = verdict_.effective = Decision::kAllow;
    verdict_.reason = "nothing judges this";
    for (size_t i = 0; i < snapshot_.layers().size(); ++i) {
      const CompiledLayer& layer = snapshot_.layers()[i];
      const Answer answer = Judge(layer);
      Note(static_cast<int>(i), layer, answer);
      if (i == 0 && answer.decision != Decision::kNone) break;  // built-in rules are final
    }
    return std::move(verdict_);
  }

 private:
  bool Prepare() {
    switch (subject_.kind) {
      case RuleKind::kFile:
        if (!absl::StartsWith(subject_.path, "/")) return false;
        path_.emplace(Resolved(subject_.path, storage_[0]));
        if (!subject_.new_path.empty()) {
          if (!absl::StartsWith(subject_.new_path, "/")) return false;
          new_path_.emplace(Resolved(subject_.new_path, storage_[1]));
        }
        return true;
      case RuleKind::kUnix:
        if (subject_.path.empty()) return false;
        path_.emplace(Resolved(subject_.path, storage_[0]));
        return absl::StartsWith(subject_.path, "/") || absl::StartsWith(subject_.path, "@");
      case RuleKind::kCommand:
        PrepareCommand();
        return absl::StartsWith(subject_.exe, "/");
      case RuleKind::kNetwork:
        PrepareName();
        return true;
      case RuleKind::kSignal:
        return true;
    }
    return false;
  }

  absl::string_view Resolved(absl::string_view path, std::string& storage) const {
    return snapshot_.Resolve(NormalizePath(path, storage), storage);
  }

  void PrepareName() {
    const absl::string_view n = subject_.name;
    const bool plain = std::all_of(n.begin(), n.end(), [](char c) {
      return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '.' || c == '_';
    });
    name_ = n;
    if (plain && !absl::EndsWith(n, ".")) return;
    if (std::optional<std::string> normal = NormalizeDomain(n)) {
      storage_[0] = *std::move(normal);
    } else {
      storage_[0] = absl::AsciiStrToLower(n);  // not a host name: matches patterns as it is
    }
    name_ = storage_[0];
  }

  bool Trusted(absl::string_view path) const {
    const absl::string_view directory = Directory(path);
    return options_.trusted_directory ? (*options_.trusted_directory)(directory) : UsuallyTrusted(directory);
  }

  void PrepareCommand() {
    CommandView& view = command_;
    const absl::string_view exe = Resolved(subject_.exe, storage_[0]);
    const absl::string_view asked = NormalizePath(subject_.file, storage_[1]);
    const bool trusted = Trusted(exe);
    const std::string name = absl::AsciiStrToLower(ProgramName(exe));
    (trusted ? view.names : view.other_names).push_back(name);
    view.paths.push_back(exe);
    if (absl::StartsWith(asked, "/") && asked != exe) {
      // A name of root's that leads to the binary (python3 -> python3.11) is as good as the binary's own.
      const bool both = trusted && Trusted(asked);
      const std::string other = absl::AsciiStrToLower(ProgramName(asked));
      if (other != name) (both ? view.names : view.other_names).push_back(other);
      if (both) view.paths.push_back(asked);
    }
    FillArguments(view, subject_.argv, ProgramName(exe));
    view.depth = subject_.depth;
  }

  static void FillArguments(CommandView& view, absl::Span<const absl::string_view> argv,
                            absl::string_view program) {
    view.argv = argv;
    view.joined = absl::StrJoin(argv, " ");
    if (argv.empty()) return;
    const std::string zero = absl::AsciiStrToLower(ProgramName(argv[0]));
    view.honest = std::find(view.names.begin(), view.names.end(), zero) != view.names.end() ||
                  std::find(view.other_names.begin(), view.other_names.end(), zero) != view.other_names.end();
    if (argv[0] != program) {
      view.canonical = absl::StrCat(program, argv.size() > 1 ? " " : "", absl::StrJoin(argv.subspan(1), " "));
    }
  }

  Answer Judge(const CompiledLayer& layer) {
    switch (subject_.kind) {
      case RuleKind::kFile:
        return JudgeFile(layer);
      case RuleKind::kUnix:
        return JudgeUnix(layer);
      case RuleKind::kCommand:
        return JudgeCommand(layer);
      case RuleKind::kNetwork:
        return JudgeNetwork(layer);
      case RuleKind::kSignal:
        return JudgeSignal(layer);
    }
    return {};
  }

  static void TakeDefault(const CompiledLayer& layer, DefaultFor what, Answer& answer) {
    const auto index = static_cast<size_t>(what);
    answer.Take(layer.defaults[index], nullptr, kDefaultReasons[index]);
  }

  // asked: no match means the default; implied: only rules that stop count.
  void JudgePath(const CompiledLayer& layer, const PathKeys& keys, uint32_t asked, uint32_t implied,
                 Answer& answer) {
    FirstRules first(asked | implied);
    layer.files.Find(keys, first);
    for (uint32_t rest = asked | implied; rest != 0; rest &= rest - 1) {
      const uint32_t bit = rest & -rest;
      const uint32_t index = first.Of(bit);
      if (index == FirstRules::kNone) {
        if (asked & bit)
          TakeDefault(layer, bit & kReadOps ? DefaultFor::kFileRead : DefaultFor::kFileWrite, answer);
        continue;
      }
      const Rule& rule = layer.rule(index);
      if ((asked & bit) || Strictness(rule.decision) >= Strictness(Decision::kAsk))
        answer.Take(rule.decision, &rule, "");
    }
  }

  Answer JudgeFile(const CompiledLayer& layer) {
    Answer answer;
    if (layer.kind == LayerKind::kBuiltin && subject_.own_terminal) {
      answer.Take(Decision::kAllow, nullptr, "a terminal of the session");
      return answer;
    }
    JudgePath(layer, *path_, subject_.operations, ImpliedOnPath(subject_.operations), answer);
    if (new_path_) JudgePath(layer, *new_path_, subject_.operations, kImpliedOnNewPath, answer);
    if (subject_.directory && (subject_.operations & (kRename | kRmdir))) JudgeBelow(layer, answer);
    return answer;
  }

  // A directory that moves takes along what a rule protects below it.
  void JudgeBelow(const CompiledLayer& layer, Answer& answer) {
    const std::string below = absl::StrCat(path_->path, "/");
    for (auto it = std::lower_bound(layer.roots.begin(), layer.roots.end(), below);
         it != layer.roots.end() && absl::StartsWith(*it, below) && answer.decision != Decision::kDeny;
         ++it) {
      JudgePath(layer, PathKeys(*it), 0, kWrite, answer);
    }
  }

  Answer JudgeUnix(const CompiledLayer& layer) {
    Answer answer;
    FirstRules first(subject_.operations);
    layer.unix_sockets.Find(*path_, first);
    for (uint32_t rest = subject_.operations; rest != 0; rest &= rest - 1) {
      const uint32_t index = first.Of(rest & -rest);
      if (index == FirstRules::kNone)
        TakeDefault(layer, DefaultFor::kUnixSocket, answer);
      else
        answer.Take(layer.rule(index).decision, &layer.rule(index), "");
    }
    return answer;
  }

  Answer JudgeCommand(const CompiledLayer& layer) {
    Answer answer;
    const uint32_t index = layer.commands.Find(command_);
    if (index == CommandIndex::kNone) {
      TakeDefault(layer, DefaultFor::kCommand, answer);
    } else {
      const Rule& rule = layer.rule(layer.commands.rules()[index].rule);
      answer.Take(rule.decision, &rule, "");
    }
    if (layer.commands.rules().empty()) return answer;
    LookBehind(layer);
    for (size_t i = 0; i < derived_views_.size(); ++i) {
      const uint32_t inner = layer.commands.Find(derived_views_[i]);
      if (inner == CommandIndex::kNone) continue;  // a default never counts against what may only be a guess
      const Rule& rule = layer.rule(layer.commands.rules()[inner].rule);
      answer.Take(rule.decision, &rule, "", &derived_[i]);
    }
    return answer;
  }

  // The commands behind the one that is started; layers mostly share one set of names to look through.
  void LookBehind(const CompiledLayer& layer) {
    if (looked_through_ == layer.transparent.get()) return;
    looked_through_ = layer.transparent.get();
    derived_views_.clear();
    std::string unused;
    derived_ =
        LookThrough(ProgramName(NormalizePath(subject_.exe, unused)), subject_.argv, *layer.transparent);
    derived_words_.assign(derived_.size(), {});
    for (size_t i = 0; i < derived_.size(); ++i) {
      derived_words_[i].assign(derived_[i].argv.begin(), derived_[i].argv.end());
      derived_views_.push_back(DerivedView(derived_words_[i]));
    }
  }

  // A word without a slash is found in PATH, which we take for trusted: rules that stop must not miss it.
  CommandView DerivedView(absl::Span<const absl::string_view> argv) const {
    CommandView view;
    const absl::string_view program = ProgramName(argv[0]);
    const bool slash = absl::StrContains(argv[0], '/');
    (slash && !Trusted(argv[0]) ? view.other_names : view.names).push_back(absl::AsciiStrToLower(program));
    if (absl::StartsWith(argv[0], "/")) view.paths.push_back(argv[0]);
    FillArguments(view, argv, program);
    view.depth = subject_.depth + 1;
    return view;
  }

  Answer JudgeNetwork(const CompiledLayer& layer) {
    Answer answer;
    if (subject_.network_op == NetworkOp::kListen) return answer;  // no rule speaks of listening
    if (layer.kind != LayerKind::kBuiltin && layer.posture == Posture::kIsolate) {
      answer.Take(Decision::kDeny, nullptr, "posture isolate: no network");
      return answer;
    }
    const uint32_t index = layer.network.Find(subject_, name_);
    if (index == NetworkIndex::kNone) {
      TakeDefault(layer, DefaultFor::kNetwork, answer);
    } else {
      const Rule& rule = layer.rule(layer.network.rules()[index].rule);
      answer.Take(rule.decision, &rule, "");
    }
    return answer;
  }

  bool TargetMatches(const Rule& rule, const SignalRule& compiled) const {
    if (rule.target == kTargetPidRange)
      return rule.pid_min <= subject_.target_pid && subject_.target_pid <= rule.pid_max;
    if (rule.target == kTargetProcess) {
      return std::any_of(compiled.pattern.begin(), compiled.pattern.end(),
                         [&](const Glob& g) { return g.Matches(subject_.target_name); });
    }
    return (rule.target & subject_.target) != 0;
  }

  Answer JudgeSignal(const CompiledLayer& layer) {
    Answer answer;
    const uint64_t bit = SignalBit(subject_.signal);
    for (const SignalRule& compiled : layer.signals) {
      const Rule& rule = layer.rule(compiled.rule);
      if (!(rule.signals & bit) || !TargetMatches(rule, compiled)) continue;
      answer.Take(rule.decision, &rule, "");
      return answer;
    }
    TakeDefault(layer, DefaultFor::kSignal, answer);
    return answer;
  }

  // The strictest effect wins; where nothing is stopped, the strictest word is what gets recorded.
  void Note(int index, const CompiledLayer& layer, const Answer& answer) {
    const Decision enforced = EffectiveDecision(answer.decision, subject_, options_);
    const Decision effective = UnderPosture(enforced, layer.posture);
    if (trace_ != nullptr) {
      trace_->push_back({index, answer.decision, effective, answer.rule, answer.reason,
                         answer.derived ? absl::StrJoin(answer.derived->argv, " ") : ""});
    }
    if (answer.decision == Decision::kNone) return;
    const bool stops = Strictness(effective) > Strictness(Decision::kAudit) || verdict_.Stops();
    const bool wins =
        verdict_.layer < 0 || (stops ? Strictness(effective) > Strictness(verdict_.effective)
                                     : Strictness(answer.decision) > Strictness(verdict_.decision));
    if (!wins) return;
    verdict_.decision = answer.decision;
    verdict_.effective = effective;
    verdict_.posture = layer.posture;
    verdict_.layer = index;
    verdict_.rule = answer.rule;
    verdict_.reason = answer.reason;
    verdict_.derived = answer.derived != nullptr;
    verdict_.via = answer.derived ? answer.derived->via : "";
  }

  const Snapshot& snapshot_;
  const Subject& subject_;
  const EvaluateOptions& options_;
  Trace* trace_;
  Verdict verdict_;
  std::string storage_[2];
  std::optional<PathKeys> path_, new_path_;
  absl::string_view name_;
  CommandView command_;
  const TransparentSet* looked_through_ = nullptr;
  std::vector<DerivedCommand> derived_;
  std::vector<std::vector<absl::string_view>> derived_words_;
  std::vector<CommandView> derived_views_;
};

}  // namespace

Decision EffectiveDecision(Decision decision, const Subject& subject, const EvaluateOptions& options) {
  const auto unless = [&](bool possible) { return possible ? decision : Decision::kDeny; };
  switch (decision) {
    case Decision::kAsk:
      return unless(options.approver);
    case Decision::kAbsorb:
      return unless(options.can_absorb && subject.kind == RuleKind::kSignal);
    case Decision::kSoftDelete:
      if (subject.kind == RuleKind::kFile && !(subject.operations & (kDelete | kRmdir)))
        return Decision::kAllow;
      return unless(options.can_soft_delete && subject.kind == RuleKind::kFile);
    case Decision::kRedirect:
      switch (subject.kind) {
        case RuleKind::kFile:
          return unless(options.can_redirect_file);
        case RuleKind::kCommand:
          return unless(options.can_redirect_command);
        case RuleKind::kNetwork:
          return unless(options.can_redirect_network);
        case RuleKind::kSignal:
          return unless(options.can_redirect_signal);
        case RuleKind::kUnix:
          return Decision::kDeny;
      }
      return Decision::kDeny;
    default:
      return decision;
  }
}

Decision UnderPosture(Decision effective, Posture posture) {
  const bool records = posture == Posture::kMonitor || posture == Posture::kWarn;
  if (!records || Strictness(effective) <= Strictness(Decision::kAudit)) return effective;
  return Decision::kAudit;
}

bool UsuallyTrusted(absl::string_view directory) {
  static constexpr absl::string_view kTrees[] = {"/usr/lib", "/usr/lib64", "/usr/libexec", "/lib",
                                                 "/lib64",   "/snap",      "/nix/store"};
  static constexpr absl::string_view kExact[] = {
      "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/games"};
  if (std::find(std::begin(kExact), std::end(kExact), directory) != std::end(kExact)) return true;
  return std::any_of(std::begin(kTrees), std::end(kTrees), [&](absl::string_view tree) {
    return absl::StartsWith(directory, tree) &&
           (directory.size() == tree.size() || directory[tree.size()] == '/');
  });
}

Verdict Evaluate(const Snapshot& snapshot, const Subject& subject, const EvaluateOptions& options,
                 Trace* trace) {
  if (subject.kind == RuleKind::kNetwork && subject.address.has_value()) {
    const Address reached = Reached(*subject.address);
    if (reached != *subject.address) {
      Subject there = subject;
      there.address = reached;
      return Evaluation(snapshot, there, options, trace).Run();
    }
  }
  return Evaluation(snapshot, subject, options, trace).Run();
}

}  // namespace agentmon::policy
