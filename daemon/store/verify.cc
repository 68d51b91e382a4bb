#include "daemon/store/verify.h"

#include <limits>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr absl::Duration kSliceTime = absl::Milliseconds(250);

std::string Name(const Batch& batch) {
  return absl::StrCat("batch ", batch.number, " (seq ", batch.first_seq, " to ", batch.last_seq, ")");
}

}  // namespace

absl::StatusOr<v1::VerifyResponse> Verifier::Run(const std::function<bool()>& cancelled) {
  ASSIGN_OR_RETURN(rows_,
                   database_.Prepare(absl::StrCat("SELECT ", kRowColumns,
                                                  " FROM events WHERE seq >= ? AND seq <= ? ORDER BY seq")));
  ASSIGN_OR_RETURN(
      stray_, database_.Prepare("SELECT min(seq), max(seq), count(*) FROM events WHERE seq > ? AND seq < ?"));
  ASSIGN_OR_RETURN(previous_, ReadAnchor());
  answer_.set_pruned_batches(previous_.number);
  RETURN_IF_ERROR(
      CheckStray(std::numeric_limits<int64_t>::min(), static_cast<int64_t>(previous_.last_seq) + 1));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, Slice());
    if (!more) break;
    if (cancelled && cancelled()) return absl::CancelledError("cancelled");
  }
  answer_.set_head(absl::BytesToHexString(previous_.hash));
  if (findings_ > kMostFindings)
    answer_.add_findings(absl::StrCat(findings_ - kMostFindings, " more findings"));
  answer_.set_intact(findings_ == 0);
  return answer_;
}

absl::StatusOr<Verifier::Anchor> Verifier::ReadAnchor() {
  ASSIGN_OR_RETURN(Statement select, database_.Prepare("SELECT number, last_seq, hash, events FROM anchor"));
  ASSIGN_OR_RETURN(const bool row, select.Step());
  if (!row) return absl::DataLossError("table anchor is empty");
  Anchor anchor;
  anchor.number = static_cast<uint64_t>(select.ColumnInt(0));
  anchor.last_seq = static_cast<uint64_t>(select.ColumnInt(1));
  anchor.hash = std::string(select.ColumnBytes(2));
  anchor.events = static_cast<uint64_t>(select.ColumnInt(3));
  return anchor;
}

// Batches and their rows are read in one transaction, since retention may be at work.
absl::StatusOr<bool> Verifier::Slice() {
  RETURN_IF_ERROR(database_.Exec("BEGIN"));
  const auto end = [this](absl::StatusOr<bool> result) {
    database_.Exec("COMMIT").IgnoreError();
    return result;
  };
  absl::StatusOr<Anchor> anchor = ReadAnchor();
  if (!anchor.ok()) return end(anchor.status());
  if (anchor->number > previous_.number) {  // folded away meanwhile
    answer_.set_pruned_batches(answer_.pruned_batches() + anchor->number - previous_.number);
    previous_ = *anchor;
  }
  absl::StatusOr<Statement> select = database_.Prepare(
      "SELECT last_seq, number, first_seq, min_ns, max_ns, parts, hash FROM batches WHERE last_seq > ? "
      "ORDER BY last_seq");
  if (!select.ok()) return end(select.status());
  select->Int(static_cast<int64_t>(previous_.last_seq));
  const absl::Time until = absl::Now() + kSliceTime;
  while (true) {
    absl::StatusOr<bool> row = select->Step();
    if (!row.ok()) return end(row.status());
    if (!*row) break;
    if (absl::Status status = CheckBatch(*select); !status.ok()) return end(status);
    if (absl::Now() >= until) {
      select->Reset();
      return end(true);
    }
  }
  const absl::Status status =
      CheckStray(static_cast<int64_t>(previous_.last_seq), std::numeric_limits<int64_t>::max());
  return end(status.ok() ? absl::StatusOr<bool>(false) : absl::StatusOr<bool>(status));
}

absl::Status Verifier::CheckBatch(const Statement& row) {
  Batch batch;
  batch.last_seq = static_cast<uint64_t>(row.ColumnInt(0));
  batch.number = static_cast<uint64_t>(row.ColumnInt(1));
  batch.first_seq = static_cast<uint64_t>(row.ColumnInt(2));
  batch.min_ns = row.ColumnInt(3);
  batch.max_ns = row.ColumnInt(4);
  batch.hash = std::string(row.ColumnBytes(6));
  absl::StatusOr<std::vector<Part>> parts = DecodeParts(row.ColumnBytes(5));
  if (parts.ok()) {
    batch.parts = *std::move(parts);
  } else {
    Find(absl::StrCat(Name(batch), ": ", parts.status().message()));
  }
  RETURN_IF_ERROR(CheckOrder(batch));
  if (BatchHash(previous_.hash, batch) != batch.hash) {
    Find(absl::StrCat(Name(batch), ": its hash does not follow from batch ", previous_.number,
                      ": the chain is broken or the batch's row was changed"));
  }
  RETURN_IF_ERROR(CheckRows(batch));
  answer_.set_batches(answer_.batches() + 1);
  previous_.number = batch.number;
  previous_.last_seq = batch.last_seq;
  previous_.hash = batch.hash;
  return absl::OkStatus();
}

