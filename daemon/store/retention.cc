#include "daemon/store/retention.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "daemon/store/schema.h"

namespace agentmon {
namespace {

constexpr absl::Duration kSlice = absl::Milliseconds(50);
constexpr uint64_t kVictimBytes = 2 << 20;  // then somebody else may be the one to lose
constexpr uint64_t kVictimPart = 64;        // of max_bytes, when that is less
constexpr absl::Duration kAgeCheck = absl::Minutes(1);
constexpr absl::Duration kForgetAfter = absl::Hours(24);
constexpr int kFoldAtOnce = 1000;

struct Average {
  uint64_t bytes = 0;
  uint64_t members = 0;
  bool IsSmall(uint64_t value) const { return value * members * 2 < bytes; }
};

// Somebody else writes: there is time.
absl::StatusOr<bool> LaterIfBusy(const absl::Status& status) {
  if (absl::IsUnavailable(status)) return false;
  return status;
}

}  // namespace

std::vector<PruneCandidate> PickVictims(const std::vector<PruneCandidate>& candidates) {
  std::map<uint32_t, Average> sessions_of;
  Average uids;
  for (const PruneCandidate& candidate : candidates) {
    Average& sessions = sessions_of[candidate.uid];
    sessions.bytes += candidate.bytes;
    ++sessions.members;
    uids.bytes += candidate.bytes;
  }
  uids.members = sessions_of.size();
  std::vector<PruneCandidate> victims;
  for (const PruneCandidate& candidate : candidates) {
    const Average& sessions = sessions_of[candidate.uid];
    if (!uids.IsSmall(sessions.bytes) && !sessions.IsSmall(candidate.bytes)) victims.push_back(candidate);
  }
  return victims;
}

Retention::Retention(BatchWriter& file, const Clock& clock, RetentionLimits limits)
    : file_(file), clock_(clock), limits_(limits) {}

absl::Status Retention::Prepare() {
  if (prepared_) return absl::OkStatus();
  Database& db = file_.database();
  ASSIGN_OR_RETURN(page_count_, db.Prepare("PRAGMA page_count"));
  ASSIGN_OR_RETURN(free_count_, db.Prepare("PRAGMA freelist_count"));
  ASSIGN_OR_RETURN(oldest_, db.Prepare("SELECT wall_ns FROM events ORDER BY wall_ns LIMIT 1"));
  ASSIGN_OR_RETURN(find_batch_,
                   db.Prepare("SELECT last_seq, number, first_seq, min_ns, max_ns, parts FROM batches "
                              "WHERE last_seq >= ? AND content_pruned = 0 ORDER BY last_seq LIMIT 1"));
  ASSIGN_OR_RETURN(
      remove_,
      db.Prepare(absl::StrCat(
          "DELETE FROM events INDEXED BY events_session WHERE session = ? AND wall_ns BETWEEN ? AND ? "
          "AND seq BETWEEN ? AND ? AND ",
          kKeptSql, " = ?")));
  ASSIGN_OR_RETURN(remove_class_, db.Prepare(absl::StrCat("DELETE FROM events WHERE seq BETWEEN ? AND ? AND ",
                                                          kKeptSql, " = ?")));
  ASSIGN_OR_RETURN(mark_batch_,
                   db.Prepare("UPDATE batches SET parts = ?, content_pruned = ? WHERE last_seq = ?"));
  prepared_ = true;
  return absl::OkStatus();
}

uint64_t Retention::TargetBytes() const {
  return limits_.max_bytes - std::min<uint64_t>(limits_.max_bytes / 8, 100 << 20);  // room for the log
}

absl::StatusOr<uint64_t> Retention::UsedBytes() {
  RETURN_IF_ERROR(Prepare());
  ASSIGN_OR_RETURN([[maybe_unused]] const bool a, page_count_.Step());
  ASSIGN_OR_RETURN([[maybe_unused]] const bool b, free_count_.Step());
  const int64_t pages = page_count_.ColumnInt(0) - free_count_.ColumnInt(0);
  page_count_.Reset();
  free_count_.Reset();
  return static_cast<uint64_t>(pages) * kPageBytes;
}

int64_t Retention::OldestNs() {
  if (!Prepare().ok()) return 0;
  const absl::StatusOr<bool> row = oldest_.Step();
  const int64_t oldest_ns = row.ok() && *row ? oldest_.ColumnInt(0) : 0;
  oldest_.Reset();
  return oldest_ns;
}

absl::StatusOr<bool> Retention::AfterBatch() {
  const bool by_age = absl::Now() - age_checked_ >= kAgeCheck;
  ASSIGN_OR_RETURN(uint64_t used, UsedBytes());
  if (!by_age && used <= TargetBytes() && !OverShare()) return false;
  do {
    ASSIGN_OR_RETURN(const bool more, PruneSlice(by_age));
    if (!more) break;
    ASSIGN_OR_RETURN(used, UsedBytes());
  } while (used > limits_.max_bytes);
  return true;
}

absl::Status Retention::WhenIdle() {
  const absl::Time until = absl::Now() + absl::Seconds(2);
  bool more = true;
  while (more && absl::Now() < until) {
    ASSIGN_OR_RETURN(more, PruneSlice(true));
  }
  if (const absl::Status begun = file_.Begin(); !begun.ok()) return LaterIfBusy(begun).status();
  const int64_t ended_before_ns = absl::ToUnixNanos(clock_.Wall() - kForgetAfter);
  RETURN_IF_ERROR(file_.sessions().RemoveEmpty(ended_before_ns, kFoldAtOnce).status());
  RETURN_IF_ERROR(file_.Commit());
  return GiveBackPages(absl::Seconds(1));
}

// One transaction of about kSlice; true when there is more to do.
absl::StatusOr<bool> Retention::PruneSlice(bool by_age) {
  RETURN_IF_ERROR(Prepare());
  if (const absl::Status begun = file_.Begin(); !begun.ok()) return LaterIfBusy(begun);
  const absl::Time until = absl::Now() + kSlice;
  bool more = false;
  if (by_age) {
    ASSIGN_OR_RETURN(more, PruneOld(until));
    if (!more) age_checked_ = absl::Now();
  }
  while (!more) {
    std::optional<Victims> victims = OverShare();
    ASSIGN_OR_RETURN(const uint64_t used, UsedBytes());
    if (!victims && used > TargetBytes()) victims = PickIn(std::nullopt);
    if (!victims) break;
    RETURN_IF_ERROR(Prune(*victims));
    more = absl::Now() >= until;
  }
  RETURN_IF_ERROR(FoldPrunedBatches());
  RETURN_IF_ERROR(file_.Commit());
  return more;
}

absl::StatusOr<bool> Retention::PruneOld(absl::Time until) {
  for (const bool kept : {false, true}) {
    const absl::Duration age = kept ? std::max(limits_.kept_max_age, limits_.max_age) : limits_.max_age;
    if (age == absl::InfiniteDuration()) continue;
    const int64_t before_ns = absl::ToUnixNanos(clock_.Wall() - age);
    ASSIGN_OR_RETURN(Statement find, file_.database().Prepare(absl::StrCat(
                                         "SELECT seq, wall_ns FROM events INDEXED BY ",
                                         kept ? "events_kept WHERE " : "events_time WHERE NOT ", kKeptSql,
                                         " AND wall_ns >= ? AND wall_ns < ? ORDER BY wall_ns LIMIT 1")));
    while (true) {
      find.Int(kept ? std::numeric_limits<int64_t>::min() : plain_from_ns_).Int(before_ns);
      ASSIGN_OR_RETURN(const bool row, find.Step());
      if (!row) break;
      const auto seq = static_cast<uint64_t>(find.ColumnInt(0));
      if (!kept) plain_from_ns_ = find.ColumnInt(1);
      find.Reset();
      ASSIGN_OR_RETURN(const Pruned pruned, PruneBatchAt(seq, nullptr, kept));
      if (pruned.last_seq == 0) break;  // a row of no batch: not ours to remove
      if (absl::Now() >= until) return true;
    }
  }
  return false;
}

std::vector<PruneCandidate> Retention::Candidates(bool kept, std::optional<uint32_t> uid) const {
  std::vector<PruneCandidate> candidates;
  for (const auto& [num, entry] : file_.sessions().entries()) {
    const ClassUsage& usage = entry->usage.of(kept);
    if (usage.rows == 0 || (uid && entry->uid != *uid)) continue;
    candidates.push_back({num, entry->uid, usage.bytes, usage.from_seq});
  }
  return candidates;
}

Retention::Victims Retention::MakeVictims(const std::vector<PruneCandidate>& picked, bool kept) {
  Victims victims{{}, kept, picked.front().from_seq};
  for (const PruneCandidate& candidate : picked) {
    victims.sessions.push_back(candidate.session);
    victims.from_seq = std::min(victims.from_seq, candidate.from_seq);
  }
  std::sort(victims.sessions.begin(), victims.sessions.end());
  return victims;
}

std::optional<Retention::Victims> Retention::OverShare() const {
  const auto session_bytes =
      static_cast<uint64_t>(limits_.session_share * static_cast<double>(limits_.max_bytes));
  const auto uid_bytes = static_cast<uint64_t>(limits_.uid_share * static_cast<double>(limits_.max_bytes));
  absl::flat_hash_map<uint32_t, uint64_t> by_uid;
  for (const auto& [num, entry] : file_.sessions().entries()) {
    const SessionUsage& usage = entry->usage;
    const bool kept = usage.kept.bytes > session_bytes / 2 || usage.plain.rows == 0;
    if (usage.kept.bytes > session_bytes / 2 || usage.bytes() > session_bytes) {
      return Victims{{num}, kept, kept ? usage.kept.from_seq : usage.plain.from_seq};
    }
    if (usage.bytes() > 0 && num != kDaemonSession) by_uid[entry->uid] += usage.bytes();
  }
  if (by_uid.size() < 2) return std::nullopt;
  for (const auto& [uid, bytes] : by_uid) {
    if (bytes > uid_bytes) return PickIn(uid);
  }
  return std::nullopt;
}

// Of one uid or of all: plain rows while there are any.
std::optional<Retention::Victims> Retention::PickIn(std::optional<uint32_t> uid) const {
  for (const bool kept : {false, true}) {
    const std::vector<PruneCandidate> picked = PickVictims(Candidates(kept, uid));
    if (!picked.empty()) return MakeVictims(picked, kept);
  }
  return std::nullopt;
}

absl::Status Retention::Prune(const Victims& victims) {
  const uint64_t enough = std::min(kVictimBytes, limits_.max_bytes / kVictimPart);
  const absl::Time until = absl::Now() + kSlice;
  uint64_t freed = 0, from_seq = victims.from_seq;
  bool rows_left = true;
  while (freed < enough && rows_left && absl::Now() < until) {
    ASSIGN_OR_RETURN(const Pruned pruned, PruneBatchAt(from_seq, &victims.sessions, victims.kept));
    rows_left = pruned.last_seq != 0;
    if (rows_left) from_seq = pruned.last_seq + 1;
    freed += pruned.bytes;
  }
  for (const int64_t session : victims.sessions) {
    SessionTable::Entry& entry = *file_.sessions().entries()[session];
    ClassUsage& usage = entry.usage.of(victims.kept);
    usage.from_seq = std::max(usage.from_seq, from_seq);
    if (!rows_left) usage.rows = usage.bytes = 0;  // the rows are gone, but not by us
    file_.sessions().MarkChanged(entry);
  }
  return absl::OkStatus();
}

absl::StatusOr<Retention::Pruned> Retention::PruneBatchAt(uint64_t seq, const std::vector<int64_t>* sessions,
                                                          bool kept) {
  find_batch_.Int(static_cast<int64_t>(seq));
  ASSIGN_OR_RETURN(const bool row, find_batch_.Step());
  if (!row) {
    find_batch_.Reset();
    return Pruned();
  }
  Batch batch;
  batch.last_seq = static_cast<uint64_t>(find_batch_.ColumnInt(0));
  batch.first_seq = static_cast<uint64_t>(find_batch_.ColumnInt(2));
  batch.min_ns = find_batch_.ColumnInt(3);
  batch.max_ns = find_batch_.ColumnInt(4);
  absl::StatusOr<std::vector<Part>> parts = DecodeParts(find_batch_.ColumnBytes(5));
  find_batch_.Reset();
  if (!parts.ok()) return parts.status();
  if (sessions == nullptr && batch.first_seq > seq) return Pruned();
  std::vector<Part*> chosen;
  bool all_of_class = true, all_pruned = true;
  for (Part& part : *parts) {
    const bool is_chosen =
        !part.pruned && part.kept == kept &&
        (sessions == nullptr || std::binary_search(sessions->begin(), sessions->end(), part.session));
    if (is_chosen) chosen.push_back(&part);
    all_of_class &= is_chosen || part.pruned || part.kept != kept;
    all_pruned &= is_chosen || part.pruned;
  }
  Pruned pruned{batch.last_seq, 0};
  if (chosen.empty()) return sessions == nullptr ? Pruned() : pruned;
  RETURN_IF_ERROR(RemoveRows(batch, chosen, all_of_class));
  for (const Part* part : chosen) pruned.bytes += part->bytes;
  const std::string encoded = EncodeParts(*parts);
  RETURN_IF_ERROR(mark_batch_.Blob(encoded).Int(all_pruned).Int(static_cast<int64_t>(batch.last_seq)).Run());
  if (all_pruned && pruned_batches_) ++*pruned_batches_;
  return pruned;
}

absl::Status Retention::RemoveRows(const Batch& batch, const std::vector<Part*>& parts, bool all_of_class) {
  const auto first_seq = static_cast<int64_t>(batch.first_seq),
             last_seq = static_cast<int64_t>(batch.last_seq);
  if (all_of_class) {
    RETURN_IF_ERROR(remove_class_.Int(first_seq).Int(last_seq).Int(parts.front()->kept).Run());
  }
  for (Part* part : parts) {
    if (!all_of_class) {
      remove_.Int(part->session)
          .Int(batch.min_ns)
          .Int(batch.max_ns)
          .Int(first_seq)
          .Int(last_seq)
          .Int(part->kept);
      RETURN_IF_ERROR(remove_.Run());
    }
    part->pruned = true;
    const auto found = file_.sessions().entries().find(part->session);
    if (found == file_.sessions().entries().end()) continue;
    ClassUsage& usage = found->second->usage.of(part->kept);
    usage.rows -= std::min<uint64_t>(usage.rows, part->rows);
    usage.bytes -= std::min(usage.bytes, part->bytes);
    file_.sessions().MarkChanged(*found->second);
  }
  return absl::OkStatus();
}

// The rows of batches at the old end whose content is gone are themselves bounded.
absl::Status Retention::FoldPrunedBatches() {
  if (!pruned_batches_) {
    ASSIGN_OR_RETURN(const int64_t pruned,
                     file_.database().QueryInt("SELECT count(*) FROM batches WHERE content_pruned = 1"));
    pruned_batches_ = static_cast<uint64_t>(pruned);
  }
  if (*pruned_batches_ <= limits_.max_pruned_batches) return absl::OkStatus();
  const uint64_t excess = *pruned_batches_ - limits_.max_pruned_batches;
  ASSIGN_OR_RETURN(
      Statement select,
      file_.database().Prepare(
          "SELECT last_seq, number, first_seq, hash, content_pruned FROM batches ORDER BY last_seq LIMIT ?"));
  select.Int(static_cast<int64_t>(std::min<uint64_t>(excess, kFoldAtOnce)));
  int64_t last_seq = 0, number = 0, events = 0;
  std::string hash;
  uint64_t folded = 0;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row || select.ColumnInt(4) == 0) break;
    last_seq = select.ColumnInt(0);
    number = select.ColumnInt(1);
    events += select.ColumnInt(0) - select.ColumnInt(2) + 1;
    hash = std::string(select.ColumnBytes(3));
    ++folded;
  }
  select.Reset();
  if (folded == 0) return absl::OkStatus();
  *pruned_batches_ -= folded;
  ASSIGN_OR_RETURN(
      Statement move,
      file_.database().Prepare("UPDATE anchor SET number = ?, last_seq = ?, hash = ?, events = events + ?"));
  RETURN_IF_ERROR(move.Int(number).Int(last_seq).Blob(hash).Int(events).Run());
  ASSIGN_OR_RETURN(Statement remove, file_.database().Prepare("DELETE FROM batches WHERE last_seq <= ?"));
  return remove.Int(last_seq).Run();
}

// Free pages are used again, so they only go back when the file is too large or mostly empty.
absl::Status Retention::GiveBackPages(absl::Duration budget) {
  const absl::Time until = absl::Now() + budget;
  while (absl::Now() < until) {
    ASSIGN_OR_RETURN(const int64_t pages, file_.database().QueryInt("PRAGMA page_count"));
    ASSIGN_OR_RETURN(const int64_t free_pages, file_.database().QueryInt("PRAGMA freelist_count"));
    const bool too_large = static_cast<uint64_t>(pages) * kPageBytes > limits_.max_bytes && free_pages > 0;
    const bool mostly_empty = free_pages > pages / 2 && free_pages > 512;
    if (!too_large && !mostly_empty) break;
    RETURN_IF_ERROR(file_.database().Exec("PRAGMA incremental_vacuum(512)"));
  }
  return absl::OkStatus();
}

}  // namespace agentmon
