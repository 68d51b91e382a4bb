// Whether an event is what a v1::EventFilter asks for.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agentmon/v1/timeline.pb.h"
#include "daemon/event/event.h"
#include "daemon/event/glob.h"

namespace agentmon {

// One end of a connection as it is asked for: ADDRESS, ADDRESS:PORT, [V6]:PORT, CIDR, CIDR:PORT, :PORT,
// NAME, NAME:PORT (a host name that was looked up, or that led to the address), a glob on a unix socket's
// path (starts with / or *), or @NAME (also a glob).
class DestMatcher {
 public:
  static absl::StatusOr<DestMatcher> Parse(absl::string_view dest);
  bool Matches(const Event& event) const;

 private:
  absl::Status ParseAddress(absl::string_view text);
  absl::Status ParsePort(absl::string_view text);

  std::optional<Glob> unix_path_;
  std::string name_;     // lower case
  std::string address_;  // 4 or 16 bytes in network order; empty = any
  int prefix_bits_ = 0;
  std::optional<uint32_t> port_;
};

// The compiled filter. Immutable, thread-safe.
//
// session must be resolved to an id before; empty and "*" mean any. since is inclusive, until exclusive.
// enforced = NO means judged and not enforced: an event that nothing judged is neither. path_glob looks at
// the path and the new path of file events. A live event that has no number yet (seq 0) passes after_seq.
class EventMatcher {
 public:
  static absl::StatusOr<EventMatcher> Create(const v1::EventFilter& filter);

  bool Matches(const Event& event) const;

  // Parts of Matches for a caller that knows these fields before it has the whole event.
  bool MatchesColumns(v1::EventKind kind, int32_t pid, v1::Decision decision, bool enforced) const;
  bool MatchesTime(int64_t wall_ns) const;
  bool MatchesExe(absl::string_view exe) const { return !exe_ || exe_->Matches(exe); }
  bool wants_exe() const { return exe_.has_value(); }
  // Path and destination: what needs the whole event.
  bool MatchesDetail(const Event& event) const;

 private:
  std::string session_;
  int64_t since_ns_ = 0;
  int64_t until_ns_ = 0;
  std::bitset<64> kinds_;  // none = all
  v1::Decision decision_ = v1::DECISION_UNSPECIFIED;
  v1::EventFilter::Enforced enforced_ = v1::EventFilter::ANY;
  std::optional<Glob> path_;
  std::optional<DestMatcher> dest_;
  std::optional<Glob> exe_;
  int32_t pid_ = 0;
  uint64_t after_seq_ = 0;
};

}  // namespace agentmon
