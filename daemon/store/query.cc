#include "daemon/store/query.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr absl::Duration kSliceTime = absl::Milliseconds(250);
constexpr int kRowsPerClockRead = 64;
// So many events are held in memory to be turned round; for more the place of the first is looked up.
constexpr uint32_t kMostHeld = 10'000;
constexpr int64_t kMostInt = std::numeric_limits<int64_t>::max();

// Kept rows are few among many and have an index of their own.
bool KeptOnly(const v1::EventFilter& filter) {
  if (filter.decision() == v1::ASK || filter.decision() == v1::DENY) return true;
  return filter.kinds_size() > 0 && std::all_of(filter.kinds().begin(), filter.kinds().end(), [](int kind) {
           return IsKept(static_cast<v1::EventKind>(kind), v1::DECISION_UNSPECIFIED);
         });
}

}  // namespace

absl::StatusOr<std::string> NameCache::Select(Statement& statement, absl::string_view sql, int64_t a,
                                              int64_t b) {
  if (!statement.valid()) {
    ASSIGN_OR_RETURN(statement, database_.Prepare(sql));
  }
  statement.Reset();
  ASSIGN_OR_RETURN(const bool row, statement.Int(a).Int(b).Step());
  std::string value = row ? std::string(statement.ColumnBytes(0)) : std::string();
  statement.Reset();
  return value;
}

absl::StatusOr<std::string> NameCache::SessionId(int64_t session) {
  if (const auto found = sessions_.find(session); found != sessions_.end()) return found->second;
  ASSIGN_OR_RETURN(std::string id,
                   Select(session_, "SELECT id FROM sessions WHERE num = ? AND ? = 0", session, 0));
  return sessions_[session] = std::move(id);
}

absl::StatusOr<std::string> NameCache::Exe(int64_t session, int64_t exe) {
  if (exe == 0) return std::string();
  if (const auto found = exes_.find({session, exe}); found != exes_.end()) return found->second;
  ASSIGN_OR_RETURN(std::string name,
                   Select(exe_, "SELECT value FROM strings WHERE session = ? AND id = ?", session, exe));
  return exes_[{session, exe}] = std::move(name);
}

absl::Status EventQuery::Run(const QueryCallback& callback) {
  RETURN_IF_ERROR(Resolve());
  if (options_.limit != 0 && options_.limit <= kMostHeld) {
    RETURN_IF_ERROR(Newest(callback));
  } else {
    if (options_.limit != 0) RETURN_IF_ERROR(SkipToNewest());
    RETURN_IF_ERROR(Stream(callback));
  }
  if (damaged_ == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(damaged_, " stored events cannot be read; verify the timeline"));
}

absl::Status EventQuery::Resolve() {
  v1::EventFilter filter = options_.filter;
  if (filter.session() != "*") {
    ASSIGN_OR_RETURN(const FoundSession found, FindSession(database_, filter.session(), options_.viewer));
    session_ = found.num;
  }
  filter.clear_session();
  ASSIGN_OR_RETURN(matcher_, EventMatcher::Create(filter));
  low_ = {filter.since_ns() == 0 ? std::numeric_limits<int64_t>::min() : filter.since_ns(), -1};
  high_ = {filter.until_ns() == 0 ? kMostInt : filter.until_ns() - 1, kMostInt};
  if (session_ == 0 && options_.viewer) RETURN_IF_ERROR(NarrowToViewer());
  after_seq_ = static_cast<int64_t>(std::min<uint64_t>(filter.after_seq(), kMostInt));
  until_seq_ = static_cast<int64_t>(std::min<uint64_t>(options_.until_seq, kMostInt));
  if (until_seq_ == 0) {
    ASSIGN_OR_RETURN(until_seq_, database_.QueryInt("SELECT max(last_seq) FROM batches"));
  }
  return absl::OkStatus();
}

// All that a user sees lies between the oldest and the newest event of that user's sessions: what others did
// before and after need not be looked at.
absl::Status EventQuery::NarrowToViewer() {
  ASSIGN_OR_RETURN(
      Statement span,
      database_.Prepare(
          "SELECT min(oldest), max(newest) FROM (SELECT "
          "(SELECT min(wall_ns) FROM events INDEXED BY events_session WHERE session = num) AS oldest, "
          "(SELECT max(wall_ns) FROM events INDEXED BY events_session WHERE session = num) AS newest "
          "FROM sessions WHERE uid = ?)"));
  ASSIGN_OR_RETURN([[maybe_unused]] const bool row, span.Int(*options_.viewer).Step());
  low_.wall_ns = std::max(low_.wall_ns, span.ColumnInt(0));
  high_.wall_ns = std::min(high_.wall_ns, span.ColumnInt(1));
  return absl::OkStatus();
}

