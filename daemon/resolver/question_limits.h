// How much a session may ask: against floods, and against names that carry data out.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "daemon/resolver/dns_message.h"

namespace agentmon {

// One per session, one thread. Bounded memory.
class QuestionLimits {
 public:
  struct Options {
    double per_second = 100;  // questions, in the long run
    double burst = 400;
    size_t longest_label = 52;  // of a name that no rule spells out
    size_t longest_name = 160;
    size_t names_per_parent = 150;  // different names below one domain, within names_window
    absl::Duration names_window = absl::Minutes(1);
    size_t parents = 1000;
  };

  QuestionLimits() : QuestionLimits(Options()) {}
  explicit QuestionLimits(Options options) : options_(options), tokens_(options.burst) {}

  // Counts the question. False: too many in this time.
  bool TakeQuestion(absl::Time now);
  // Of a name that the policy allows, but that no rule spells out: why it looks like data and not like a
  // name; empty = it does not. The text is static.
  absl::string_view Suspicion(const DnsQuestion& question, absl::Time now);

 private:
  const Options options_;
  double tokens_;
  absl::Time filled_ = absl::InfinitePast();
  absl::Time window_ends_ = absl::InfinitePast();
  std::map<std::string, absl::flat_hash_set<uint64_t>> names_;  // hashes, by parent
};

// What a registrant has: "example.com" of a.b.example.com, "example.co.uk" of a.example.co.uk. Without the
// list of public suffixes, so that a guess may be one label too short.
absl::string_view ParentDomain(absl::string_view name);

}  // namespace agentmon
