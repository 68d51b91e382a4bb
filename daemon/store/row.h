// An event as a row: what is asked for often stands in columns, the rest is a serialized Event.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "daemon/event/event.h"

namespace agentmon {

// A row of table events; views are valid as long as what they were made from.
struct RowView {
  uint64_t seq = 0;
  int64_t session = 0;  // sessions.num
  int64_t wall_ns = 0;
  v1::EventKind kind = v1::EVENT_KIND_UNSPECIFIED;
  int32_t pid = 0;
  int64_t exe = 0;  // strings.id; 0 = it is in data
  v1::Decision decision = v1::DECISION_UNSPECIFIED;
  bool enforced = false;
  absl::string_view data;
};

// In the order of RowView, for SELECT and INSERT.
inline constexpr char kRowColumns[] = "seq, session, wall_ns, kind, pid, exe, decision, enforced, data";

// Kept rows are pruned last: denials, questions, and what the daemon says of itself.
inline bool IsKept(v1::EventKind kind, v1::Decision decision) {
  return kind >= v1::SESSION || decision == v1::ASK || decision == v1::DENY;
}
inline constexpr char kKeptSql[] = "(kind >= 50 OR decision IN (5, 6))";
static_assert(v1::SESSION == 50 && v1::ASK == 5 && v1::DENY == 6);

// What a row takes in the database beside its data: columns, two index entries, page overhead.
inline constexpr uint64_t kRowOverheadBytes = 72;

// Serializes what has no column of its own. The event is the same afterwards.
void EncodeData(Event& event, bool exe_is_interned, std::string* data);

// The event that the row stands for; false when data is no Event.
[[nodiscard]] bool DecodeRow(const RowView& row, absl::string_view session_id, absl::string_view exe,
                             Event* event);

}  // namespace agentmon
