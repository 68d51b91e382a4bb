// The writer's view of tables sessions, usage and strings. Writer thread only; inside a transaction of
// the writer's. After a failed transaction it has to be loaded anew.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agentmon/v1/sessions.pb.h"
#include "daemon/store/sqlite.h"

namespace agentmon {

// Rows of one class (plain or kept) that are in the database.
struct ClassUsage {
  uint64_t rows = 0;
  uint64_t bytes = 0;
  uint64_t from_seq = 0;  // no row of the class lies before this
};

struct SessionUsage {
  uint64_t events = 0;  // ever stored
  uint64_t denials = 0;
  ClassUsage plain;
  ClassUsage kept;

  uint64_t bytes() const { return plain.bytes + kept.bytes; }
  ClassUsage& of(bool kept_class) { return kept_class ? kept : plain; }
};

// sessions.num of id "": what the daemon says of itself, outside any session.
inline constexpr int64_t kDaemonSession = 1;

class SessionTable {
 public:
  // More executables than this in a session are stored with each event.
  static constexpr size_t kMaxStrings = 4096;
  static constexpr size_t kMaxStringBytes = 1024;

  struct Entry {
    int64_t num = 0;
    std::string id;
    uint32_t uid = 0;
    int64_t ended_ns = 0;
    SessionUsage usage;
    bool changed = false;                                                // usage is not saved yet
    std::unique_ptr<absl::flat_hash_map<std::string, int64_t>> strings;  // null = not loaded
  };

  explicit SessionTable(Database& database) : database_(database) {}

  absl::Status Load();
  // Finds a session or makes a row without a description, which only an admin sees.
  absl::StatusOr<Entry*> FindOrMake(absl::string_view id);
  absl::Status Upsert(const v1::Session& session, absl::string_view bytes);
  // The number of the executable's name in this session; 0 = it has to stay in the event.
  absl::StatusOr<int64_t> InternExe(Entry& entry, absl::string_view exe);

  void MarkChanged(Entry& entry);
  absl::Status SaveChanged();
  // Ended sessions without rows go; at most `limit`.
  absl::StatusOr<int> RemoveEmpty(int64_t ended_before_ns, int limit);
  // Interned names are read again when they are needed.
  void DropStrings();

  absl::flat_hash_map<int64_t, std::unique_ptr<Entry>>& entries() { return by_num_; }
  uint64_t rows() const;

 private:
  absl::StatusOr<Entry*> Insert(const v1::Session& session, absl::string_view bytes, bool described);
  absl::Status LoadStrings(Entry& entry);

  Database& database_;
  absl::flat_hash_map<int64_t, std::unique_ptr<Entry>> by_num_;
  absl::flat_hash_map<std::string, Entry*> by_id_;
  std::vector<Entry*> changed_;
  Entry* last_found_ = nullptr;
  Statement insert_, update_, save_, add_string_;
};

}  // namespace agentmon
