#include "daemon/proxy/router.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace agentmon {
namespace {

constexpr size_t kMostAddresses = 64;  // that one name leads to
constexpr size_t kSearches = 512;      // open questions in all

// As QuestionLimits counts it.
DnsQuestion QuestionOf(const std::string& name, uint16_t type) {
  DnsQuestion question;
  question.name = name;
  question.is_host_name = true;
  for (const absl::string_view label : absl::StrSplit(name, '.'))
    question.longest_label = std::max(question.longest_label, label.size());
  question.type = type;
  question.klass = kDnsInternet;
  return question;
}

bool IsLocalhost(absl::string_view name) { return name == "localhost" || absl::EndsWith(name, ".localhost"); }

}  // namespace

void ProxyPorts::Add(uint16_t port) {
  absl::MutexLock lock(&mutex_);
  ports_.insert(port);
}

void ProxyPorts::Remove(uint16_t port) {
  absl::MutexLock lock(&mutex_);
  ports_.erase(port);
}

bool ProxyPorts::Has(const policy::Address& address, uint16_t port) const {
  static const auto& loopback = *new policy::Address(*policy::ParseAddress("127.0.0.1"));
  if (policy::Reached(address) != loopback) return false;
  absl::MutexLock lock(&mutex_);
  return ports_.count(port) != 0;
}

struct Router::Search {
  std::shared_ptr<ProxySession> session;
  Destination destination;
  Done done;
  int open = 0;  // questions
  std::vector<policy::Address> found;
  std::string failure;
};

void Router::Judge(const policy::Snapshot& snapshot, const Destination& destination,
                   const std::vector<policy::Address>& addresses, bool trusted, Route& route) {
  for (const policy::Address& address : addresses) {
    if (route.open.size() + route.denied.size() >= kMostAddresses) break;
    // An address of this host's own leads to it like those of a local network.
    AddressScope scope = ScopeOf(address);
    if (scope == AddressScope::kGlobal && own_.Has(address)) scope = AddressScope::kPrivate;
    ConnectVerdict verdict = JudgeConnect(snapshot, destination, address, scope, trusted);
    if (ports_.Has(address, destination.port)) {
      verdict.stop = true;
      verdict.judgement = ProxyDenial(snapshot, "proxies of agentmon",
                                      "a proxy does not lead to itself or another one", true);
    }
    if (verdict.stop)
      route.denied.push_back({policy::ToString(address), std::move(verdict.judgement)});
    else
      route.open.emplace_back(address, std::move(verdict.judgement));
  }
}

void Router::Find(const std::shared_ptr<ProxySession>& session, const Destination& destination, Done done) {
  const std::shared_ptr<const policy::Snapshot> snapshot = session->of.gate->snapshot();
  Route route;
  if (destination.address.has_value()) {
    Judge(*snapshot, destination, {*destination.address}, true, route);
    return done(std::move(route));
  }
  const QuestionVerdict name = JudgeName(*snapshot, destination);
  v1::Judgement denial = name.stop ? name.judgement : v1::Judgement();
  if (!name.stop && !name.spelled_out) {
    const absl::string_view suspicion =
        session->limits.Suspicion(QuestionOf(destination.host, kDnsA), clock_.Wall());
    if (!suspicion.empty())
      denial = ProxyDenial(*snapshot, "data in names",
                           absl::StrCat(suspicion, "; a rule with the whole name allows it"));
  }
  if (denial.enforced()) {
    route.denied.push_back({"", std::move(denial)});
    return done(std::move(route));
  }
  const std::vector<policy::Address>* known = hosts_.Find(destination.host);
  static const auto& loopback =
      *new std::vector<policy::Address>({*policy::ParseAddress("127.0.0.1"), *policy::ParseAddress("::1")});
  if (known == nullptr && IsLocalhost(destination.host)) known = &loopback;
  if (known != nullptr) {
    Judge(*snapshot, destination, *known, true, route);
    return done(std::move(route));
  }
  if (!session->limits.TakeQuestion(clock_.Wall()) || upstream_.in_flight() >= kSearches) {
    route.failure = "too many names are asked for";
    return done(std::move(route));
  }
  auto search = std::make_shared<Search>(Search{session, destination, std::move(done), 2, {}, {}});
  Ask(search, kDnsA);
  Ask(search, kDnsAaaa);
}

void Router::Ask(const std::shared_ptr<Search>& search, uint16_t type) {
  upstream_.Ask(QuestionOf(search->destination.host, type), [this, search](absl::StatusOr<DnsAnswer> answer) {
    if (!answer.ok()) {
      search->failure = std::string(answer.status().message());
    } else {
      for (const DnsAddress& address : answer->addresses()) search->found.push_back(address.address);
    }
    if (--search->open == 0) Finish(search);
  });
}

void Router::Finish(const std::shared_ptr<Search>& search) {
  Route route;
  std::sort(search->found.begin(), search->found.end(), [](const auto& a, const auto& b) { return a < b; });
  std::stable_partition(search->found.begin(), search->found.end(), [](const auto& a) { return !a.v6; });
  search->found.erase(std::unique(search->found.begin(), search->found.end()), search->found.end());
  // The policy may have been switched while the server was asked.
  const std::shared_ptr<const policy::Snapshot> snapshot = search->session->of.gate->snapshot();
  const QuestionVerdict name = JudgeName(*snapshot, search->destination);
  if (name.stop)
    route.denied.push_back({"", name.judgement});
  else
    Judge(*snapshot, search->destination, search->found, false, route);
  if (route.open.empty() && route.denied.empty())
    route.failure = search->failure.empty() ? "the name has no address" : search->failure;
  search->done(std::move(route));
}

}  // namespace agentmon
