#include "daemon/store/session_table.h"

#include <utility>

#include "common/base/status.h"

namespace agentmon {

absl::Status SessionTable::Load() {
  ASSIGN_OR_RETURN(insert_,
                   database_.Prepare("INSERT INTO sessions(id, uid, name, started_ns, ended_ns, data) "
                                     "VALUES(?, ?, ?, ?, ?, nullif(?, x'')) RETURNING num"));
  ASSIGN_OR_RETURN(update_,
                   database_.Prepare("UPDATE sessions SET uid=?, name=?, started_ns=?, ended_ns=?, data=? "
                                     "WHERE num=?"));
  ASSIGN_OR_RETURN(save_,
                   database_.Prepare("INSERT OR REPLACE INTO usage VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  ASSIGN_OR_RETURN(add_string_, database_.Prepare("INSERT INTO strings VALUES(?, ?, ?)"));
  ASSIGN_OR_RETURN(Statement select,
                   database_.Prepare("SELECT num, id, uid, ended_ns, events, denials, plain_rows, "
                                     "plain_bytes, plain_from, kept_rows, kept_bytes, "
                                     "kept_from FROM sessions LEFT JOIN usage ON session = num"));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return absl::OkStatus();
    auto entry = std::make_unique<Entry>();
    entry->num = select.ColumnInt(0);
    entry->id = std::string(select.ColumnBytes(1));
    entry->uid = static_cast<uint32_t>(select.ColumnInt(2));
    entry->ended_ns = select.ColumnInt(3);
    SessionUsage& usage = entry->usage;
    uint64_t* const fields[] = {&usage.events,      &usage.denials,        &usage.plain.rows,
                                &usage.plain.bytes, &usage.plain.from_seq, &usage.kept.rows,
                                &usage.kept.bytes,  &usage.kept.from_seq};
    for (int i = 0; i < 8; ++i) *fields[i] = static_cast<uint64_t>(select.ColumnInt(4 + i));
    by_id_[entry->id] = entry.get();
    by_num_[entry->num] = std::move(entry);
  }
}

absl::StatusOr<SessionTable::Entry*> SessionTable::FindOrMake(absl::string_view id) {
  if (last_found_ != nullptr && last_found_->id == id) return last_found_;
  if (const auto found = by_id_.find(id); found != by_id_.end()) return last_found_ = found->second;
  v1::Session unknown;
  unknown.set_id(std::string(id));
  return Insert(unknown, "", false);
}

absl::StatusOr<SessionTable::Entry*> SessionTable::Insert(const v1::Session& session, absl::string_view bytes,
                                                          bool described) {
  insert_.Text(session.id()).Int(session.uid()).Text(session.name()).Int(session.started_ns());
  insert_.Int(session.ended_ns()).Blob(described ? bytes : "");
  ASSIGN_OR_RETURN(const bool row, insert_.Step());
  if (!row) return absl::InternalError("no number for a session");
  auto entry = std::make_unique<Entry>();
  entry->num = insert_.ColumnInt(0);
  insert_.Reset();
  entry->id = session.id();
  entry->uid = session.uid();
  entry->ended_ns = session.ended_ns();
  Entry* const result = entry.get();
  by_id_[entry->id] = result;
  by_num_[entry->num] = std::move(entry);
  MarkChanged(*result);
  return result;
}

absl::Status SessionTable::Upsert(const v1::Session& session, absl::string_view bytes) {
  const auto found = by_id_.find(session.id());
  if (found == by_id_.end()) return Insert(session, bytes, true).status();
  Entry& entry = *found->second;
  entry.uid = session.uid();
  entry.ended_ns = session.ended_ns();
  update_.Int(session.uid()).Text(session.name()).Int(session.started_ns()).Int(session.ended_ns());
  update_.Blob(bytes).Int(entry.num);
  return update_.Run();
}

absl::Status SessionTable::LoadStrings(Entry& entry) {
  entry.strings = std::make_unique<absl::flat_hash_map<std::string, int64_t>>();
  ASSIGN_OR_RETURN(Statement select, database_.Prepare("SELECT value, id FROM strings WHERE session=?"));
  select.Int(entry.num);
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return absl::OkStatus();
    entry.strings->emplace(std::string(select.ColumnBytes(0)), select.ColumnInt(1));
  }
}

absl::StatusOr<int64_t> SessionTable::InternExe(Entry& entry, absl::string_view exe) {
  if (exe.empty() || exe.size() > kMaxStringBytes) return 0;
  if (entry.strings == nullptr) RETURN_IF_ERROR(LoadStrings(entry));
  if (const auto found = entry.strings->find(exe); found != entry.strings->end()) return found->second;
  if (entry.strings->size() >= kMaxStrings) return 0;
  const auto id = static_cast<int64_t>(entry.strings->size() + 1);
  RETURN_IF_ERROR(add_string_.Int(entry.num).Int(id).Blob(exe).Run());
  entry.strings->emplace(std::string(exe), id);
  return id;
}

void SessionTable::MarkChanged(Entry& entry) {
  if (entry.changed) return;
  entry.changed = true;
  changed_.push_back(&entry);
}

absl::Status SessionTable::SaveChanged() {
  for (Entry* entry : changed_) {
    const SessionUsage& u = entry->usage;
    save_.Int(entry->num);
    for (const uint64_t value : {u.events, u.denials, u.plain.rows, u.plain.bytes, u.plain.from_seq,
                                 u.kept.rows, u.kept.bytes, u.kept.from_seq}) {
      save_.Int(static_cast<int64_t>(value));
    }
    RETURN_IF_ERROR(save_.Run());
    entry->changed = false;
  }
  changed_.clear();
  return absl::OkStatus();
}

absl::StatusOr<int> SessionTable::RemoveEmpty(int64_t ended_before_ns, int limit) {
  std::vector<int64_t> gone;
  for (const auto& [num, entry] : by_num_) {
    const bool empty = entry->usage.plain.rows == 0 && entry->usage.kept.rows == 0;
    if (empty && !entry->changed && entry->ended_ns != 0 && entry->ended_ns < ended_before_ns)
      gone.push_back(num);
    if (gone.size() == static_cast<size_t>(limit)) break;
  }
  for (const char* sql : {"DELETE FROM strings WHERE session=?", "DELETE FROM usage WHERE session=?",
                          "DELETE FROM sessions WHERE num=?"}) {
    ASSIGN_OR_RETURN(Statement remove, database_.Prepare(sql));
    for (const int64_t num : gone) RETURN_IF_ERROR(remove.Int(num).Run());
  }
  last_found_ = nullptr;
  for (const int64_t num : gone) {
    by_id_.erase(by_num_[num]->id);
    by_num_.erase(num);
  }
  return static_cast<int>(gone.size());
}

void SessionTable::DropStrings() {
  for (auto& [num, entry] : by_num_) entry->strings.reset();
}

uint64_t SessionTable::rows() const {
  uint64_t rows = 0;
  for (const auto& [num, entry] : by_num_) rows += entry->usage.plain.rows + entry->usage.kept.rows;
  return rows;
}

}  // namespace agentmon
