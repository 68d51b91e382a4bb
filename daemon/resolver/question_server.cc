#include "daemon/resolver/question_server.h"

#include <netinet/in.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/policy/policy_proto.h"

namespace agentmon {
namespace {

constexpr size_t kToldAnswers = 16;
constexpr size_t kMostAddresses = 64;  // that one answer opens; the room for them is shared
constexpr size_t kAliasesPerSession = 1024;
constexpr uint32_t kHostsTtlS = 10;                            // the file may change
constexpr uint16_t kFirstMetaType = 128, kLastMetaType = 255;  // RFC 6895: ANY, AXFR, TKEY, ...

bool AsksForAddress(const DnsQuestion& question) {
  return question.type == kDnsA || question.type == kDnsAaaa;
}

// A rule about some names, and not about all or about addresses.
bool SpeaksOfNames(const policy::Rule* rule) {
  return rule != nullptr && std::any_of(rule->domains.begin(), rule->domains.end(),
                                        [](const policy::Text& domain) { return domain.value != "**"; });
}

// Short, for `dig` and logs of programs: who stopped it.
std::string WhyOf(const v1::Judgement& judgement) {
  return judgement.message().empty()
             ? absl::StrCat("agentmon: ", judgement.rule())
             : absl::StrCat("agentmon: ", judgement.rule(), ": ", judgement.message());
}

}  // namespace

struct QuestionServer::Asked {
  std::shared_ptr<DnsSession> session;
  DnsClient client;
  int protocol = 0;
  DnsQuery query;
  DnsReply reply;
  std::shared_ptr<const policy::Snapshot> snapshot;  // that verdict is of
  QuestionVerdict verdict;
  std::string name;  // by which it was judged: that of the question, or one that stands for it

