#include "common/policy/lint.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/policy/lint_covers.h"

namespace agentmon::policy {
namespace {

constexpr absl::string_view kSecretSamples[] = {"${WORKSPACE}/.env",
                                                "${WORKSPACE}/app/.env",
                                                "${WORKSPACE}/.env.local",
                                                "${WORKSPACE}/secrets/db.yml",
                                                "${WORKSPACE}/id_rsa",
                                                "${WORKSPACE}/tls/key.pem",
                                                "${HOME}/.ssh/id_rsa",
                                                "${HOME}/.aws/credentials",
                                                "${HOME}/.netrc",
                                                "${HOME}/.kube/config",
                                                "${HOME}/.gnupg/secring.gpg",
                                                "${HOME}/.git-credentials",
                                                "${HOME}/.npmrc",
                                                "${HOME}/.docker/config.json",
                                                "${HOME}/.pypirc",
                                                "${HOME}/.config/gcloud/credentials.db",
                                                "/etc/shadow"};

class Linter {
 public:
  Linter(const CompiledLayer& layer, const CompileOptions& options, Diagnostics& out)
      : layer_(layer), document_(*layer.document), options_(options), out_(out) {}

  void Run() {
    Paths(RuleKind::kFile, layer_.files);
    Paths(RuleKind::kUnix, layer_.unix_sockets);
    Pairs(layer_.commands.rules(), CommandCovers);
    Pairs(layer_.network.rules(), NetworkCovers);
    Signals();
    NoEffect();
    Domains();
    Secrets();
    std::stable_sort(out_.begin(), out_.end(),
                     [](const Diagnostic& a, const Diagnostic& b) { return a.at.line < b.at.line; });
  }

 private:
  void Finding(const Rule& rule, absl::string_view message, absl::string_view suggestion = "") {
    out_.push_back({Severity::kWarning, document_.file, rule.at, rule.name, std::string(message),
                    std::string(suggestion)});
  }

  static std::string Shown(const Rule& rule) {
    return absl::StrCat("\"", rule.name, "\" (line ", rule.at.line, ", ", DecisionName(rule.decision), ")");
  }

  static bool Loose(const Rule& rule) { return Strictness(rule.decision) <= Strictness(Decision::kAudit); }

  void Covered(uint32_t index, uint32_t by, bool same_conditions) {
    const Rule& rule = document_.rules[index];
    const Rule& first = document_.rules[by];
    if (same_conditions && rule.decision != first.decision) {
      Finding(rule,
              absl::StrCat("contradictory: ", Shown(first), " has the same conditions and comes first"));
    } else {
      Finding(rule, absl::StrCat("shadowed: ", Shown(first), " always decides first"),
              "move it up, or remove it");
    }
  }

  // An index that knows all matches finds the few earlier rules that can cover a pattern.
  void Paths(RuleKind kind, const PathIndex& index) {
    PathIndex all(true);
    std::vector<std::vector<const PathIndex::Pattern*>> of_rule(document_.rules.size());
    for (const PathIndex::Pattern& pattern : index.patterns()) {
      all.Add(pattern.glob, pattern.rule, pattern.operations);
      of_rule[pattern.rule].push_back(&pattern);
    }
    for (uint32_t r = 0; r < document_.rules.size(); ++r) {
      if (document_.rules[r].kind != kind || of_rule[r].empty()) continue;
      uint32_t by = UINT32_MAX;
      const bool covered =
          std::all_of(of_rule[r].begin(), of_rule[r].end(),
                      [&](const PathIndex::Pattern* p) { return PatternCovered(*p, all, of_rule, by); });
      if (covered)
        Covered(r, by, SamePaths(of_rule[r], of_rule[by]));
      else
        Broad(r, of_rule);
    }
  }

