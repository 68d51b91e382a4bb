// What is removed, and when. Writer thread only, in transactions of some 50 ms.
//
// The order in which room is made:
//   1. rows older than max_age go; kept rows (denials, questions, losses, session changes) after kept_max_age
//   2. a session over its share of max_bytes loses its own oldest plain rows, then its own oldest kept ones;
//      kept rows alone may take half of the share
//   3. while several uids have rows, one over its share loses the oldest rows of its sessions, but not of
//   small
//      ones
//   4. over max_bytes, the oldest plain rows go, but not of small sessions nor of small uids; kept rows in
//   the
//      same way once no plain row is left
// Small is less than half the average: of the uid's sessions, of the uids. So whoever floods the store pays
// for it, no plain row pushes out a kept one, and sessions of like size lose their oldest rows in turn.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "daemon/store/batch_writer.h"

namespace agentmon {

struct RetentionLimits {
  uint64_t max_bytes = uint64_t{2} << 30;  // database and log together
  absl::Duration max_age = absl::Hours(24 * 90);
  absl::Duration kept_max_age = absl::Hours(24 * 365);  // max_age when that is longer
  double session_share = 0.5;
  double uid_share = 0.8;
  uint64_t max_pruned_batches = 100'000;  // more are folded into the chain's anchor
};

// A session with rows of the class that is to shrink.
struct PruneCandidate {
  int64_t session = 0;
  uint32_t uid = 0;
  uint64_t bytes = 0;
  uint64_t from_seq = 0;
};
// The candidates that are not small; none only when there are none.
std::vector<PruneCandidate> PickVictims(const std::vector<PruneCandidate>& candidates);

class Retention {
 public:
  Retention(BatchWriter& file, const Clock& clock, RetentionLimits limits);

  void SetLimits(const RetentionLimits& limits) { limits_ = limits; }
  // Makes room as fast as rows come in; returns soon while the limit is kept. True when there was something
  // to do.
  absl::StatusOr<bool> AfterBatch();
  // Does all that is due, gives free pages back, forgets ended sessions without rows.
  absl::Status WhenIdle();
  // Wall time of the oldest row, 0 = no rows.
  int64_t OldestNs();

 private:
  // What loses its oldest rows, all together: batch by batch, so that pages are emptied and not only thinned.
  struct Victims {
    std::vector<int64_t> sessions;  // sorted; never empty
    bool kept = false;
    uint64_t from_seq = 0;  // no row of theirs lies before this
  };

  absl::Status Prepare();
  absl::StatusOr<bool> PruneSlice(bool by_age);
  absl::StatusOr<bool> PruneOld(absl::Time until);
  static Victims MakeVictims(const std::vector<PruneCandidate>& picked, bool kept);
  std::optional<Victims> OverShare() const;
  std::optional<Victims> PickIn(std::optional<uint32_t> uid) const;
  absl::Status Prune(const Victims& victims);
  // Removes the rows of one class from the first batch at or after `seq` that has rows. `sessions` null: of
  // all sessions, and only when `seq` lies in that batch.
  struct Pruned {
    uint64_t last_seq = 0;  // of the batch, 0 = no such batch
    uint64_t bytes = 0;
  };
  absl::StatusOr<Pruned> PruneBatchAt(uint64_t seq, const std::vector<int64_t>* sessions, bool kept);
  absl::Status RemoveRows(const Batch& batch, const std::vector<Part*>& parts, bool all_of_class);
  absl::Status FoldPrunedBatches();
  absl::Status GiveBackPages(absl::Duration budget);
  absl::StatusOr<uint64_t> UsedBytes();
  uint64_t TargetBytes() const;
  std::vector<PruneCandidate> Candidates(bool kept, std::optional<uint32_t> uid) const;

  BatchWriter& file_;
  const Clock& clock_;
  RetentionLimits limits_;
  bool prepared_ = false;
  Statement page_count_, free_count_, oldest_, find_batch_, remove_, remove_class_, mark_batch_;
  std::optional<uint64_t> pruned_batches_;
  int64_t plain_from_ns_ = 0;  // no plain row is older
  absl::Time age_checked_ = absl::InfinitePast();
};

}  // namespace agentmon
