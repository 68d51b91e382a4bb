#include "common/policy/testing/reference.h"

#include <re2/re2.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/policy/signals.h"
#include "common/policy/testing/snapshots.h"

namespace agentmon::policy {
namespace {

bool Stops(Decision d) { return Strictness(d) >= Strictness(Decision::kAsk); }

// The first rule of the layer that `matches`.
const Rule* First(const Document& document, RuleKind kind, const std::function<bool(const Rule&)>& matches) {
  for (const Rule& rule : document.rules) {
    if (rule.kind == kind && matches(rule)) return &rule;
  }
  return nullptr;
}

std::string Filled(const std::string& text) {
  return absl::StrReplaceAll(text, {{"${HOME}", "/home/u"}, {"${WORKSPACE}", "/home/u/ws"}});
}

bool PathMatches(const Rule& rule, absl::string_view path) {
  return std::any_of(rule.paths.begin(), rule.paths.end(),
                     [&](const Text& t) { return ReferenceGlob(Filled(t.value), path, '/'); });
}

class Reference {
 public:
  Reference(const ReferenceLayer& layer, const Subject& s, bool isolated)
      : d_(*layer.document), kind_(layer.kind), s_(s), isolated_(isolated) {}

  Decision Run() {
    switch (s_.kind) {
      case RuleKind::kFile:
        return File();
      case RuleKind::kUnix:
        return OnPath(s_.path, s_.operations, 0, DefaultFor::kUnixSocket, RuleKind::kUnix);
      case RuleKind::kNetwork:
        return Network();
      case RuleKind::kCommand:
        return Command();
      case RuleKind::kSignal:
        return Signal();
    }
    return Decision::kDeny;
  }

 private:
  Decision Default(DefaultFor what) const {
    if (kind_ != LayerKind::kBase) return Decision::kNone;
    const Decision given = d_.defaults[static_cast<size_t>(what)];
    return given != Decision::kNone        ? given
           : what == DefaultFor::kFileRead ? Decision::kAllow
                                           : Decision::kDeny;
  }
  static Decision Stricter(Decision a, Decision b) { return Strictness(b) > Strictness(a) ? b : a; }

  Decision OnPath(absl::string_view path, uint32_t asked, uint32_t implied, DefaultFor fixed,
                  RuleKind kind) const {
    Decision out = Decision::kNone;
    for (int bit = 0; bit < 32; ++bit) {
      const uint32_t op = 1u << bit;
      if (!((asked | implied) & op)) continue;
      const Rule* rule =
          First(d_, kind, [&](const Rule& r) { return (r.operations & op) && PathMatches(r, path); });
      if (rule != nullptr) {
        if ((asked & op) || Stops(rule->decision)) out = Stricter(out, rule->decision);
      } else if (asked & op) {
        const DefaultFor what = kind == RuleKind::kUnix ? fixed
                                : (op & kReadOps)       ? DefaultFor::kFileRead
                                                        : DefaultFor::kFileWrite;
        out = Stricter(out, Default(what));
      }
    }
    return out;
  }

  Decision File() const {
    uint32_t implied = 0;
    if (s_.operations & (kRename | kLink)) implied |= kOpen | kRead | kWrite;
    if (s_.operations & (kCreate | kMkdir | kChmod | kChown | kDelete | kRmdir | kSymlink | kMknod))
      implied |= kWrite;
    if (s_.operations & (kSymlink | kMknod | kMkdir)) implied |= kCreate;
    Decision out = OnPath(s_.path, s_.operations, implied, DefaultFor::kFileRead, RuleKind::kFile);
    if (!s_.new_path.empty())
      out = Stricter(
          out, OnPath(s_.new_path, s_.operations, kWrite | kCreate, DefaultFor::kFileRead, RuleKind::kFile));
    return out;
  }

  bool Destination(const Rule& rule) const {
    const bool query = s_.network_op == NetworkOp::kQuery;
    bool named = rule.domains.empty();
    for (const Text& t : rule.domains) {
      named = named || t.value == "**" || (!s_.name.empty() && ReferenceGlob(t.value, s_.name, '.'));
      named = named || (t.value == "localhost" && s_.address &&
                        (ToString(*s_.address) == "::1" || absl::StartsWith(ToString(*s_.address), "127.")));
    }
    bool placed = rule.cidrs.empty();
    for (const Text& t : rule.cidrs) {
      std::string error;
      const Prefix prefix = *ParsePrefix(t.value, error);
      placed = placed || (query ? prefix.length == 0 : s_.address && prefix.Contains(*s_.address));
    }
    bool port = rule.ports.empty();
    for (const PortRange& r : rule.ports) port = port || (r.low <= s_.port && s_.port <= r.high);
    const bool protocol = rule.protocols == 0 || (rule.protocols & s_.protocol);
    if (!query) return named && placed && port && protocol;
    const bool stops = Strictness(rule.decision) >= Strictness(Decision::kRedirect);
    return named && placed && (!stops || (rule.ports.empty() && rule.protocols == 0));
  }

  Decision Network() const {
    if (isolated_) return Decision::kDeny;
    const Rule* rule = First(d_, RuleKind::kNetwork, [&](const Rule& r) { return Destination(r); });
    return rule != nullptr ? rule->decision : Default(DefaultFor::kNetwork);
  }