  static bool PatternCovered(const PathIndex::Pattern& pattern, const PathIndex& all,
                             const std::vector<std::vector<const PathIndex::Pattern*>>& of_rule,
                             uint32_t& by) {
    std::vector<uint32_t> rules;
    const std::string sample = GlobSample(pattern.glob);
    all.Collect(PathKeys(sample), rules);
    std::sort(rules.begin(), rules.end());
    rules.erase(std::unique(rules.begin(), rules.end()), rules.end());
    uint32_t open = pattern.operations;
    for (const uint32_t r : rules) {
      if (r >= pattern.rule) break;
      for (const PathIndex::Pattern* earlier : of_rule[r]) {
        if ((earlier->operations & open) == 0 || !GlobCovers(earlier->glob, pattern.glob)) continue;
        open &= ~earlier->operations;
        by = std::min(by, r);
      }
      if (open == 0) return true;
    }
    return false;
  }

  static bool SamePaths(const std::vector<const PathIndex::Pattern*>& a,
                        const std::vector<const PathIndex::Pattern*>& b) {
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](const auto* x, const auto* y) {
             return x->operations == y->operations && x->glob.tokens() == y->glob.tokens();
           });
  }

  // An allow of everything with denials of the same operations behind it.
  void Broad(uint32_t index, const std::vector<std::vector<const PathIndex::Pattern*>>& of_rule) {
    const Rule& rule = document_.rules[index];
    if (!Loose(rule)) return;
    const bool everything =
        std::any_of(of_rule[index].begin(), of_rule[index].end(), [](const PathIndex::Pattern* p) {
          return p->glob.tokens().size() == 1 && p->glob.tokens()[0].type != GlobToken::Type::kLiteral;
        });
    if (!everything) return;
    for (uint32_t later = index + 1; later < document_.rules.size(); ++later) {
      const Rule& other = document_.rules[later];
      if (other.kind != rule.kind || Loose(other) || !(other.operations & rule.operations)) continue;
      return Finding(rule, absl::StrCat("broad: allows everything before ", Shown(other)), "put it last");
    }
  }

  template <typename Compiled>
  void Pairs(const std::vector<Compiled>& rules, bool (*covers)(const Compiled&, const Compiled&)) {
    constexpr size_t kMost = 3000;  // quadratic; larger policies are generated ones
    for (size_t j = 0; j < std::min(rules.size(), kMost); ++j) {
      for (size_t i = 0; i < j; ++i) {
        if (!covers(rules[i], rules[j])) continue;
        Covered(rules[j].rule, rules[i].rule, covers(rules[j], rules[i]));
        const Rule& first = document_.rules[rules[i].rule];
        if (Loose(first) && Unconditional(rules[i]) && !Loose(document_.rules[rules[j].rule])) {
          Finding(first,
                  absl::StrCat("broad: allows everything before ", Shown(document_.rules[rules[j].rule])),
                  "put it last");
        }
        break;
      }
    }
  }

  static bool Unconditional(const CommandRule& r) {
    return r.any && r.expressions.empty() && r.args.empty() && r.max_depth < 0 && r.min_depth == 0;
  }
  static bool Unconditional(const NetworkRule& r) {
    return !r.restricts_name && r.prefixes.empty() && r.ports.empty() && r.protocols == 0;
  }

  void Signals() {
    for (size_t j = 0; j < layer_.signals.size(); ++j) {
      const Rule& rule = document_.rules[layer_.signals[j].rule];
      for (size_t i = 0; i < j; ++i) {
        const Rule& first = document_.rules[layer_.signals[i].rule];
        const bool same_target = first.target == rule.target &&
                                 first.target_pattern.value == rule.target_pattern.value &&
                                 first.pid_min <= rule.pid_min && rule.pid_max <= first.pid_max;
        if (!same_target || (rule.signals & ~first.signals) != 0) continue;
        Covered(layer_.signals[j].rule, layer_.signals[i].rule, first.signals == rule.signals);
        break;
      }
    }
  }

