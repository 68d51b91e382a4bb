#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/policy/builtin.h"
#include "common/policy/patterns.h"
#include "common/policy/snapshot.h"

namespace agentmon::policy {

class Compiler {
 public:
  Compiler(const CompileOptions& options, Diagnostics& diagnostics)
      : options_(options), diagnostics_(diagnostics) {}

  std::shared_ptr<const Snapshot> Run(std::vector<LayerInput> inputs) {
    inputs.insert(inputs.begin(), {LayerKind::kBuiltin, BuiltinDocument(options_.builtin, false)});
    const auto is_base = [](const LayerInput& i) { return i.kind == LayerKind::kBase; };
    const auto bases = std::count_if(inputs.begin(), inputs.end(), is_base);
    if (bases == 0) inputs.push_back({LayerKind::kBase, EmptyBase()});
    if (bases > 1)
      Error(*std::find_if(inputs.begin(), inputs.end(), is_base)->document, {}, "",
            "a session has one base policy");
    std::stable_sort(inputs.begin(), inputs.end(),
                     [](const LayerInput& a, const LayerInput& b) { return a.kind < b.kind; });
    auto snapshot = std::make_shared<Snapshot>();
    snapshot_ = snapshot.get();
    snapshot_->links_ = options_.links;
    snapshot_->layers_.reserve(inputs.size());
    for (const LayerInput& input : inputs) Layer(input);
    if (StopsNetwork()) CloseNameServices();
    for (auto layer = snapshot_->layers_.rbegin(); layer != snapshot_->layers_.rend(); ++layer)
      Inject(*layer->document);
    return HasErrors(diagnostics_) ? nullptr : snapshot;
  }

 private:
  bool StopsNetwork() const {
    const auto stops = [](const CompiledLayer& layer) {
      if (layer.posture == Posture::kIsolate) return true;
      if (layer.posture != Posture::kEnforce) return false;
      const std::vector<NetworkRule>& rules = layer.network.rules();
      return Strictness(layer.defaults[static_cast<size_t>(DefaultFor::kNetwork)]) >=
                 Strictness(Decision::kRedirect) ||
             std::any_of(rules.begin(), rules.end(), [](const NetworkRule& rule) { return rule.stops; });
    };
    return std::any_of(snapshot_->layers_.begin() + 1, snapshot_->layers_.end(), stops);
  }

  // The built-in layer comes before those that say whether it has this rule.
  void CloseNameServices() {
    layer_ = &snapshot_->layers_.front();
    const auto known = static_cast<uint32_t>(layer_->document->rules.size());
    layer_->document = BuiltinDocument(options_.builtin, true);
    for (uint32_t i = known; i < layer_->document->rules.size(); ++i) Compile(layer_->document->rules[i], i);
  }

  void Add(Severity severity, const Document& document, Position at, absl::string_view text,
           absl::string_view message, absl::string_view suggestion = "") {
    diagnostics_.push_back(
        {severity, document.file, at, std::string(text), std::string(message), std::string(suggestion)});
  }
  void Error(const Document& d, Position at, absl::string_view text, absl::string_view message,
             absl::string_view suggestion = "") {
    Add(Severity::kError, d, at, text, message, suggestion);
  }

  void Layer(const LayerInput& input) {
    CompiledLayer& layer = snapshot_->layers_.emplace_back();
    layer_ = &layer;
    layer.kind = input.kind;
    layer.document = input.document;
    const Document& document = *input.document;
    const absl::string_view shown = document.name.empty() ? document.file : document.name;
    layer.name =
        input.kind == LayerKind::kBuiltin ? "built-in" : absl::StrCat(LayerKindName(input.kind), ": ", shown);
    // What an outer layer says holds for those inside it that say nothing themselves. The built-in layer has
    // no say. Files of one kind do not speak for each other.
    if (input.kind != kind_) {
      kind_ = input.kind;
      outer_ = inner_;
    }
    layer.posture = document.posture != Posture::kUnset ? document.posture : outer_.posture;
    layer.enforcement =
        document.enforcement != Enforcement::kUnset ? document.enforcement : outer_.enforcement;
    Transparent(document);
    SayInwards(document);
    Defaults(document);
    for (uint32_t i = 0; i < document.rules.size(); ++i) Compile(document.rules[i], i);
    layer.commands.Seal();
    std::sort(layer.roots.begin(), layer.roots.end());
    Env(document.env);
    Merge(document);
    for (const Unenforced& u : document.unenforced) Unenforced_(u);
  }

