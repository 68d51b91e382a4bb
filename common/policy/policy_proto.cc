#include "common/policy/policy_proto.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/policy/builtin.h"
#include "common/policy/loader.h"

namespace agentmon::policy {
namespace {

constexpr int kMostRules = 200'000;
constexpr size_t kLongestText = 64 << 10;
constexpr int kMostTexts = 2'000'000;

using Texts = google::protobuf::RepeatedPtrField<v1::PolicyText>;
using Strings = google::protobuf::RepeatedPtrField<std::string>;

void Put(const Position& at, v1::PolicyPosition* out) {
  out->set_line(at.line);
  out->set_column(at.column);
}

void Put(const std::vector<Text>& texts, Texts* out) {
  for (const Text& text : texts) {
    v1::PolicyText* t = out->Add();
    t->set_value(text.value);
    Put(text.at, t->mutable_at());
  }
}

void Put(const std::vector<std::string>& texts, Strings* out) {
  for (const std::string& text : texts) *out->Add() = text;
}

Position Get(const v1::PolicyPosition& at) { return {at.line(), at.column()}; }
Text Get(const v1::PolicyText& text) { return {text.value(), Get(text.at())}; }

void PutRule(const Rule& rule, v1::Rule& out) {
  out.set_kind(static_cast<v1::RuleKind>(static_cast<int>(rule.kind) + 1));
  out.set_name(rule.name);
  out.set_description(rule.description);
  out.set_message(rule.message);
  out.set_decision(ToProto(rule.decision));
  out.set_timeout_ns(absl::ToInt64Nanoseconds(rule.timeout));
  Put(rule.at, out.mutable_at());
  Put(rule.paths, out.mutable_paths());
  const bool file = rule.kind == RuleKind::kFile, socket = rule.kind == RuleKind::kUnix;
  if (file || socket) {
    for (const absl::string_view name :
         absl::StrSplit(file ? FileOpNames(rule.operations) : UnixOpNames(rule.operations), ',')) {
      out.add_operations(std::string(name));
    }
  }
  Put(rule.domains, out.mutable_domains());
  Put(rule.cidrs, out.mutable_cidrs());
  for (const PortRange& range : rule.ports) {
    v1::PortRange* p = out.add_ports();
    p->set_low(range.low);
    p->set_high(range.high);
  }
  if (rule.protocols & kTcp) out.add_protocols("tcp");
  if (rule.protocols & kUdp) out.add_protocols("udp");
  out.set_verify_name(rule.verify_name);
  Put(rule.commands, out.mutable_commands());
  Put(rule.args_patterns, out.mutable_args_patterns());
  Put(rule.args, out.mutable_args());
  out.set_anywhere(rule.anywhere);
  out.set_min_depth(rule.min_depth);
  out.set_max_depth(rule.max_depth);
  out.set_signals(rule.signals);
  out.set_target(rule.target);
  out.mutable_target_pattern()->set_value(rule.target_pattern.value);
  Put(rule.target_pattern.at, out.mutable_target_pattern()->mutable_at());
  out.set_pid_min(rule.pid_min);
  out.set_pid_max(rule.pid_max);
  v1::RuleRedirect& redirect = *out.mutable_redirect();
  redirect.mutable_target()->set_value(rule.redirect.target.value);
  Put(rule.redirect.target.at, redirect.mutable_target()->mutable_at());
  Put(rule.redirect.args, redirect.mutable_args());
  Put(rule.redirect.args_append, redirect.mutable_args_append());
  for (const auto& [name, value] : rule.redirect.environment) {
    v1::NameValue* e = redirect.add_environment();
    e->set_name(name);
    e->set_value(value);
  }
  redirect.set_preserve_tree(rule.redirect.preserve_tree);
}

class Reader {
 public:
  Reader(Document& document, Diagnostics& diagnostics)
      : document_(document), context_{document.file, &diagnostics, &document} {}

  void Rules(const v1::PolicyDocument& message) {
    if (message.rules_size() > kMostRules)
      return context_.Error({}, "", absl::StrCat("more than ", kMostRules, " rules"));
    document_.rules.reserve(message.rules_size());
    for (const v1::Rule& rule : message.rules()) OneRule(rule);
  }

  void List(const Texts& from, std::vector<Text>& out) {
    texts_ += from.size();
    if (texts_ > kMostTexts) return context_.Error({}, "", "more texts than a policy may have");
    for (const v1::PolicyText& text : from) {
      if (text.value().size() > kLongestText)
        context_.Error(Get(text.at()), text.value(), "a text longer than 64 KiB");
      else
        out.push_back(Get(text));
    }
  }