  size_t room() const { return protocol == IPPROTO_UDP ? query.udp_bytes : UINT16_MAX; }
};

void QuestionServer::OnMessage(const std::shared_ptr<DnsSession>& session, const DnsClient& client,
                               int protocol, absl::Span<const uint8_t> message, const DnsReply& reply) {
  ReceivedQuery received = ReadQuery(message);
  if (received.what == ReceivedQuery::What::kDrop) return reply({});
  auto asked = std::make_shared<Asked>(
      Asked{session, client, protocol, std::move(received.query), reply, session->policy(), {}, {}});
  if (asked->snapshot == nullptr)
    return Refuse(asked, DnsRcode::kServFail, DnsWhy::kNotReady, "agentmon: the session has no policy");
  if (!session->limits.TakeQuestion(deps_.clock.Wall())) {
    return DenyTooMany(asked, "too many questions",
                       "the session asks more names than are answered in this time", DnsRcode::kRefused);
  }
  if (received.what == ReceivedQuery::What::kError) return reply(WriteError(asked->query, received.error));
  Decide(asked);
}

// A name of which no rule speaks is judged by the one that has led to it.
void QuestionServer::Judge(Asked& asked) const {
  const DnsQuestion& question = asked.query.question;
  asked.name = question.name;
  asked.verdict = JudgeQuestion(*asked.snapshot, question);
  const auto alias = asked.session->aliases.find(question.name);
  if (SpeaksOfNames(asked.verdict.rule) || alias == asked.session->aliases.end() ||
      alias->second.until_ns < deps_.clock.BootNs()) {
    return;
  }
  DnsQuestion first = question;
  first.name = alias->second.name;
  const QuestionVerdict verdict = JudgeQuestion(*asked.snapshot, first);
  if (verdict.stop) return;
  asked.name = first.name;
  asked.verdict = verdict;
}

void QuestionServer::Remember(const Asked& asked, const DnsAnswer& answer) {
  std::map<std::string, DnsSession::Alias>& aliases = asked.session->aliases;
  const int64_t now = deps_.clock.BootNs();
  if (aliases.size() >= kAliasesPerSession)
    std::erase_if(aliases, [now](const auto& alias) { return alias.second.until_ns < now; });
  for (const DnsAlias& alias : answer.Aliases()) {
    if (aliases.size() >= kAliasesPerSession) return;
    const int64_t until = now + absl::ToInt64Nanoseconds(absl::Seconds(alias.ttl_s) + options_.grace);
    aliases[alias.name] = {asked.name, until};
  }
}

void QuestionServer::Decide(const AskedPtr& asked) {
  const DnsQuestion& question = asked->query.question;
  Judge(*asked);
  if (asked->verdict.stop) return Deny(asked, asked->verdict.judgement, DnsRcode::kNxDomain);
  if (question.klass != kDnsInternet || (question.type >= kFirstMetaType && question.type <= kLastMetaType) ||
      question.type == 0 || question.type == 41) {
    return Deny(asked,
                ResolverDenial(*asked->snapshot, "kind of question", "only records of names are answered"),
                DnsRcode::kNotImp);
  }
  if (!asked->verdict.spelled_out) {
    const absl::string_view suspicion = asked->session->limits.Suspicion(question, deps_.clock.Wall());
    const v1::Judgement denial =
        suspicion.empty() ? v1::Judgement()
                          : ResolverDenial(*asked->snapshot, "data in names",
                                           absl::StrCat(suspicion, "; a rule with the whole name allows it"));
    if (denial.enforced()) return Deny(asked, denial, DnsRcode::kRefused);
  }
  if (AnswerHere(asked)) return;
  AskUpstream(asked);
}

bool QuestionServer::AnswerHere(const AskedPtr& asked) {
  const DnsQuestion& question = asked->query.question;
  // Their hints are addresses that nobody has looked at, their keys hide the name from whom it is shown to,
  // and their targets other names: without them programs ask for addresses.
  if (question.type == kDnsHttps || question.type == kDnsSvcb) {
    Give(asked, DnsAnswer::Empty(DnsRcode::kNoError), false);
    return true;
  }
  const std::vector<policy::Address>* known = deps_.hosts.Find(question.name);
  static const auto& loopback =
      *new std::vector<policy::Address>({*policy::ParseAddress("127.0.0.1"), *policy::ParseAddress("::1")});
  if (known == nullptr && policy::IsLocalhost(question.name)) known = &loopback;
  if (known == nullptr) return false;
  const std::vector<policy::Address> addresses =
      AsksForAddress(question) ? *known : std::vector<policy::Address>();
  Give(asked, DnsAnswer::Of(asked->query, addresses, kHostsTtlS), true);
  return true;
}

void QuestionServer::AskUpstream(const AskedPtr& asked) {
  DnsSession& session = *asked->session;
  if (session.in_flight >= options_.in_flight_per_session ||
      deps_.upstream.in_flight() >= options_.in_flight) {
    return DenyTooMany(asked, "too many open questions", "earlier questions are not answered yet",
                       DnsRcode::kServFail);
  }
  ++session.in_flight;
  deps_.upstream.Ask(asked->query.question, [this, asked](absl::StatusOr<DnsAnswer> answer) {
    --asked->session->in_flight;
    OnAnswer(asked, std::move(answer));
  });
}

void QuestionServer::OnAnswer(const AskedPtr& asked, absl::StatusOr<DnsAnswer> answer) {
  if (asked->session->ended) return asked->reply({});
  // The policy may have been switched while the server was asked.
  if (auto snapshot = asked->session->policy(); snapshot != asked->snapshot && snapshot != nullptr) {
    asked->snapshot = std::move(snapshot);
    Judge(*asked);
    if (asked->verdict.stop) return Deny(asked, asked->verdict.judgement, DnsRcode::kNxDomain);
  }
  if (!answer.ok()) {
    Tell(*asked, asked->verdict.judgement, DnsRcode::kServFail, {});
    return Refuse(asked, DnsRcode::kServFail, DnsWhy::kNetworkError,
                  absl::StrCat("agentmon: ", std::string(answer.status().message())));
  }
  Give(asked, *std::move(answer), false);
}

// An address of this host's own leads to it like those of a local network, whoever else may use it.
AddressScope QuestionServer::FindScope(const policy::Address& address) const {
  const AddressScope scope = ScopeOf(address);
  return scope == AddressScope::kGlobal && deps_.host.IsOwn(address) ? AddressScope::kPrivate : scope;
}

bool QuestionServer::Open(const AskedPtr& asked, DnsAnswer& answer, bool from_hosts) {
  bool all = true;
  const std::string& name = asked->name;
  const int64_t now = deps_.clock.BootNs();
  const std::vector<DnsAddress> addresses = answer.addresses();
  size_t count = 0;
  for (const DnsAddress& address : addresses) {
    if (++count > kMostAddresses) {
      answer.Remove(address.address);
      continue;
    }
    std::optional<v1::Judgement> denial;
    if (!from_hosts && !policy::IsLocalhost(name))
      denial =
          JudgeAnswer(*asked->snapshot, asked->verdict, name, address.address, FindScope(address.address));
    if (denial.has_value() && denial->enforced()) {
      answer.Remove(address.address);
      Tell(*asked, *denial, answer.addresses().empty() ? DnsRcode::kNxDomain : DnsRcode::kNoError,
           {policy::ToString(address.address)});
      continue;
    }
    const int64_t until = now + absl::ToInt64Nanoseconds(absl::Seconds(address.ttl_s) + options_.grace);
    const absl::Status opened = deps_.host.Open(asked->session->cgroup_id, name, address.address, until);
    if (opened.ok()) {
      deps_.opened.Add(asked->session->cgroup_id, {name, policy::Reached(address.address), until});
      continue;
    }
    all = false;
    answer.Remove(address.address);
    LogWarning("open ", policy::ToString(address.address), " for ", name, ": ", opened.message());
  }
  if (!answer.addresses().empty()) deps_.host.Settle(asked->session->cgroup_id);
  return all;
}

void QuestionServer::Give(const AskedPtr& asked, DnsAnswer answer, bool from_hosts) {
  answer.ShortenTtls(static_cast<uint32_t>(absl::ToInt64Seconds(options_.longest)));
  const size_t before = answer.addresses().size();
  const bool opened = Open(asked, answer, from_hosts);
  if (opened) Remember(*asked, answer);
  if (before > 0 && answer.addresses().empty()) {
    if (opened)
      return Refuse(asked, DnsRcode::kNxDomain, DnsWhy::kBlocked,
                    "agentmon: no address of the answer may be reached");
    Tell(*asked, asked->verdict.judgement, DnsRcode::kServFail, {});
    return Refuse(asked, DnsRcode::kServFail, DnsWhy::kNotReady, "agentmon: no room to open the addresses");
  }
  Tell(*asked, asked->verdict.judgement, answer.rcode(), answer.Describe(kToldAnswers));
  asked->reply(WriteAnswer(asked->query, answer, asked->room()));
}

void QuestionServer::Refuse(const AskedPtr& asked, DnsRcode rcode, DnsWhy why, absl::string_view text) {
  asked->reply(WriteError(asked->query, rcode, why, text));
}

void QuestionServer::Deny(const AskedPtr& asked, const v1::Judgement& judgement, DnsRcode rcode) {
  Tell(*asked, judgement, rcode, {});
  Refuse(asked, rcode, DnsWhy::kBlocked, WhyOf(judgement));
}

// A flood of questions does not become a flood of events.
void QuestionServer::DenyTooMany(const AskedPtr& asked, absl::string_view rule, absl::string_view message,
                                 DnsRcode rcode) {
  DnsSession& session = *asked->session;
  ++session.untold;
  v1::Judgement judgement = policy::BuiltinDenial(rule, message);
  judgement.set_enforced(true);
  judgement.set_mechanism("resolver");
  if (const absl::Time now = deps_.clock.Wall();
      now >= session.told + absl::Seconds(1) || now < session.told) {
    session.told = now;
    Tell(*asked, judgement, rcode, {}, std::exchange(session.untold, 0));
  }
  Refuse(asked, rcode, DnsWhy::kProhibited, WhyOf(judgement));
}

void QuestionServer::Tell(const Asked& asked, const v1::Judgement& judgement, DnsRcode rcode,
                          const std::vector<std::string>& answers, uint64_t count) {
  Event event;
  event.set_kind(v1::DNS);
  event.set_count(count);
  *event.mutable_judgement() = judgement;
  v1::Dns* dns = event.mutable_dns();
  dns->set_name(asked.query.question.name);
  dns->set_type(DnsTypeName(asked.query.question.type));
  for (const std::string& answer : answers) dns->add_answers(answer);
  dns->set_rcode(RcodeName(rcode));
  dns->set_protocol(asked.protocol == IPPROTO_TCP ? "tcp" : "udp");
  dns->set_server(policy::ToString(asked.client.server));
  deps_.host.OnEvent(asked.session->cgroup_id, asked.client, deps_.clock.BootNs(), event);
}

}  // namespace agentmon
