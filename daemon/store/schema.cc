#include "daemon/store/schema.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr int kApplicationId = 0x41474d4e;  // "AGMN"

constexpr char kTables[] = R"sql(
CREATE TABLE sessions(num INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, uid INTEGER NOT NULL,
  name TEXT NOT NULL, started_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, data BLOB);
CREATE INDEX sessions_name ON sessions(name);
CREATE INDEX sessions_started ON sessions(started_ns);
CREATE TABLE usage(session INTEGER PRIMARY KEY, events INTEGER NOT NULL, denials INTEGER NOT NULL,
  plain_rows INTEGER NOT NULL, plain_bytes INTEGER NOT NULL, plain_from INTEGER NOT NULL,
  kept_rows INTEGER NOT NULL, kept_bytes INTEGER NOT NULL, kept_from INTEGER NOT NULL);
CREATE TABLE strings(session INTEGER NOT NULL, id INTEGER NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY(session, id)) WITHOUT ROWID;
CREATE TABLE events(seq INTEGER PRIMARY KEY, session INTEGER NOT NULL, wall_ns INTEGER NOT NULL,
  kind INTEGER NOT NULL, pid INTEGER NOT NULL, exe INTEGER NOT NULL, decision INTEGER NOT NULL,
  enforced INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX events_session ON events(session, wall_ns);
CREATE INDEX events_time ON events(wall_ns);
CREATE INDEX events_kept ON events(wall_ns, seq, session) WHERE (kind >= 50 OR decision IN (5, 6));
CREATE TABLE batches(last_seq INTEGER PRIMARY KEY, number INTEGER NOT NULL, first_seq INTEGER NOT NULL,
  min_ns INTEGER NOT NULL, max_ns INTEGER NOT NULL, content_pruned INTEGER NOT NULL, parts BLOB NOT NULL,
  hash BLOB NOT NULL);
CREATE TABLE anchor(number INTEGER NOT NULL, last_seq INTEGER NOT NULL, hash BLOB NOT NULL,
  events INTEGER NOT NULL);
INSERT INTO anchor VALUES(0, 0, zeroblob(32), 0);
INSERT INTO sessions VALUES(1, '', 0, '', 0, 0, NULL);
)sql";

// secure_delete is on in Debian's build and would make pruning write every page twice.
constexpr char kWriterSettings[] =
    "PRAGMA trusted_schema=OFF; PRAGMA temp_store=MEMORY; PRAGMA secure_delete=OFF;"
    "PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=100000000;"
    "PRAGMA cache_size=-65536;";

absl::Status MakeTables(Database& database) {
  RETURN_IF_ERROR(database.Exec("BEGIN IMMEDIATE"));
  RETURN_IF_ERROR(database.Exec(kTables));
  const std::string versions = absl::StrCat("PRAGMA application_id=", kApplicationId,
                                            "; PRAGMA user_version=", kSchemaVersion, "; COMMIT");
  return database.Exec(versions.c_str());
}

absl::Status NewerSchema(const StateDir& dir, int64_t version) {
  return absl::FailedPreconditionError(absl::StrCat(
      dir.database_path(), " has schema ", version, ", this agentmond knows schemas up to ", kSchemaVersion,
      ": install the agentmon that wrote it, or move the file away to start a new one"));
}

// Whether the file is a whole database of ours; true when it is a new, empty one.
absl::StatusOr<bool> CheckContent(Database& database, const StateDir& dir) {
  ASSIGN_OR_RETURN(const int64_t objects, database.QueryInt("SELECT count(*) FROM sqlite_master"));
  ASSIGN_OR_RETURN(const int64_t version, database.QueryInt("PRAGMA user_version"));
  if (version > kSchemaVersion) return NewerSchema(dir, version);
  if (objects == 0 && version == 0) return true;
  ASSIGN_OR_RETURN(const int64_t application, database.QueryInt("PRAGMA application_id"));
  if (application != kApplicationId || version != kSchemaVersion) {
    return absl::DataLossError("a database, but not one of agentmon");
  }
  if (dir.DatabaseBytes() <= kWholeCheckBytes) {
    ASSIGN_OR_RETURN(const std::string result, database.QueryText("PRAGMA quick_check(1)"));
    if (result != "ok") return absl::DataLossError(result);
  }
  // The ends of the tables are what the writer needs at once.
  const absl::Status readable =
      database
          .QueryInt(
              "SELECT (SELECT max(last_seq) FROM batches) + (SELECT max(seq) FROM events) + "
              "(SELECT length(hash) FROM anchor) + (SELECT max(num) FROM sessions)")
          .status();
  if (absl::IsInternal(readable)) return absl::DataLossError(readable.message());  // a table is missing
  RETURN_IF_ERROR(readable);
  return false;
}

absl::StatusOr<Database> TryOpen(const StateDir& dir) {
  ASSIGN_OR_RETURN(Database database, Database::Open(dir.database_path(), Database::Mode::kReadWriteCreate));
  database.FoldLogOnClose(false);  // a damaged database is set aside as it was found
  ASSIGN_OR_RETURN(const bool empty, CheckContent(database, dir));
  if (empty) {
    const std::string layout =
        absl::StrCat("PRAGMA page_size=", kPageBytes, "; PRAGMA auto_vacuum=INCREMENTAL");
    RETURN_IF_ERROR(database.Exec(layout.c_str()));
  }
  ASSIGN_OR_RETURN(const std::string mode, database.QueryText("PRAGMA journal_mode=WAL"));
  if (mode != "wal") return absl::UnavailableError(absl::StrCat("no write-ahead log here, but ", mode));
  RETURN_IF_ERROR(database.Exec(kWriterSettings));
  if (empty) RETURN_IF_ERROR(MakeTables(database));
  database.FoldLogOnClose(true);
  return database;
}

}  // namespace

absl::StatusOr<OpenedDatabase> OpenForWriting(const StateDir& dir, absl::Time now) {
  ASSIGN_OR_RETURN(std::string set_aside, dir.PrepareDatabase(now));
  if (!set_aside.empty()) LogError("store: ", set_aside);
  absl::StatusOr<Database> database = TryOpen(dir);
  if (absl::IsDataLoss(database.status())) {
    const std::string why(database.status().message());
    ASSIGN_OR_RETURN(const std::string aside, dir.SetAside(now));
    set_aside = absl::StrCat("damaged database (", why, ") set aside as ", aside);
    LogError("store: ", set_aside);
    database = TryOpen(dir);
  }
  if (!database.ok()) return database.status();
  return OpenedDatabase{*std::move(database), std::move(set_aside)};
}

absl::StatusOr<Database> OpenForReading(const StateDir& dir, absl::Duration busy) {
  ASSIGN_OR_RETURN(Database database, Database::Open(dir.database_path(), Database::Mode::kReadOnly));
  const std::string settings = absl::StrCat(
      "PRAGMA trusted_schema=OFF; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-4096; PRAGMA busy_timeout=",
      absl::ToInt64Milliseconds(busy));
  RETURN_IF_ERROR(database.Exec(settings.c_str()));
  ASSIGN_OR_RETURN(const int64_t version, database.QueryInt("PRAGMA user_version"));
  if (version != kSchemaVersion) return absl::UnavailableError("the database is being made");
  return database;
}

}  // namespace agentmon
