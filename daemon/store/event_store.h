// The timeline on disk: appends events, answers queries, keeps itself within its limits.
//
// Built so that nothing of the disk reaches the core thread: OnEvent and UpsertSession only put into a
// bounded queue, a thread of the store's own writes. While the database cannot be written (disk full,
// read-only, locked, damaged) events wait in that queue; what finds no room is counted and told by LOSS
// events once writing goes on. Live subscribers are fed by on_stored, from the store's thread, with events
// that have their number; while nothing can be stored they get them with seq 0 instead.
//
// A damaged database is set aside as agentmon.db.corrupt-TIME and a new one is made.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "agentmon/v1/host.pb.h"
#include "agentmon/v1/sessions.pb.h"
#include "agentmon/v1/timeline.pb.h"
#include "common/base/clock.h"
#include "daemon/event/event.h"
#include "daemon/store/intake.h"
#include "daemon/store/query.h"
#include "daemon/store/reader_pool.h"
#include "daemon/store/retention.h"
#include "daemon/store/session_query.h"
#include "daemon/store/state_dir.h"
#include "daemon/store/writer.h"

namespace agentmon {

class EventStore : public EventSink {
 public:
  struct Options {
    std::string dir;               // the state directory; made when missing
    const Clock* clock = nullptr;  // outlives the store
    Intake::Limits queue;
    Writer::Options writer;  // on_stored: see above; on_file_changed and on_idle are the store's own
  };

  // Fails only when the daemon must not run with this directory: PermissionDenied or NotFound (it is not
  // ours, or cannot be made), FailedPrecondition (a database of a newer agentmon, or files of it that are
  // not ours to read and write). Otherwise see Status().
  static absl::StatusOr<std::unique_ptr<EventStore>> Open(Options options);
  ~EventStore() override;  // Close(2 s)

  // Any thread. Never blocks.
  void OnEvent(const Event& event) override;
  // Adds or replaces what is known of a session; its id must not change. Any thread. Never blocks.
  void UpsertSession(const v1::Session& session);

  // Any thread; block on the disk, but neither on the writer nor the writer on them. They see all that was
  // accepted before the call, unless writing it takes longer than a quarter second.
  absl::Status Query(const QueryOptions& options, const QueryCallback& callback);
  absl::StatusOr<v1::Session> FindSession(absl::string_view key, Viewer viewer);
  absl::StatusOr<std::vector<v1::Session>> ListSessions(Viewer viewer, bool ended, uint32_t limit);
  absl::StatusOr<v1::VerifyResponse> Verify(const std::function<bool()>& cancelled = nullptr);

  // Any thread, at once.
  v1::StoreState Status() const;
  // The owner of a session that runs or ended not long ago.
  std::optional<uint32_t> OwnerOf(absl::string_view session) const;
  uint64_t last_seq() const;  // of the last event stored

  // Any thread, at once. Holds from the next batch on.
  void SetRetention(uint64_t max_bytes, absl::Duration max_age) { writer_.SetRetention(max_bytes, max_age); }
  // True once all that was accepted before the call is stored.
  bool Flush(absl::Duration timeout);
  // Writes what waits, trying no longer than `patience`, and folds the log in. Later events are counted lost.
  void Close(absl::Duration patience);

 private:
  EventStore(Options options, StateDir dir);
  absl::Status LoadOwners();
  absl::StatusOr<ReaderPool::Lease> Reader();
  absl::Status Noticed(absl::Status status);
  void OnSessionWritten(const std::string& id);
  std::vector<v1::Session> Unwritten(Viewer viewer) const;
  std::optional<v1::Session> FindUnwritten(absl::string_view key, Viewer viewer) const;

  const StateDir dir_;
  Intake intake_;
  ReaderPool readers_;
  Writer writer_;

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, uint32_t> owners_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> ended_ ABSL_GUARDED_BY(mutex_);  // of owners_, oldest first
  // Sessions that have ended and wait to be written: the database does not know their end, or them, yet.
  std::map<std::string, v1::Session> unwritten_ ABSL_GUARDED_BY(mutex_);
  std::string damage_ ABSL_GUARDED_BY(mutex_);  // found by a reader
};

}  // namespace agentmon
