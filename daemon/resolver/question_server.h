// From a message to its answer: read, limit, judge, ask, open, answer, tell.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/policy/snapshot.h"
#include "daemon/resolver/dns_listener.h"
#include "daemon/resolver/dns_message.h"
#include "daemon/resolver/hosts_file.h"
#include "daemon/resolver/opened_names.h"
#include "daemon/resolver/question_judge.h"
#include "daemon/resolver/question_limits.h"
#include "daemon/resolver/resolver_host.h"
#include "daemon/resolver/upstream.h"

namespace agentmon {

using SnapshotSource = std::function<std::shared_ptr<const policy::Snapshot>()>;

// A session as its questions are answered. The loop's thread.
struct DnsSession {
  uint64_t cgroup_id = 0;
  SnapshotSource policy;  // any thread
  QuestionLimits limits;
  size_t in_flight = 0;
  bool ended = false;
  // What names that were answered stand for, and until when (CLOCK_BOOTTIME): programs keep the last name of
  // a chain and ask for that.
  struct Alias {
    std::string name;  // that was asked
    int64_t until_ns = 0;
  };
  std::map<std::string, Alias> aliases;
  // What is told at most once a second, with its number.
  absl::Time told = absl::InfinitePast();
  uint64_t untold = 0;
};

// The loop's thread.
class QuestionServer {
 public:
  struct Options {
    size_t in_flight_per_session = 64, in_flight = 512;
    absl::Duration longest = absl::Hours(1);   // that an answer counts, for the program as for us
    absl::Duration grace = absl::Seconds(15);  // from an answer to the connection that it is for
  };
  struct Deps {
    const Clock& clock;
    Upstream& upstream;
    HostsFile& hosts;
    OpenedNames& opened;
    ResolverHost& host;
  };
  QuestionServer(Deps deps, Options options) : deps_(deps), options_(options) {}

  void OnMessage(const std::shared_ptr<DnsSession>& session, const DnsClient& client, int protocol,
                 absl::Span<const uint8_t> message, const DnsReply& reply);

 private:
  struct Asked;
  using AskedPtr = std::shared_ptr<Asked>;

  void Decide(const AskedPtr& asked);
  void Judge(Asked& asked) const;
  void Remember(const Asked& asked, const DnsAnswer& answer);
  // An answer without asking anybody; false: there is none.
  bool AnswerHere(const AskedPtr& asked);
  void AskUpstream(const AskedPtr& asked);
  void OnAnswer(const AskedPtr& asked, absl::StatusOr<DnsAnswer> answer);
  // The names of the host's own file are root's word: they may lead to the host.
  void Give(const AskedPtr& asked, DnsAnswer answer, bool from_hosts);
  AddressScope FindScope(const policy::Address& address) const;
  // Takes out what may not be opened. False: something could not be, that may.
  bool Open(const AskedPtr& asked, DnsAnswer& answer, bool from_hosts);
  void Refuse(const AskedPtr& asked, DnsRcode rcode, DnsWhy why, absl::string_view text);
  void Deny(const AskedPtr& asked, const v1::Judgement& judgement, DnsRcode rcode);
  void DenyTooMany(const AskedPtr& asked, absl::string_view rule, absl::string_view message, DnsRcode rcode);
  void Tell(const Asked& asked, const v1::Judgement& judgement, DnsRcode rcode,
            const std::vector<std::string>& answers, uint64_t count = 1);

  const Deps deps_;
  const Options options_;
};

}  // namespace agentmon