 private:
  void OneRule(const v1::Rule& in) {
    const Position at = Get(in.at());
    if (in.kind() < v1::RULE_KIND_FILE || in.kind() > v1::RULE_KIND_SIGNAL)
      return context_.Error(at, in.name(), "a rule of an unknown kind");
    Rule rule;
    rule.kind = static_cast<RuleKind>(in.kind() - 1);
    rule.name = in.name();
    rule.description = in.description();
    rule.message = in.message();
    rule.at = at;
    rule.decision = FromProto(in.decision());
    if (rule.decision == Decision::kNone) return context_.Error(at, in.name(), "the rule has no decision");
    rule.timeout = absl::Nanoseconds(std::max<int64_t>(0, in.timeout_ns()));
    List(in.paths(), rule.paths);
    List(in.domains(), rule.domains);
    List(in.cidrs(), rule.cidrs);
    List(in.commands(), rule.commands);
    List(in.args_patterns(), rule.args_patterns);
    List(in.args(), rule.args);
    Operations(in, rule);
    Ports(in, rule);
    rule.verify_name = in.verify_name();
    rule.anywhere = in.anywhere();
    rule.min_depth = std::max(0, in.min_depth());
    rule.max_depth = std::max(-1, in.max_depth());
    rule.signals = in.signals();
    rule.target = in.target();
    if (rule.kind == RuleKind::kSignal && (rule.signals == 0 || rule.target == 0))
      context_.Error(at, in.name(), "no signals or no target");
    rule.target_pattern = Get(in.target_pattern());
    rule.pid_min = in.pid_min();
    rule.pid_max = in.pid_max();
    Redirect(in.redirect(), rule);
    CheckRule(rule, context_);
    document_.rules.push_back(std::move(rule));
  }

  void Operations(const v1::Rule& in, Rule& rule) {
    if (rule.kind != RuleKind::kFile && rule.kind != RuleKind::kUnix) return;
    for (const std::string& word : in.operations()) {
      const uint32_t bits = rule.kind == RuleKind::kFile ? ParseFileOp(word) : ParseUnixOp(word);
      if (bits == 0) context_.Error(rule.at, word, "unknown operation");
      rule.operations |= bits;
    }
    if (rule.operations == 0) rule.operations = rule.kind == RuleKind::kFile ? kAllFileOps : kAllUnixOps;
  }

  void Ports(const v1::Rule& in, Rule& rule) {
    for (const v1::PortRange& range : in.ports()) {
      if (range.low() < 1 || range.high() > 65535 || range.low() > range.high()) {
        context_.Error(rule.at, absl::StrCat(range.low(), "-", range.high()), "not a range of ports");
      } else {
        rule.ports.push_back({static_cast<uint16_t>(range.low()), static_cast<uint16_t>(range.high())});
      }
    }
    for (const std::string& word : in.protocols()) {
      if (word == "tcp")
        rule.protocols |= kTcp;
      else if (word == "udp")
        rule.protocols |= kUdp;
      else
        context_.Error(rule.at, word, "unknown protocol");
    }
  }

  static void Redirect(const v1::RuleRedirect& in, Rule& rule) {
    rule.redirect.target = Get(in.target());
    rule.redirect.args.assign(in.args().begin(), in.args().end());
    rule.redirect.args_append.assign(in.args_append().begin(), in.args_append().end());
    for (const v1::NameValue& e : in.environment())
      rule.redirect.environment.emplace_back(e.name(), e.value());
    rule.redirect.preserve_tree = in.preserve_tree();
  }