  // Outside of the base an allow only matters as an exception from a stricter rule of the same layer.
  void NoEffect() {
    for (size_t r = 0; r < document_.rules.size(); ++r) {
      const Rule& rule = document_.rules[r];
      const bool paths = rule.kind == RuleKind::kFile || rule.kind == RuleKind::kUnix;
      if (paths && rule.paths.empty()) Finding(rule, "dead: a rule without paths matches nothing");
      if (layer_.kind == LayerKind::kBase || rule.decision != Decision::kAllow) continue;
      const bool exception = std::any_of(
          document_.rules.begin() + r + 1, document_.rules.end(),
          [&](const Rule& later) { return later.kind == rule.kind && later.decision != Decision::kAllow; });
      if (!exception)
        Finding(rule, absl::StrCat("dead: a ", LayerKindName(layer_.kind),
                                   " layer only makes stricter; this allow is an exception from nothing"));
    }
  }

  void Domains() {
    for (const Rule& rule : document_.rules) {
      for (const Text& domain : rule.domains) {
        if (domain.value == "*")
          Finding(rule, "narrow: the domain * is names of one label only", "\"**\" is every destination");
      }
    }
  }

  void Secrets() {
    for (const absl::string_view sample : kSecretSamples) {
      const ExpandResult path = Expand(sample, options_.variables, false, Escape::kNone);
      if (!path.error.empty()) continue;
      const PathKeys keys(path.value);
      FirstRules first(kRead);
      layer_.files.Find(keys, first);
      const uint32_t allowed = first.Of(kRead);
      if (allowed == FirstRules::kNone || !Loose(document_.rules[allowed])) continue;
      for (const PathIndex::Pattern& pattern : layer_.files.patterns()) {
        const Rule& later = document_.rules[pattern.rule];
        const bool catch_all = pattern.glob.tokens().size() == 1 && !pattern.glob.IsLiteral();
        if (pattern.rule <= allowed || Loose(later) || catch_all || !(pattern.operations & kRead) ||
            !pattern.glob.Matches(path.value))
          continue;
        Finding(
            document_.rules[allowed],
            absl::StrCat("order: lets through ", path.value, ", which ", Shown(later), " is meant to stop"),
            "put it behind that rule");
        break;
      }
    }
  }

  const CompiledLayer& layer_;
  const Document& document_;
  const CompileOptions& options_;
  Diagnostics& out_;
};

}  // namespace

namespace {

template <typename Visit>
void EachVariable(const Document& document, const Visit& visit) {
  for (const Rule& rule : document.rules) {
    for (const auto* texts : {&rule.paths, &rule.domains, &rule.commands}) {
      for (const Text& text : *texts) {
        ExpandResult ignored;
        for (const std::string& name : VariableNames(text.value, ignored))
          visit(name, texts == &rule.domains);
      }
    }
    if (rule.redirect.target.value.empty()) continue;
    ExpandResult ignored;
    for (const std::string& name : VariableNames(rule.redirect.target.value, ignored)) visit(name, false);
  }
}

}  // namespace

std::set<std::string> VariablesOf(const Document& document) {
  std::set<std::string> names;
  EachVariable(document, [&](const std::string& name, bool) { names.insert(name); });
  return names;
}

CompileOptions WithStandIns(const Document& document, CompileOptions options) {
  auto& derived = options.variables.derived;
  EachVariable(document, [&](const std::string& name, bool domain) {
    const bool known = derived.contains(name) || options.variables.session.contains(name) ||
                       (name == "PROJECT_ROOT" && derived.contains("WORKSPACE"));
    if (!known) derived[name] = domain ? "stand-in" : absl::StrCat("/stand-in/", name);
  });
  return options;
}

Diagnostics Lint(std::shared_ptr<const Document> document, LayerKind kind, const CompileOptions& options) {
  const CompileOptions filled = WithStandIns(*document, options);
  CompileResult compiled = Compile({{kind, document}}, filled);
  Diagnostics out = std::move(compiled.diagnostics);
  if (compiled.snapshot == nullptr) return out;
  for (const CompiledLayer& layer : compiled.snapshot->layers()) {
    if (layer.document == document) Linter(layer, filled, out).Run();
  }
  return out;
}

}  // namespace agentmon::policy
