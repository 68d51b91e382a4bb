#include "daemon/store/batch_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace agentmon {

absl::StatusOr<std::unique_ptr<BatchWriter>> BatchWriter::Create(Database database, uint64_t last_known_seq) {
  std::unique_ptr<BatchWriter> writer(new BatchWriter(std::move(database)));
  RETURN_IF_ERROR(writer->Load(last_known_seq));
  return writer;
}

absl::Status BatchWriter::Load(uint64_t last_known_seq) {
  sessions_ = std::make_unique<SessionTable>(database_);
  RETURN_IF_ERROR(sessions_->Load());
  ASSIGN_OR_RETURN(begin_, database_.Prepare("BEGIN IMMEDIATE"));
  ASSIGN_OR_RETURN(commit_, database_.Prepare("COMMIT"));
  ASSIGN_OR_RETURN(insert_event_, database_.Prepare(absl::StrCat("INSERT INTO events(", kRowColumns,
                                                                 ") VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)")));
  ASSIGN_OR_RETURN(
      insert_batch_,
      database_.Prepare(
          "INSERT INTO batches(last_seq, number, first_seq, min_ns, max_ns, content_pruned, parts, hash) "
          "VALUES(?, ?, ?, ?, ?, 0, ?, ?)"));
  ASSIGN_OR_RETURN(Statement head, database_.Prepare("SELECT * FROM (SELECT number, last_seq, hash FROM "
                                                     "batches ORDER BY last_seq DESC LIMIT 1) UNION ALL "
                                                     "SELECT number, last_seq, hash FROM anchor"));
  ASSIGN_OR_RETURN(const bool row, head.Step());
  if (!row) return absl::DataLossError("table anchor is empty");
  head_.number = static_cast<uint64_t>(head.ColumnInt(0));
  head_.last_seq = static_cast<uint64_t>(head.ColumnInt(1));
  head_.hash = std::string(head.ColumnBytes(2));
  head.Reset();
  // Rows beyond the last batch are not ours; Verify tells of them, and writing must get past them.
  ASSIGN_OR_RETURN(const int64_t last_row, database_.QueryInt("SELECT max(seq) FROM events"));
  head_.last_seq = std::max(head_.last_seq, static_cast<uint64_t>(std::max<int64_t>(last_row, 0)));
  if (head_.last_seq == 0 && last_known_seq > 0) return StartAt(last_known_seq);
  return absl::OkStatus();
}

absl::Status BatchWriter::StartAt(uint64_t last_known_seq) {
  const std::string sql = absl::StrCat("UPDATE anchor SET last_seq=", last_known_seq);
  RETURN_IF_ERROR(database_.Exec(sql.c_str()));
  head_.last_seq = last_known_seq;
  return absl::OkStatus();
}

absl::Status BatchWriter::Begin() {
  batch_ = Batch();
  batch_.number = head_.number + 1;
  batch_.first_seq = head_.last_seq + 1;
  batch_.last_seq = head_.last_seq;
  parts_.clear();
  part_index_.clear();
  return begin_.Run();
}

absl::Status BatchWriter::PutSession(const v1::Session& session, absl::string_view bytes) {
  return sessions_->Upsert(session, bytes);
}

BatchWriter::OpenPart& BatchWriter::PartOf(SessionTable::Entry& session, bool kept) {
  const auto [found, is_new] = part_index_.try_emplace({session.num, kept}, parts_.size());
  if (is_new) {
    parts_.push_back({Part(), PartHash(session.id), &session});
    parts_.back().part.session = session.num;
    parts_.back().part.kept = kept;
  }
  return parts_[found->second];
}

absl::Status BatchWriter::PutEvent(Event& event) {
  ASSIGN_OR_RETURN(SessionTable::Entry* const session, sessions_->FindOrMake(event.session()));
  RowView row;
  ASSIGN_OR_RETURN(row.exe, sessions_->InternExe(*session, event.exe()));
  row.seq = batch_.last_seq + 1;
  row.session = session->num;
  row.wall_ns = event.wall_ns();
  row.kind = event.kind();
  row.pid = event.process().pid();
  row.decision = event.judgement().decision();
  row.enforced = event.judgement().enforced();
  event.set_seq(row.seq);
  EncodeData(event, row.exe != 0, &data_);
  row.data = data_;
  insert_event_.Int(row.seq).Int(row.session).Int(row.wall_ns).Int(row.kind).Int(row.pid).Int(row.exe);
  RETURN_IF_ERROR(insert_event_.Int(row.decision).Int(row.enforced).Blob(row.data).Run());

  OpenPart& open = PartOf(*session, IsKept(row.kind, row.decision));
  open.hash.Add(row, row.exe != 0 ? absl::string_view(event.exe()) : absl::string_view());
  ++open.part.rows;
  open.part.bytes += data_.size() + kRowOverheadBytes;
  if (row.decision == v1::DENY) ++session->usage.denials;
  batch_.min_ns = batch_.last_seq < batch_.first_seq ? row.wall_ns : std::min(batch_.min_ns, row.wall_ns);
  batch_.max_ns = batch_.last_seq < batch_.first_seq ? row.wall_ns : std::max(batch_.max_ns, row.wall_ns);
  batch_.last_seq = row.seq;
  return absl::OkStatus();
}

absl::Status BatchWriter::WriteBatchRow() {
  for (OpenPart& open : parts_) {
    open.part.hash = open.hash.Finish();
    SessionUsage& usage = open.session->usage;
    ClassUsage& of_class = usage.of(open.part.kept);
    usage.events += open.part.rows;
    if (of_class.rows == 0) of_class.from_seq = batch_.first_seq;
    of_class.rows += open.part.rows;
    of_class.bytes += open.part.bytes;
    sessions_->MarkChanged(*open.session);
    batch_.parts.push_back(std::move(open.part));
  }
  batch_.hash = BatchHash(head_.hash, batch_);
  const std::string parts = EncodeParts(batch_.parts);
  insert_batch_.Int(batch_.last_seq).Int(batch_.number).Int(batch_.first_seq).Int(batch_.min_ns);
  return insert_batch_.Int(batch_.max_ns).Blob(parts).Blob(batch_.hash).Run();
}

absl::Status BatchWriter::Commit() {
  if (batch_.last_seq >= batch_.first_seq) RETURN_IF_ERROR(WriteBatchRow());
  RETURN_IF_ERROR(sessions_->SaveChanged());
  RETURN_IF_ERROR(commit_.Run());
  if (batch_.last_seq >= batch_.first_seq) head_ = {batch_.number, batch_.last_seq, batch_.hash};
  return absl::OkStatus();
}

void BatchWriter::Rollback() {
  if (database_.in_transaction()) database_.Exec("ROLLBACK").IgnoreError();
}

}  // namespace agentmon