  bool Program(const Rule& rule, const std::string& exe, bool trusted,
               const std::vector<absl::string_view>& argv, int depth) const {
    bool program = rule.commands.empty();
    const std::string name = absl::AsciiStrToLower(ProgramName(exe));
    for (const Text& t : rule.commands) {
      if (absl::StrContains(t.value, '/'))
        program = program || (exe[0] == '/' && ReferenceGlob(Filled(t.value), exe, '/'));
      else
        program = program || ((trusted || rule.anywhere) &&
                              ReferenceGlob(absl::StrReplaceAll(t.value, {{"*", "**"}}), name, '\0'));
    }
    if (!program || depth < rule.min_depth || (rule.max_depth >= 0 && depth > rule.max_depth)) return false;
    for (const Text& a : rule.args) {
      if (argv.size() < 2 || std::find(argv.begin() + 1, argv.end(), a.value) == argv.end()) return false;
    }
    if (rule.args_patterns.empty()) return true;
    const std::string joined = absl::StrJoin(argv, " ");
    for (const Text& p : rule.args_patterns) {
      RE2::Options options;
      options.set_dot_nl(true);
      options.set_encoding(RE2::Options::EncodingLatin1);
      if (RE2::PartialMatch(joined, RE2(p.value, options))) return true;
      // The arguments alone, for an expression that looks at the start.
      const std::string alone = argv.size() < 2 ? "" : absl::StrJoin(argv.begin() + 1, argv.end(), " ");
      if (AnyAnchored(rule) && RE2::PartialMatch(alone, RE2(p.value, options))) return true;
    }
    return false;
  }
  static bool AnyAnchored(const Rule& rule) {
    return std::any_of(rule.args_patterns.begin(), rule.args_patterns.end(),
                       [](const Text& t) { return absl::StrContains(t.value, "^"); });
  }

  Decision Command() const {
    const std::vector<absl::string_view> argv(s_.argv.begin(), s_.argv.end());
    const auto trusted = [](absl::string_view path) {
      return !absl::StrContains(path, '/') || absl::StartsWith(path, "/usr/bin/");
    };
    const std::string exe(s_.exe);
    const Rule* rule = First(d_, RuleKind::kCommand,
                             [&](const Rule& r) { return Program(r, exe, trusted(exe), argv, s_.depth); });
    Decision out = rule != nullptr ? rule->decision : Default(DefaultFor::kCommand);
    for (const DerivedCommand& derived : LookThrough(ProgramName(exe), s_.argv, TransparentSet())) {
      const std::vector<absl::string_view> inner(derived.argv.begin(), derived.argv.end());
      const Rule* found = First(d_, RuleKind::kCommand, [&](const Rule& r) {
        return Program(r, derived.argv[0], trusted(derived.argv[0]), inner, s_.depth + 1);
      });
      if (found != nullptr) out = Stricter(out, found->decision);
    }
    return out;
  }

  Decision Signal() const {
    const Rule* rule = First(d_, RuleKind::kSignal, [&](const Rule& r) {
      return (r.signals & SignalBit(s_.signal)) && (r.target & s_.target);
    });
    return rule != nullptr ? rule->decision : Default(DefaultFor::kSignal);
  }

  const Document& d_;
  const LayerKind kind_;
  const Subject& s_;
  const bool isolated_;
};

}  // namespace

bool ReferenceGlob(absl::string_view p, absl::string_view s, char separator) {
  if (separator == '/') {
    if (p == "**") return true;
    if (absl::StartsWith(p, "**/")) return ReferenceGlob(absl::StrCat("/", p), s, separator);
    if (p == "/**") return s.empty() || s[0] == '/';
    if (absl::StartsWith(p, "/**/")) {
      for (size_t i = 0; i < s.size(); ++i) {
        if (s[0] == '/' && s[i] == '/' && ReferenceGlob(p.substr(3), s.substr(i), separator)) return true;
      }
      return false;
    }
  }
  if (p.empty()) return s.empty();
  if (absl::StartsWith(p, "**")) {
    for (size_t i = 0; i <= s.size(); ++i) {
      if (ReferenceGlob(p.substr(2), s.substr(i), separator)) return true;
    }
    return false;
  }
  if (p[0] == '*') {
    for (size_t i = 0;; ++i) {
      if (ReferenceGlob(p.substr(1), s.substr(i), separator)) return true;
      if (i == s.size() || s[i] == separator) return false;
    }
  }
  if (s.empty() || (p[0] == '?' ? s[0] == separator : p[0] != s[0])) return false;
  return ReferenceGlob(p.substr(1), s.substr(1), separator);
}

ReferenceAnswer ReferenceEvaluate(const std::vector<ReferenceLayer>& layers, const Subject& asked,
                                  const EvaluateOptions& options) {
  Subject subject = asked;
  if (subject.address) subject.address = Reached(*subject.address);
  ReferenceAnswer out;
  Posture posture = Posture::kEnforce;
  bool first = true;
  for (const ReferenceLayer& layer : layers) {
    if (layer.document->posture != Posture::kUnset) posture = layer.document->posture;
    const Decision said = Reference(layer, subject, posture == Posture::kIsolate).Run();
    out.layers.push_back(said);
    if (said == Decision::kNone) continue;
    const Decision effective = UnderPosture(EffectiveDecision(said, subject, options), posture);
    // Ties go to the outermost; what is stopped is compared by effect, what is not by the word.
    const bool stops = Strictness(out.effective) > Strictness(Decision::kAudit) ||
                       Strictness(effective) > Strictness(Decision::kAudit);
    const bool wins = first || (stops ? Strictness(effective) > Strictness(out.effective)
                                      : Strictness(said) > Strictness(out.decision));
    if (wins) out.decision = said, out.effective = effective;
    first = false;
  }
  return out;
}

}  // namespace agentmon::policy
