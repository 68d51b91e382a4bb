// Writes batches of events into an open database, one transaction each. Writer thread only. After an
// error other than Busy the object must be thrown away: what it knows may differ from the file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "daemon/event/event.h"
#include "daemon/store/chain.h"
#include "daemon/store/session_table.h"
#include "daemon/store/sqlite.h"

namespace agentmon {

class BatchWriter {
 public:
  struct Head {
    uint64_t number = 0;  // of the last batch
    uint64_t last_seq = 0;
    std::string hash;
  };

  // last_known_seq: a new database goes on counting there.
  static absl::StatusOr<std::unique_ptr<BatchWriter>> Create(Database database, uint64_t last_known_seq);

  // One transaction. Begin fails with Unavailable, and nothing else is changed, while somebody else writes.
  absl::Status Begin();
  absl::Status PutSession(const v1::Session& session, absl::string_view bytes);
  absl::Status PutEvent(Event& event);  // gives the event its seq
  absl::Status Commit();
  void Rollback();

  const Head& head() const { return head_; }
  SessionTable& sessions() { return *sessions_; }
  Database& database() { return database_; }

 private:
  struct OpenPart {
    Part part;
    PartHash hash;
    SessionTable::Entry* session;
  };

  explicit BatchWriter(Database database) : database_(std::move(database)) {}
  absl::Status Load(uint64_t last_known_seq);
  absl::Status StartAt(uint64_t last_known_seq);
  OpenPart& PartOf(SessionTable::Entry& session, bool kept);
  absl::Status WriteBatchRow();

  Database database_;
  std::unique_ptr<SessionTable> sessions_;
  Statement begin_, commit_, insert_event_, insert_batch_;
  Head head_;
  Batch batch_;  // the open one
  std::vector<OpenPart> parts_;
  absl::flat_hash_map<std::pair<int64_t, bool>, size_t> part_index_;
  std::string data_;
};

}  // namespace agentmon
