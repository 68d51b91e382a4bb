#include "daemon/store/row.h"

#include <utility>

namespace agentmon {

void EncodeData(Event& event, bool exe_is_interned, std::string* data) {
  const uint64_t seq = event.seq();
  const int64_t wall_ns = event.wall_ns();
  const v1::EventKind kind = event.kind();
  std::string session, exe;
  event.clear_seq();
  event.clear_wall_ns();
  event.clear_kind();
  session.swap(*event.mutable_session());
  if (exe_is_interned) exe.swap(*event.mutable_exe());
  event.SerializeToString(data);
  event.set_seq(seq);
  event.set_wall_ns(wall_ns);
  event.set_kind(kind);
  session.swap(*event.mutable_session());
  if (exe_is_interned) exe.swap(*event.mutable_exe());
}

bool DecodeRow(const RowView& row, absl::string_view session_id, absl::string_view exe, Event* event) {
  if (!event->ParseFromArray(row.data.data(), static_cast<int>(row.data.size()))) return false;
  event->set_seq(row.seq);
  event->set_wall_ns(row.wall_ns);
  event->set_kind(row.kind);
  event->set_session(session_id.data(), session_id.size());
  if (row.exe != 0) event->set_exe(exe.data(), exe.size());
  return true;
}

}  // namespace agentmon