  void Transparent(const Document& document) {
    TransparentSet own = outer_.transparent;
    for (const std::string& name : document.transparent_add) own.Add(name), inner_.transparent.Add(name);
    for (const std::string& name : document.transparent_remove)
      own.Remove(name), inner_.transparent.Remove(name);
    for (const CompiledLayer& other : snapshot_->layers_) {
      if (other.transparent && *other.transparent == own) layer_->transparent = other.transparent;
    }
    if (!layer_->transparent) layer_->transparent = std::make_shared<const TransparentSet>(std::move(own));
  }

  // For inner layers the strictest of several files of a kind counts.
  void SayInwards(const Document& d) {
    if (d.posture != Posture::kUnset)
      inner_.posture = inner_.posture_from == kind_ ? std::max(inner_.posture, d.posture) : d.posture;
    if (d.posture != Posture::kUnset) inner_.posture_from = kind_;
    if (d.enforcement == Enforcement::kUnset) return;
    const bool required = d.enforcement == Enforcement::kRequired ||
                          (inner_.enforcement_from == kind_ && inner_.enforcement == Enforcement::kRequired);
    inner_.enforcement = required ? Enforcement::kRequired : Enforcement::kBestEffort;
    inner_.enforcement_from = kind_;
  }

  void Unenforced_(const Unenforced& u) {
    if (layer_->enforcement == Enforcement::kBestEffort) {
      Add(Severity::kWarning, *layer_->document, u.at, u.key, "nothing enforces this");
    } else {
      Error(*layer_->document, u.at, u.key, "nothing enforces this, and the policy requires enforcement",
            "enforcement: best_effort");
    }
  }

  void Defaults(const Document& document) {
    if (layer_->kind == LayerKind::kBuiltin) return;
    const bool base = layer_->kind == LayerKind::kBase;
    for (size_t i = 0; i < kDefaults; ++i) {
      const Decision given = document.defaults[i];
      const bool reads = i == static_cast<size_t>(DefaultFor::kFileRead);
      if (base)
        layer_->defaults[i] = given != Decision::kNone ? given : reads ? Decision::kAllow : Decision::kDeny;
      else if (given != Decision::kNone && given != Decision::kAllow) {
        Add(Severity::kWarning, document, {}, DefaultName(static_cast<DefaultFor>(i)),
            "defaults count in the base policy only");
      }
    }
  }

  // The text with its variables; empty on error, which is reported.
  std::string Expanded(const Text& text, Escape escape) {
    if (!absl::StrContains(text.value, "${") && !absl::StartsWith(text.value, "~")) return text.value;
    const bool session = layer_->kind != LayerKind::kBuiltin && layer_->kind != LayerKind::kFloor;
    ExpandResult result = Expand(text.value, options_.variables, session, escape);
    if (result.error.empty()) return std::move(result.value);
    const Position at{text.at.line, text.at.column + static_cast<uint32_t>(result.offset)};
    Error(*layer_->document, at, text.value, result.error,
          result.undefined.empty() ? "" : absl::StrCat("${", result.undefined, ":-/default}"));
    return "";
  }

  void Compile(const Rule& rule, uint32_t index) {
    switch (rule.kind) {
      case RuleKind::kFile:
      case RuleKind::kUnix:
        return Paths(rule, index);
      case RuleKind::kNetwork:
        return Network(rule, index);
      case RuleKind::kCommand:
        return Command(rule, index);
      case RuleKind::kSignal:
        return Signal(rule, index);
    }
  }

  void Broken(const Text& text, const GlobError& error) {
    Error(*layer_->document, text.at, text.value, error.message);
  }

  // A rule on /bin/x is one on /usr/bin/x too where /bin is a link; ** stays as it is.
  void AddLinked(std::vector<Glob>& globs) const {
    for (size_t i = 0, n = globs.size(); i < n; ++i) {
      for (const auto& [from, to] : options_.links) {
        const absl::string_view lead = globs[i].literal();
        if (!absl::StartsWith(lead, from) || (lead.size() > from.size() && lead[from.size()] != '/'))
          continue;
        if (lead.size() == from.size() && globs[i].tokens().size() > 1 &&
            globs[i].tokens()[1].type != GlobToken::Type::kSubtree &&
            globs[i].tokens()[1].type != GlobToken::Type::kDirs) {
          continue;  // /bin* is not below /bin
        }
        globs.push_back(globs[i].WithPrefix(from, to));
      }
    }
  }

