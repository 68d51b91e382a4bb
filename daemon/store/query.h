// Reads events in order of time. Any thread, on a connection of its own.
//
// The rows come in slices of at most a quarter second, each a read transaction of its own, and none is open
// while the caller's function runs: a slow reader cannot keep the write-ahead log from being folded in.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agentmon/v1/timeline.pb.h"
#include "daemon/event/event.h"
#include "daemon/event/filter.h"
#include "daemon/store/row.h"
#include "daemon/store/session_query.h"
#include "daemon/store/sqlite.h"

namespace agentmon {

struct QueryOptions {
  v1::EventFilter filter;  // session as FindSession takes it, or "*" = all that the viewer sees
  Viewer viewer;
  uint32_t limit = 0;               // the newest that many, given in order of time; 0 = all
  uint64_t until_seq = 0;           // no event with a larger number; 0 = those stored when the query starts
  std::function<bool()> cancelled;  // asked between slices
};

// At most kQueryChunk events, in order of (wall_ns, seq) over all calls. False = enough.
using QueryCallback = std::function<bool(std::vector<Event> events)>;
inline constexpr size_t kQueryChunk = 1000;

// Names of executables and sessions, looked up once per query.
class NameCache {
 public:
  explicit NameCache(Database& database) : database_(database) {}
  absl::StatusOr<std::string> SessionId(int64_t session);
  absl::StatusOr<std::string> Exe(int64_t session, int64_t exe);

 private:
  absl::StatusOr<std::string> Select(Statement& statement, absl::string_view sql, int64_t a, int64_t b);

  Database& database_;
  Statement session_, exe_;
  std::map<int64_t, std::string> sessions_;
  std::map<std::pair<int64_t, int64_t>, std::string> exes_;
};

class EventQuery {
 public:
  EventQuery(Database& database, const QueryOptions& options)
      : database_(database), options_(options), names_(database) {}

  // InvalidArgument and NotFound: the filter. Cancelled. DataLoss after all readable rows were given when
  // some were not.
  absl::Status Run(const QueryCallback& callback);

 private:
  struct Key {
    int64_t wall_ns;
    int64_t seq;
  };
  enum class Order { kOldestFirst, kNewestFirst };

  absl::Status Resolve();
  absl::Status NarrowToViewer();
  absl::StatusOr<Statement> Prepare(Order order);
  // Visits matching rows until `visit` says false or the time is up; true when rows may be left.
  absl::StatusOr<bool> Slice(Statement& select, Order order, const std::function<bool(Event&&)>& visit);
  absl::Status ForEach(Order order, const std::function<bool(Event&&)>& visit,
                       const std::function<bool()>& after_slice);
  absl::StatusOr<bool> Read(const Statement& row, Event* event);
  absl::Status Newest(const QueryCallback& callback);
  absl::Status SkipToNewest();
  absl::Status Stream(const QueryCallback& callback);

  Database& database_;
  const QueryOptions& options_;
  NameCache names_;
  EventMatcher matcher_;
  int64_t session_ = 0;  // 0 = all that the viewer sees
  Key low_, high_;       // what is asked for lies strictly between
  int64_t after_seq_ = 0;
  int64_t until_seq_ = 0;
  uint64_t damaged_ = 0;
};

}  // namespace agentmon
