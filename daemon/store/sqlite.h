// SQLite as values with absl::Status. One connection belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;
struct sqlite3_stmt;

namespace agentmon {

// The canonical codes, so that callers can tell what to do:
//   DataLoss           the file is damaged or is no database
//   Unavailable        another connection holds a lock; or the device failed: try again
//   ResourceExhausted  disk or quota full: try again
//   PermissionDenied   read-only or not to be opened: try again
//   Internal           a bug of ours
absl::Status SqliteStatus(sqlite3* db, int code, absl::string_view what);

// A prepared statement. Bound bytes are not copied: they must live until Reset or Run.
class Statement {
 public:
  Statement() = default;
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&& other) noexcept;
  ~Statement();

  bool valid() const { return statement_ != nullptr; }
  // Binds the next parameter, starting with ?1 after Reset.
  Statement& Int(int64_t value);
  Statement& Text(absl::string_view value);
  Statement& Blob(absl::string_view value);

  // True: a row is there. False: done.
  absl::StatusOr<bool> Step();
  // Steps to the end and resets.
  absl::Status Run();
  void Reset();

  int64_t ColumnInt(int column) const;
  absl::string_view ColumnBytes(int column) const;  // valid until the next Step or Reset

 private:
  sqlite3_stmt* statement_ = nullptr;
  int next_parameter_ = 1;
};

// A connection. Never follows a symbolic link in the path's last component.
class Database {
 public:
  enum class Mode { kReadOnly, kReadWriteCreate };
  static absl::StatusOr<Database> Open(const std::string& path, Mode mode);

  Database() = default;
  Database(Database&& other) noexcept;
  Database& operator=(Database&& other) noexcept;
  ~Database();

  absl::Status Exec(const char* sql);
  absl::StatusOr<Statement> Prepare(absl::string_view sql);
  // The first column of the first row, 0 when there is none.
  absl::StatusOr<int64_t> QueryInt(absl::string_view sql);
  absl::StatusOr<std::string> QueryText(absl::string_view sql);

  int64_t Changes() const;
  bool in_transaction() const;
  void ReleaseMemory();
  // Folds the write-ahead log into the database and cuts it to nothing; false when a reader or
  // writer prevented that.
  bool Checkpoint();
  // Whether closing the last connection does the same; it does unless told otherwise.
  void FoldLogOnClose(bool fold);

 private:
  sqlite3* db_ = nullptr;
};

}  // namespace agentmon
