#include "daemon/store/session_query.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr size_t kShortestPrefix = 4;
constexpr size_t kMostCandidates = 5;

constexpr char kSelect[] =
    "SELECT num, id, data, events, denials FROM sessions LEFT JOIN usage ON session = num "
    "WHERE num > 1 AND (? OR uid = ?) AND ";

absl::StatusOr<FoundSession> FromRow(const Statement& row) {
  FoundSession found;
  found.num = row.ColumnInt(0);
  const absl::string_view data = row.ColumnBytes(2);
  if (!found.session.ParseFromArray(data.data(), static_cast<int>(data.size()))) {
    return absl::DataLossError(absl::StrCat("session ", row.ColumnBytes(1), " is damaged"));
  }
  found.session.set_id(std::string(row.ColumnBytes(1)));
  found.session.set_events(static_cast<uint64_t>(row.ColumnInt(3)));
  found.session.set_denials(static_cast<uint64_t>(row.ColumnInt(4)));
  return found;
}

// At most kMostCandidates + 1 of the sessions for which `condition` holds; `key` is bound as often as it
// asks.
absl::StatusOr<std::vector<FoundSession>> Select(Database& database, absl::string_view condition,
                                                 absl::string_view key, int times, Viewer viewer) {
  ASSIGN_OR_RETURN(Statement select, database.Prepare(absl::StrCat(
                                         kSelect, condition, " ORDER BY started_ns DESC, num DESC LIMIT ",
                                         kMostCandidates + 1)));
  select.Int(!viewer).Int(viewer.value_or(0));
  for (int i = 0; i < times; ++i) select.Text(key);
  std::vector<FoundSession> sessions;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return sessions;
    ASSIGN_OR_RETURN(FoundSession found, FromRow(select));
    sessions.push_back(std::move(found));
  }
}

absl::Status Ambiguous(absl::string_view key, const std::vector<FoundSession>& candidates) {
  std::string list;
  for (size_t i = 0; i < candidates.size() && i < kMostCandidates; ++i) {
    const v1::Session& session = candidates[i].session;
    absl::StrAppend(&list, i == 0 ? "" : ", ", session.id());
    if (!session.name().empty()) absl::StrAppend(&list, " (", session.name(), ")");
  }
  if (candidates.size() > kMostCandidates) absl::StrAppend(&list, " and more");
  return absl::InvalidArgumentError(absl::StrCat("'", key, "' means several sessions: ", list));
}

}  // namespace

absl::StatusOr<FoundSession> FindSession(Database& database, absl::string_view key, Viewer viewer) {
  if (key.empty()) {
    ASSIGN_OR_RETURN(std::vector<FoundSession> newest, Select(database, "data IS NOT NULL", "", 0, viewer));
    if (newest.empty()) return absl::NotFoundError("no session yet");
    return std::move(newest.front());
  }
  const struct {
    const char* condition;
    int times;
  } ways[] = {{"id = ?", 1}, {"name = ?", 1}, {"id >= ? AND id < ? || char(1114111)", 2}};
  for (const auto& way : ways) {
    if (way.times == 2 && key.size() < kShortestPrefix) continue;
    ASSIGN_OR_RETURN(std::vector<FoundSession> found,
                     Select(database, way.condition, key, way.times, viewer));
    if (found.size() > 1) return Ambiguous(key, found);
    if (!found.empty()) return std::move(found.front());
  }
  return absl::NotFoundError(absl::StrCat("no session '", key, "' (an id, its first ", kShortestPrefix,
                                          " or more characters, or a name)"));
}

absl::StatusOr<std::vector<v1::Session>> ListSessions(Database& database, Viewer viewer, bool ended,
                                                      uint32_t limit) {
  ASSIGN_OR_RETURN(
      Statement select,
      database.Prepare(absl::StrCat(
          kSelect, "data IS NOT NULL AND (? OR ended_ns = 0) ORDER BY started_ns DESC, num DESC LIMIT ?")));
  select.Int(!viewer).Int(viewer.value_or(0)).Int(ended);
  select.Int(limit == 0 ? std::numeric_limits<int64_t>::max() : limit);
  std::vector<v1::Session> sessions;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return sessions;
    ASSIGN_OR_RETURN(FoundSession found, FromRow(select));
    sessions.push_back(std::move(found.session));
  }
}

}  // namespace agentmon