  Document& document_;
  LoadContext context_;
  int texts_ = 0;
};

void PutLimits(const ResourceLimits& l, v1::PolicyLimits& out) {
  out.set_max_memory_mb(l.max_memory_mb);
  out.set_memory_swap_max_mb(l.memory_swap_max_mb);
  out.set_cpu_quota_percent(l.cpu_quota_percent);
  out.set_disk_read_bps_max(l.disk_read_bps_max);
  out.set_disk_write_bps_max(l.disk_write_bps_max);
  out.set_net_bandwidth_mbps(l.net_bandwidth_mbps);
  out.set_pids_max(l.pids_max);
  out.set_command_timeout_ns(absl::ToInt64Nanoseconds(l.command_timeout));
  out.set_session_timeout_ns(absl::ToInt64Nanoseconds(l.session_timeout));
  out.set_idle_timeout_ns(absl::ToInt64Nanoseconds(l.idle_timeout));
}

ResourceLimits GetLimits(const v1::PolicyLimits& l) {
  const auto some = [](int64_t value) { return std::max<int64_t>(0, value); };
  ResourceLimits out;
  out.max_memory_mb = some(l.max_memory_mb());
  out.memory_swap_max_mb = std::max<int64_t>(-1, l.memory_swap_max_mb());
  out.cpu_quota_percent = some(l.cpu_quota_percent());
  out.disk_read_bps_max = some(l.disk_read_bps_max());
  out.disk_write_bps_max = some(l.disk_write_bps_max());
  out.net_bandwidth_mbps = some(l.net_bandwidth_mbps());
  out.pids_max = some(l.pids_max());
  out.command_timeout = absl::Nanoseconds(some(l.command_timeout_ns()));
  out.session_timeout = absl::Nanoseconds(some(l.session_timeout_ns()));
  out.idle_timeout = absl::Nanoseconds(some(l.idle_timeout_ns()));
  return out;
}

}  // namespace

v1::Decision ToProto(Decision decision) {
  switch (decision) {
    case Decision::kNone:
      return v1::DECISION_UNSPECIFIED;
    case Decision::kAllow:
      return v1::ALLOW;
    case Decision::kAudit:
      return v1::AUDIT;
    case Decision::kRedirect:
      return v1::REDIRECT;
    case Decision::kSoftDelete:
      return v1::SOFT_DELETE;
    case Decision::kAsk:
      return v1::ASK;
    case Decision::kAbsorb:
      return v1::ABSORB;
    case Decision::kDeny:
      return v1::DENY;
  }
  return v1::DENY;
}

Decision FromProto(v1::Decision decision) {
  for (const Decision d : {Decision::kAllow, Decision::kAudit, Decision::kRedirect, Decision::kSoftDelete,
                           Decision::kAsk, Decision::kAbsorb, Decision::kDeny}) {
    if (ToProto(d) == decision) return d;
  }
  return Decision::kNone;
}

v1::Posture ToProto(Posture posture) { return static_cast<v1::Posture>(posture); }
v1::LayerKind ToProto(LayerKind kind) { return static_cast<v1::LayerKind>(static_cast<int>(kind) + 1); }

LayerKind FromProto(v1::LayerKind kind) {
  return kind >= v1::LAYER_BUILTIN && kind <= v1::LAYER_SESSION ? static_cast<LayerKind>(kind - 1)
                                                                : LayerKind::kSession;
}

void ToProto(const Document& d, v1::PolicyDocument& out) {
  out.set_file(d.file);
  out.set_name(d.name);
  out.set_description(d.description);
  out.set_version(d.version);
  out.set_posture(ToProto(d.posture));
  out.set_enforcement(static_cast<v1::Enforcement>(d.enforcement));
  out.set_nested_allowed(d.nested_allowed);
  out.set_on_daemon_loss(d.on_daemon_loss);
  if (d.allow_privileges.has_value()) out.set_allow_privileges(*d.allow_privileges);
  for (size_t i = 0; i < kDefaults; ++i) {
    if (d.defaults[i] != Decision::kNone)
      (*out.mutable_defaults())[std::string(DefaultName(static_cast<DefaultFor>(i)))] =
          ToProto(d.defaults[i]);
  }
  for (const Rule& rule : d.rules) PutRule(rule, *out.add_rules());
  PutLimits(d.limits, *out.mutable_limits());
  if (d.env.given) {
    Put(d.env.allow, out.mutable_env()->mutable_allow());
    Put(d.env.deny, out.mutable_env()->mutable_deny());
    out.mutable_env()->set_max_bytes(d.env.max_bytes);
    out.mutable_env()->set_max_keys(d.env.max_keys);
  }
  for (const auto& [name, value] : d.env_inject) {
    v1::NameValue* e = out.add_env_inject();
    e->set_name(name);
    e->set_value(value);
  }
  Put(d.transparent_add, out.mutable_transparent_add());
  Put(d.transparent_remove, out.mutable_transparent_remove());
  out.set_deny_ptrace(d.seccomp.ptrace);
  out.set_deny_bpf(d.seccomp.bpf);
  out.set_deny_kernel_modules(d.seccomp.kernel_modules);
  out.set_deny_mount_namespace(d.seccomp.mount_namespace);
  v1::PolicyAudit& audit = *out.mutable_audit();
  audit.set_log_allowed(d.audit.log_allowed);
  audit.set_log_denied(d.audit.log_denied);
  audit.set_log_approved(d.audit.log_approved);
  audit.set_retention_days(d.audit.retention_days);
  audit.set_record_every(d.audit.record_every);
  for (const Unenforced& u : d.unenforced) {
    v1::PolicyText* t = out.add_unenforced();
    t->set_value(u.key);
    Put(u.at, t->mutable_at());
  }
}

Document FromProto(const v1::PolicyDocument& m, Diagnostics& diagnostics) {
  Document d;
  d.file = m.file();
  d.name = m.name();
  d.description = m.description();
  d.version = m.version();
  if (m.posture() > v1::POSTURE_UNSPECIFIED && m.posture() <= v1::POSTURE_ISOLATE)
    d.posture = static_cast<Posture>(m.posture());
  if (m.enforcement() > v1::ENFORCEMENT_UNSPECIFIED && m.enforcement() <= v1::ENFORCEMENT_BEST_EFFORT)
    d.enforcement = static_cast<Enforcement>(m.enforcement());
  d.nested_allowed = m.nested_allowed();
  d.on_daemon_loss = m.on_daemon_loss();
  if (m.has_allow_privileges()) d.allow_privileges = m.allow_privileges();
  for (size_t i = 0; i < kDefaults; ++i) {
    const auto found = m.defaults().find(std::string(DefaultName(static_cast<DefaultFor>(i))));
    if (found != m.defaults().end()) d.defaults[i] = FromProto(found->second);
  }
  Reader reader(d, diagnostics);
  reader.Rules(m);
  if (m.has_limits()) d.limits = GetLimits(m.limits());
  d.env.given = m.has_env();
  reader.List(m.env().allow(), d.env.allow);
  reader.List(m.env().deny(), d.env.deny);
  d.env.max_bytes = std::max<int64_t>(0, m.env().max_bytes());
  d.env.max_keys = std::max<int64_t>(0, m.env().max_keys());
  for (const v1::NameValue& e : m.env_inject()) d.env_inject.emplace_back(e.name(), e.value());
  d.transparent_add.assign(m.transparent_add().begin(), m.transparent_add().end());
  d.transparent_remove.assign(m.transparent_remove().begin(), m.transparent_remove().end());
  d.seccomp = {m.deny_ptrace(), m.deny_bpf(), m.deny_kernel_modules(), m.deny_mount_namespace()};
  if (m.has_audit())
    d.audit = {m.audit().log_allowed(), m.audit().log_denied(), m.audit().log_approved(),
               m.audit().retention_days(), m.audit().record_every()};
  for (const v1::PolicyText& t : m.unenforced()) d.unenforced.push_back({t.value(), Get(t.at())});
  return d;
}

void ToProto(const Diagnostics& diagnostics, google::protobuf::RepeatedPtrField<v1::PolicyDiagnostic>& out) {
  for (const Diagnostic& d : diagnostics) {
    v1::PolicyDiagnostic& p = *out.Add();
    p.set_severity(static_cast<v1::PolicyDiagnostic::Severity>(d.severity));
    p.set_file(d.file);
    Put(d.at, p.mutable_at());
    p.set_text(Printable(d.text));
    p.set_message(d.message);
    p.set_suggestion(d.suggestion);
  }
}

namespace {

// Of a protobuf string nothing else may be in it; a path that a message names may be any bytes.
bool IsUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xc2 && lead < 0xe0 ? 2
                          : lead >= 0xe0 && lead < 0xf0 ? 3
                          : lead >= 0xf0 && lead < 0xf5 ? 4
                                                        : 0;
    if (length == 0 || i + length > text.size()) return false;
    uint32_t code = length == 1 ? lead : lead & (0xffu >> (length + 1));
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<uint8_t>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    if (overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += length;
  }
  return true;
}

}  // namespace

v1::Judgement BuiltinDenial(absl::string_view rule, absl::string_view message) {
  v1::Judgement judgement;
  judgement.set_decision(v1::DENY);
  judgement.set_layer(kBuiltinFile);
  judgement.set_file(kBuiltinFile);
  judgement.set_rule(std::string(rule));
  judgement.set_message(std::string(message));
  return judgement;
}

v1::Judgement ToJudgement(const Snapshot& snapshot, const Verdict& verdict, const Subject& subject) {
  const VerdictText text = Describe(snapshot, verdict, subject);
  v1::Judgement out;
  out.set_decision(ToProto(verdict.decision));
  out.set_layer(text.layer);
  out.set_rule(text.rule);
  out.set_file(text.file);
  out.set_line(text.at.line);
  out.set_message(IsUtf8(text.message) ? text.message : absl::CHexEscape(text.message));
  return out;
}

}  // namespace agentmon::policy
