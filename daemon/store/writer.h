// The store's thread: takes what waits in the intake, writes it in batches, prunes, and keeps on trying
// while the database cannot be written. Sleeps without a timer while nothing waits, but for one look an
// hour for events that became too old.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "daemon/event/event.h"
#include "daemon/store/batch_writer.h"
#include "daemon/store/intake.h"
#include "daemon/store/retention.h"
#include "daemon/store/state_dir.h"

namespace agentmon {

class Writer {
 public:
  // Writer thread. `repeated`: the event was given before, without a number, when it could not be stored.
  using OnStored = std::function<void(const Event& event, bool repeated)>;

  struct Options {
    RetentionLimits retention;
    uint64_t max_log_bytes = 1 << 30;  // writing stops when the write-ahead log is larger
    absl::Duration gather = absl::Milliseconds(50);
    absl::Duration idle_after = absl::Seconds(5);
    OnStored on_stored;
    // Writer thread: the end of a session is in the database.
    std::function<void(const std::string& id)> on_session_ended;
    std::function<void()> on_file_changed;  // readers must open the database anew
    std::function<void()> on_idle;
  };

  struct State {
    std::string trouble;    // why nothing is written now, empty when all is well
    std::string set_aside;  // what was found damaged since the daemon started
    uint64_t rows = 0;
    uint64_t last_seq = 0;
    int64_t oldest_ns = 0;
  };

  Writer(const StateDir& dir, const Clock& clock, Intake& intake, Options options);
  ~Writer();

  // Opens the database and starts the thread. An error only when the daemon must not run on this database
  // (FailedPrecondition: newer schema, or a file that is not ours to read and write); any other trouble
  // stands in state() and is tried again.
  absl::Status Start();
  // Writes what waits, but tries no longer than `patience`, folds the log in and closes.
  void Stop(absl::Duration patience);

  State state() const;
  // Any thread. Holds from the next batch on.
  void SetRetention(uint64_t max_bytes, absl::Duration max_age);

 private:
  void Run();
  absl::Duration SleepTime() const;
  void Work();
  void Idle();
  bool InTrouble() const { return !trouble_.empty(); }

  absl::Status EnsureOpen();
  absl::Status WriteBatch();
  absl::Status PutAll(size_t chunks, const Intake::Losses& losses);
  absl::Status PutChunk(const Intake::Chunk& chunk);
  absl::Status PutLosses(const Intake::Losses& losses);
  absl::Status PutLoss(const std::string& session, v1::Source source, const std::string& where,
                       uint64_t lost);
  Event& NextEvent();
  void Published(size_t chunks);
  void PublishWaiting();
  void OnFailure(const absl::Status& status, bool in_transaction);
  void SetAside(const absl::Status& why);
  void OnSuccess();
  void UpdateState();
  void LogHead(bool now);
  RetentionLimits limits() const;

  const StateDir& dir_;
  const Clock& clock_;
  Intake& intake_;
  const Options options_;
  std::thread thread_;

  // Writer thread only.
  std::unique_ptr<BatchWriter> file_;     // null = not open
  std::unique_ptr<Retention> retention_;  // of file_
  std::pair<uint64_t, uint64_t> inode_;   // of file_
  std::deque<Intake::Chunk> pending_;
  std::vector<Event> events_;  // of the batch; kept, since parsing into used ones is cheaper
  size_t used_events_ = 0;
  std::map<std::string, std::string> live_sessions_;  // for a new database
  std::vector<std::string> ended_in_batch_;
  bool replay_sessions_ = false;
  std::string trouble_;
  std::string set_aside_;
  bool tell_set_aside_ = false;  // by a LOSS event
  int internal_errors_ = 0;
  uint64_t last_seq_ = 0;
  absl::Time retry_at_ = absl::InfinitePast();
  absl::Duration backoff_;
  absl::Time head_logged_ = absl::InfinitePast();
  uint64_t logged_seq_ = 0;
  bool idle_done_ = false;
  bool log_stays_ = false;

  mutable absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_);
  RetentionLimits limits_ ABSL_GUARDED_BY(mutex_);
  absl::Time stop_by_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

}  // namespace agentmon