absl::Status Verifier::CheckOrder(const Batch& batch) {
  if (batch.number != previous_.number + 1) {
    Find(absl::StrCat(Name(batch), ": follows batch ", previous_.number,
                      "; batches are missing or out of order"));
  }
  if (batch.first_seq == previous_.last_seq + 1) return absl::OkStatus();
  Find(absl::StrCat(Name(batch), ": starts at seq ", batch.first_seq, ", but the batch before ended at seq ",
                    previous_.last_seq));
  return CheckStray(static_cast<int64_t>(previous_.last_seq), static_cast<int64_t>(batch.first_seq));
}

absl::Status Verifier::CheckRows(const Batch& batch) {
  struct Seen {
    uint64_t rows = 0;
    PartHash hash;
  };
  std::map<std::pair<int64_t, bool>, Seen> seen;
  rows_.Reset();
  rows_.Int(static_cast<int64_t>(batch.first_seq)).Int(static_cast<int64_t>(batch.last_seq));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, rows_.Step());
    if (!more) break;
    RowView row;
    row.seq = static_cast<uint64_t>(rows_.ColumnInt(0));
    row.session = rows_.ColumnInt(1);
    row.wall_ns = rows_.ColumnInt(2);
    row.kind = static_cast<v1::EventKind>(rows_.ColumnInt(3));
    row.pid = static_cast<int32_t>(rows_.ColumnInt(4));
    row.exe = rows_.ColumnInt(5);
    row.decision = static_cast<v1::Decision>(rows_.ColumnInt(6));
    row.enforced = rows_.ColumnInt(7) != 0;
    row.data = rows_.ColumnBytes(8);
    ASSIGN_OR_RETURN(const std::string exe, names_.Exe(row.session, row.exe));
    const std::pair<int64_t, bool> key(row.session, IsKept(row.kind, row.decision));
    auto found = seen.find(key);
    if (found == seen.end()) {
      ASSIGN_OR_RETURN(const std::string id, names_.SessionId(row.session));
      found = seen.emplace(key, Seen{0, PartHash(id)}).first;
    }
    ++found->second.rows;
    found->second.hash.Add(row, exe);
    answer_.set_events(answer_.events() + 1);
  }
  rows_.Reset();
  bool all_pruned = !batch.parts.empty();
  for (const Part& part : batch.parts) {
    const auto found = seen.find({part.session, part.kept});
    const bool any = found != seen.end();
    CheckPart(batch, part, any ? found->second.rows : 0, any ? found->second.hash.Finish() : "");
    if (any) seen.erase(found);
    all_pruned &= part.pruned;
  }
  if (all_pruned) answer_.set_pruned_batches(answer_.pruned_batches() + 1);
  for (const auto& [key, rest] : seen) {
    Find(absl::StrCat(Name(batch), ": ", rest.rows,
                      " rows were inserted or moved to another session or kind"));
  }
  return absl::OkStatus();
}

void Verifier::CheckPart(const Batch& batch, const Part& part, uint64_t rows, const std::string& hash) {
  const absl::StatusOr<std::string> id = names_.SessionId(part.session);
  const std::string where =
      absl::StrCat(Name(batch), ", session '", id.ok() ? *id : "", "'", part.kept ? ", kept" : "");
  if (part.pruned) {
    if (rows > 0) Find(absl::StrCat(where, ": ", rows, " rows were inserted where all were pruned"));
  } else if (rows < part.rows) {
    Find(absl::StrCat(where, ": ", part.rows - rows, " of ", part.rows, " rows were removed"));
  } else if (rows > part.rows) {
    Find(absl::StrCat(where, ": ", rows - part.rows, " rows were inserted"));
  } else if (hash != part.hash) {
    Find(absl::StrCat(where, ": rows were changed or reordered"));
  }
}

// Rows between two batches, or beyond the last, were not written by the daemon.
absl::Status Verifier::CheckStray(int64_t after, int64_t before) {
  stray_.Int(after).Int(before);
  ASSIGN_OR_RETURN(const bool row, stray_.Step());
  if (row && stray_.ColumnInt(2) > 0) {
    Find(absl::StrCat(stray_.ColumnInt(2), " rows were inserted that belong to no batch (seq ",
                      stray_.ColumnInt(0), " to ", stray_.ColumnInt(1), ")"));
  }
  stray_.Reset();
  return absl::OkStatus();
}

void Verifier::Find(std::string finding) {
  if (++findings_ <= kMostFindings) answer_.add_findings(std::move(finding));
}

}  // namespace agentmon