absl::StatusOr<Statement> EventQuery::Prepare(Order order) {
  const char* const rows = session_ != 0     ? "session = ?"
                           : options_.viewer ? "session IN (SELECT num FROM sessions WHERE uid = ?)"
                                             : "? = 0";
  const std::string scope = KeptOnly(options_.filter)
                                ? absl::StrCat("INDEXED BY events_kept WHERE ", kKeptSql, " AND ", rows)
                            : session_ != 0 ? absl::StrCat("INDEXED BY events_session WHERE ", rows)
                                            : absl::StrCat("INDEXED BY events_time WHERE ", rows);
  const char* const direction = order == Order::kOldestFirst ? "" : " DESC";
  return database_.Prepare(
      absl::StrCat("SELECT ", kRowColumns, " FROM events ", scope,
                   " AND wall_ns >= ?2 AND wall_ns <= ?3 "
                   "AND (wall_ns > ?2 OR seq > ?4) AND (wall_ns < ?3 OR seq < ?5) AND seq > ?6 AND seq <= ?7 "
                   "ORDER BY wall_ns",
                   direction, ", seq", direction));
}

// Only what needs no other table is asked of SQL, so that rows come one by one and a slice can end in time.
absl::StatusOr<bool> EventQuery::Read(const Statement& row, Event* event) {
  RowView view;
  view.kind = static_cast<v1::EventKind>(row.ColumnInt(3));
  view.pid = static_cast<int32_t>(row.ColumnInt(4));
  view.decision = static_cast<v1::Decision>(row.ColumnInt(6));
  view.enforced = row.ColumnInt(7) != 0;
  if (!matcher_.MatchesColumns(view.kind, view.pid, view.decision, view.enforced)) return false;
  view.seq = static_cast<uint64_t>(row.ColumnInt(0));
  view.session = row.ColumnInt(1);
  view.wall_ns = row.ColumnInt(2);
  view.exe = row.ColumnInt(5);
  ASSIGN_OR_RETURN(const std::string exe, names_.Exe(view.session, view.exe));
  if (view.exe != 0 && !matcher_.MatchesExe(exe)) return false;
  ASSIGN_OR_RETURN(const std::string session_id, names_.SessionId(view.session));
  view.data = row.ColumnBytes(8);
  if (!DecodeRow(view, session_id, exe, event)) {
    ++damaged_;
    return false;
  }
  return matcher_.MatchesExe(event->exe()) && matcher_.MatchesDetail(*event);
}

absl::StatusOr<bool> EventQuery::Slice(Statement& select, Order order,
                                       const std::function<bool(Event&&)>& visit) {
  const absl::Time until = absl::Now() + kSliceTime;
  Key& cursor = order == Order::kOldestFirst ? low_ : high_;
  select.Reset();
  select.Int(session_ != 0 ? session_ : options_.viewer.value_or(0));
  select.Int(low_.wall_ns).Int(high_.wall_ns).Int(low_.seq).Int(high_.seq).Int(after_seq_).Int(until_seq_);
  for (int rows = 1;; ++rows) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) {
      select.Reset();
      return false;
    }
    cursor = {select.ColumnInt(2), select.ColumnInt(0)};
    Event event;
    ASSIGN_OR_RETURN(const bool matches, Read(select, &event));
    const bool full = matches && !visit(std::move(event));
    if (full || (rows % kRowsPerClockRead == 0 && absl::Now() >= until)) break;
  }
  select.Reset();
  return true;
}

// after_slice runs without a transaction; it and visit say false to stop.
absl::Status EventQuery::ForEach(Order order, const std::function<bool(Event&&)>& visit,
                                 const std::function<bool()>& after_slice) {
  ASSIGN_OR_RETURN(Statement select, Prepare(order));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, Slice(select, order, visit));
    if (!after_slice() || !more) return absl::OkStatus();
    if (options_.cancelled && options_.cancelled()) return absl::CancelledError("cancelled");
  }
}

absl::Status EventQuery::Newest(const QueryCallback& callback) {
  std::vector<Event> newest;
  const auto full = [&] { return newest.size() >= options_.limit; };
  RETURN_IF_ERROR(ForEach(
      Order::kNewestFirst,
      [&](Event&& event) {
        newest.push_back(std::move(event));
        return !full();
      },
      [&] { return !full(); }));
  std::reverse(newest.begin(), newest.end());
  for (size_t at = 0; at < newest.size(); at += kQueryChunk) {
    const auto first = newest.begin() + static_cast<ptrdiff_t>(at);
    const auto last = first + static_cast<ptrdiff_t>(std::min(kQueryChunk, newest.size() - at));
    if (!callback({std::make_move_iterator(first), std::make_move_iterator(last)})) break;
  }
  return absl::OkStatus();
}

// Raises low_ to just before the oldest event that is to be given.
absl::Status EventQuery::SkipToNewest() {
  uint32_t seen = 0;
  const Key low = low_, high = high_;
  Key first = low;
  RETURN_IF_ERROR(ForEach(
      Order::kNewestFirst,
      [&](Event&& event) {
        first = {event.wall_ns(), static_cast<int64_t>(event.seq()) - 1};
        return ++seen < options_.limit;
      },
      [&] { return seen < options_.limit; }));
  low_ = seen < options_.limit ? low : first;
  high_ = high;
  return absl::OkStatus();
}

absl::Status EventQuery::Stream(const QueryCallback& callback) {
  std::vector<Event> chunk;
  return ForEach(
      Order::kOldestFirst,
      [&](Event&& event) {
        chunk.push_back(std::move(event));
        return chunk.size() < kQueryChunk;
      },
      [&] { return chunk.empty() || callback(std::exchange(chunk, {})); });
}

}  // namespace agentmon
