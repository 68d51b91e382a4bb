// Finding sessions in the database. Any thread, on a connection of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agentmon/v1/sessions.pb.h"
#include "daemon/store/sqlite.h"

namespace agentmon {

// Who asks: a uid sees the sessions of that uid, nullopt sees all.
using Viewer = std::optional<uint32_t>;

struct FoundSession {
  int64_t num = 0;      // sessions.num
  v1::Session session;  // with the counts of stored events and denials
};

// key: an id, a name, or an id's prefix of at least 4 characters, in this order; empty = the newest.
// NotFound; InvalidArgument with the candidates when several are meant.
absl::StatusOr<FoundSession> FindSession(Database& database, absl::string_view key, Viewer viewer);

// Newest first; limit 0 = all.
absl::StatusOr<std::vector<v1::Session>> ListSessions(Database& database, Viewer viewer, bool ended,
                                                      uint32_t limit);

}  // namespace agentmon