  bool PathGlobs(const Text& text, RuleKind kind, std::vector<Glob>& globs) {
    const std::string expanded = Expanded(text, Escape::kGlob);
    if (expanded.empty()) return false;
    GlobError error;
    if (ParsePathPattern(expanded, kind, globs, error)) {
      AddLinked(globs);
      return true;
    }
    Broken(text, error);
    return false;
  }

  void Paths(const Rule& rule, uint32_t index) {
    const bool stops = Strictness(rule.decision) >= Strictness(Decision::kAsk);
    for (const Text& text : rule.paths) {
      std::vector<Glob> globs;
      if (!PathGlobs(text, rule.kind, globs)) continue;
      for (const Glob& glob : globs) {
        (rule.kind == RuleKind::kFile ? layer_->files : layer_->unix_sockets)
            .Add(glob, index, rule.operations);
        if (rule.kind != RuleKind::kFile || !stops || !(rule.operations & kWrite)) continue;
        const auto& tokens = glob.tokens();
        const bool root =
            glob.IsLiteral() || (tokens.size() == 2 && tokens[1].type == GlobToken::Type::kSubtree);
        if (root && !glob.literal().empty()) layer_->roots.emplace_back(glob.literal());
      }
    }
  }

  void Network(const Rule& rule, uint32_t index) {
    NetworkRule out;
    out.rule = index;
    DomainPattern pattern;
    for (const Text& text : rule.domains) {
      const std::string expanded = Expanded(text, Escape::kGlob);
      GlobError error;
      if (!expanded.empty() && !ParseDomainPattern(expanded, pattern, error)) Broken(text, error);
    }
    out.restricts_name = !rule.domains.empty() && !pattern.any;
    out.names = std::move(pattern.names);
    out.named_addresses = std::move(pattern.addresses);
    for (const Text& text : rule.cidrs) {
      std::string error;
      if (const std::optional<Prefix> prefix = ParsePrefix(text.value, error))
        out.prefixes.push_back(*prefix);
      else
        Error(*layer_->document, text.at, text.value, error);
    }
    out.ports = rule.ports;
    out.protocols = rule.protocols;
    out.stops = Strictness(rule.decision) >= Strictness(Decision::kRedirect);
    layer_->network.Add(std::move(out));
  }

  void Command(const Rule& rule, uint32_t index) {
    CommandRule out;
    out.rule = index;
    out.any = rule.commands.empty();
    for (const Text& text : rule.commands) {
      const std::string expanded = Expanded(text, Escape::kGlob);
      std::vector<Glob> globs;
      GlobError error;
      bool is_path;
      if (expanded.empty()) continue;
      if (!ParseCommandToken(expanded, is_path, globs, error)) {
        Broken(text, error);
        continue;
      }
      if (is_path) AddLinked(globs);
      std::vector<Glob>& into = is_path ? out.paths : out.names;
      into.insert(into.end(), globs.begin(), globs.end());
    }
    for (const Text& text : rule.args_patterns) {
      std::string error;
      auto expression = CompileExpression(text.value, error);
      if (expression == nullptr) {
        Error(*layer_->document, text.at, text.value, absl::StrCat("not an RE2 expression: ", error));
        continue;
      }
      out.anchored =
          out.anchored || absl::StrContains(text.value, "^") || absl::StrContains(text.value, "\\A");
      out.expressions.push_back(std::move(expression));
    }
    for (const Text& text : rule.args) out.args.push_back(text.value);
    out.anywhere = rule.anywhere;
    out.min_depth = rule.min_depth;
    out.max_depth = rule.max_depth;
    out.allows = Strictness(rule.decision) <= Strictness(Decision::kAudit);
    layer_->commands.Add(std::move(out));
  }

  void Signal(const Rule& rule, uint32_t index) {
    SignalRule out{index, {}};
    GlobError error;
    if (rule.target == kTargetProcess &&
        !Glob::Parse(rule.target_pattern.value, GlobKind::kWord, out.pattern, error)) {
      return Broken(rule.target_pattern, error);
    }
    layer_->signals.push_back(std::move(out));
  }

  void Env(const EnvRules& rules) {
    EnvFilter& filter = layer_->env;
    filter.given = rules.given;
    filter.allow_list = !rules.allow.empty();
    GlobError error;
    for (const Text& text : rules.allow) {
      if (!Glob::Parse(text.value, GlobKind::kWord, filter.allow, error)) Broken(text, error);
    }
    for (const Text& text : rules.deny) {
      if (!Glob::Parse(text.value, GlobKind::kWord, filter.deny, error)) Broken(text, error);
    }
    const auto tighten = [](int64_t& total, int64_t value) {
      total = value == 0 ? total : total == 0 ? value : std::min(total, value);
    };
    tighten(snapshot_->env_max_bytes_, rules.max_bytes);
    tighten(snapshot_->env_max_keys_, rules.max_keys);
  }

