// The tables, and how a database is opened so that they can be relied on.
//
//   sessions  num, id, uid, name, started_ns, ended_ns, data: a serialized v1::Session, NULL when the store
//             saw events of a session that nobody described (num 1 is the daemon's own, id "")
//   usage     per session: events and denials ever stored; rows and bytes that are there now, apart for
//             plain rows and kept ones (see row.h), and the sequence number from which on they lie
//   strings   executables, numbered per session
//   events    one row per event; data is a serialized Event without what the other columns say
//   batches   what was committed at once: range, time range, parts and hash (see chain.h)
//   anchor    one row: the last batch whose own row is gone, and how much went with it
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/store/sqlite.h"
#include "daemon/store/state_dir.h"

namespace agentmon {

inline constexpr int kSchemaVersion = 1;
inline constexpr int kPageBytes = 8192;
// Files up to this size are checked in whole when they are opened (0.1 s); damage in a larger one is found
// when it is read.
inline constexpr uint64_t kWholeCheckBytes = 64 << 20;

struct OpenedDatabase {
  Database database;
  std::string set_aside;  // one line when something damaged was set aside, else empty
};

// For the one writer. Damaged files and such that are not ours are set aside and a new database is made.
// FailedPrecondition: the database is of a newer agentmon; nothing was changed. Other codes: sqlite.h.
absl::StatusOr<OpenedDatabase> OpenForWriting(const StateDir& dir, absl::Time now);

// For queries. Never writes, never waits longer than `busy` for a lock.
absl::StatusOr<Database> OpenForReading(const StateDir& dir, absl::Duration busy);

}  // namespace agentmon
