#include "daemon/store/sqlite.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

absl::StatusCode CanonicalCode(int code) {
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
      return absl::StatusCode::kDataLoss;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_IOERR:
    case SQLITE_PROTOCOL:
    case SQLITE_NOMEM:
    case SQLITE_INTERRUPT:
    case SQLITE_SCHEMA:
      return absl::StatusCode::kUnavailable;
    case SQLITE_FULL:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::StatusCode::kPermissionDenied;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status SqliteStatus(sqlite3* db, int code, absl::string_view what) {
  const bool own_message = db != nullptr && (sqlite3_errcode(db) & 0xff) == (code & 0xff);
  std::string message = absl::StrCat(what, ": ", own_message ? sqlite3_errmsg(db) : sqlite3_errstr(code));
  const int error = db == nullptr ? 0 : sqlite3_system_errno(db);
  const int primary = code & 0xff;
  if (error != 0 && (primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN || primary == SQLITE_FULL)) {
    absl::StrAppend(&message, " (", ErrnoName(error), ")");
  }
  return absl::Status(CanonicalCode(code), message);
}

Statement::Statement(Statement&& other) noexcept
    : statement_(std::exchange(other.statement_, nullptr)),
      next_parameter_(std::exchange(other.next_parameter_, 1)) {}

Statement& Statement::operator=(Statement&& other) noexcept {
  if (this != &other) {
    sqlite3_finalize(statement_);
    statement_ = std::exchange(other.statement_, nullptr);
    next_parameter_ = std::exchange(other.next_parameter_, 1);
  }
  return *this;
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::Int(int64_t value) {
  sqlite3_bind_int64(statement_, next_parameter_++, value);
  return *this;
}

// An empty view may have no data pointer, which SQLite would take for NULL.
Statement& Statement::Text(absl::string_view value) {
  sqlite3_bind_text64(statement_, next_parameter_++, value.empty() ? "" : value.data(), value.size(),
                      SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}

Statement& Statement::Blob(absl::string_view value) {
  sqlite3_bind_blob64(statement_, next_parameter_++, value.empty() ? "" : value.data(), value.size(),
                      SQLITE_STATIC);
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  absl::Status status = SqliteStatus(sqlite3_db_handle(statement_), code, "database");
  Reset();
  return status;
}

absl::Status Statement::Run() {
  while (true) {
    absl::StatusOr<bool> row = Step();
    if (!row.ok()) return row.status();
    if (!*row) break;
  }
  Reset();
  return absl::OkStatus();
}

void Statement::Reset() {
  sqlite3_reset(statement_);
  next_parameter_ = 1;
}

int64_t Statement::ColumnInt(int column) const { return sqlite3_column_int64(statement_, column); }

absl::string_view Statement::ColumnBytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  return absl::string_view(static_cast<const char*>(data), sqlite3_column_bytes(statement_, column));
}

absl::StatusOr<Database> Database::Open(const std::string& path, Mode mode) {
  Database database;
  const int access =
      mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int code = sqlite3_open_v2(path.c_str(), &database.db_,
                                   access | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, nullptr);
  if (code != SQLITE_OK) return SqliteStatus(database.db_, code, absl::StrCat("open ", path));
  sqlite3_extended_result_codes(database.db_, 1);
  return database;
}

Database::Database(Database&& other) noexcept : db_(std::exchange(other.db_, nullptr)) {}

Database& Database::operator=(Database&& other) noexcept {
  if (this != &other) {
    sqlite3_close_v2(db_);
    db_ = std::exchange(other.db_, nullptr);
  }
  return *this;
}

Database::~Database() { sqlite3_close_v2(db_); }

absl::Status Database::Exec(const char* sql) {
  const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : SqliteStatus(db_, code, "database");
}

absl::StatusOr<Statement> Database::Prepare(absl::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return SqliteStatus(db_, code, "database");
  return Statement(statement);
}

absl::StatusOr<int64_t> Database::QueryInt(absl::string_view sql) {
  ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool row, statement.Step());
  return row ? statement.ColumnInt(0) : 0;
}

absl::StatusOr<std::string> Database::QueryText(absl::string_view sql) {
  ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool row, statement.Step());
  return row ? std::string(statement.ColumnBytes(0)) : std::string();
}

int64_t Database::Changes() const { return sqlite3_changes64(db_); }
bool Database::in_transaction() const { return db_ != nullptr && sqlite3_get_autocommit(db_) == 0; }
void Database::ReleaseMemory() { sqlite3_db_release_memory(db_); }

bool Database::Checkpoint() {
  return sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr) == SQLITE_OK;
}

void Database::FoldLogOnClose(bool fold) {
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, fold ? 0 : 1, nullptr);
}

}  // namespace agentmon