  static void MergeLimits(const ResourceLimits& given, ResourceLimits& l) {
    const auto tighten = [](int64_t& total, int64_t value) {
      total = value == 0 ? total : total == 0 ? value : std::min(total, value);
    };
    const auto shorten = [](absl::Duration& total, absl::Duration value) {
      total = value == absl::ZeroDuration()   ? total
              : total == absl::ZeroDuration() ? value
                                              : std::min(total, value);
    };
    tighten(l.max_memory_mb, given.max_memory_mb);
    if (given.memory_swap_max_mb >= 0) {
      l.memory_swap_max_mb = l.memory_swap_max_mb < 0
                                 ? given.memory_swap_max_mb
                                 : std::min(l.memory_swap_max_mb, given.memory_swap_max_mb);
    }
    tighten(l.cpu_quota_percent, given.cpu_quota_percent);
    tighten(l.disk_read_bps_max, given.disk_read_bps_max);
    tighten(l.disk_write_bps_max, given.disk_write_bps_max);
    tighten(l.net_bandwidth_mbps, given.net_bandwidth_mbps);
    tighten(l.pids_max, given.pids_max);
    shorten(l.command_timeout, given.command_timeout);
    shorten(l.session_timeout, given.session_timeout);
    shorten(l.idle_timeout, given.idle_timeout);
  }

  void Merge(const Document& d) {
    if (layer_->kind == LayerKind::kBuiltin) return;
    Snapshot& s = *snapshot_;
    if (HoldsLimits(layer_->posture)) MergeLimits(d.limits, s.limits_);
    s.seccomp_.ptrace |= d.seccomp.ptrace;
    s.seccomp_.bpf |= d.seccomp.bpf;
    s.seccomp_.kernel_modules |= d.seccomp.kernel_modules;
    s.seccomp_.mount_namespace |= d.seccomp.mount_namespace;
    s.record_every_ |= d.audit.record_every;
    // Nesting needs a yes of the base; an outer or inner layer cannot give it, only leave it out.
    if (layer_->kind == LayerKind::kBase) s.nested_allowed_ = d.nested_allowed;
    Privileges(d);
    if (!d.on_daemon_loss.empty() && s.on_daemon_loss_ != "kill") s.on_daemon_loss_ = d.on_daemon_loss;
  }

  // Given by the floor, if all of it that says something does; taken away by anybody.
  void Privileges(const Document& d) {
    if (!d.allow_privileges.has_value()) return;
    const bool floor = layer_->kind == LayerKind::kFloor;
    if (*d.allow_privileges && !floor) {
      return Error(d, {}, "allow_privileges",
                   "only the administrator's floor may let a session gain privileges");
    }
    if (!*d.allow_privileges) privileges_taken_ = true;
    snapshot_->allow_privileges_ =
        !privileges_taken_ && (*d.allow_privileges || snapshot_->allow_privileges_);
  }

  // Called from the innermost layer outwards, so that an outer layer's value stays.
  void Inject(const Document& document) {
    auto& all = snapshot_->env_inject_;
    for (const auto& [name, value] : document.env_inject) {
      const auto same =
          std::find_if(all.begin(), all.end(), [&key = name](const auto& e) { return e.first == key; });
      if (same == all.end())
        all.emplace_back(name, value);
      else
        same->second = value;
    }
  }

  const CompileOptions& options_;
  Diagnostics& diagnostics_;
  Snapshot* snapshot_ = nullptr;
  CompiledLayer* layer_ = nullptr;

  // What layers inherit: from all outer kinds, and (for the next kind) from this one too.
  struct Inherited {
    Posture posture = Posture::kEnforce;
    Enforcement enforcement = Enforcement::kRequired;
    LayerKind posture_from = LayerKind::kBuiltin, enforcement_from = LayerKind::kBuiltin;
    TransparentSet transparent;
  };
  LayerKind kind_ = LayerKind::kBuiltin;
  Inherited outer_, inner_;
  bool privileges_taken_ = false;
};

CompileResult Compile(const std::vector<LayerInput>& layers, const CompileOptions& options) {
  CompileResult result;
  result.snapshot = Compiler(options, result.diagnostics).Run(layers);
  return result;
}

}  // namespace agentmon::policy
