#include "daemon/event/pending_counts.h"

#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "common/base/files.h"

namespace agentmon {
namespace {

constexpr size_t kMaxBytes = 256u << 20;

// Each event is preceded by its size.
void Append(const Event& event, std::string* bytes) {
  const auto size = static_cast<uint32_t>(event.ByteSizeLong());
  bytes->append(reinterpret_cast<const char*>(&size), sizeof(size));
  event.AppendToString(bytes);
}

}  // namespace

absl::Status PendingCounts::Keep(const std::vector<const Event*>& events) {
  if (path_.empty()) return absl::OkStatus();
  if (events.empty()) {
    ::unlink(path_.c_str());
    return absl::OkStatus();
  }
  std::string bytes;
  for (size_t i = 0; i < events.size() && i < kMaxEvents; ++i) Append(*events[i], &bytes);
  return ReplaceFile(path_, bytes, 0600, Outlives::kProcess);
}

std::vector<Event> PendingCounts::Take() {
  std::vector<Event> events;
  if (path_.empty()) return events;
  const absl::StatusOr<std::string> kept = ReadRootFile(path_, kMaxBytes);
  if (!kept.ok()) return events;
  const std::string& bytes = *kept;
  for (size_t at = 0; at + sizeof(uint32_t) <= bytes.size();) {
    uint32_t size;
    std::memcpy(&size, bytes.data() + at, sizeof(size));
    at += sizeof(size);
    Event event;
    if (size > bytes.size() - at || !event.ParseFromArray(bytes.data() + at, static_cast<int>(size))) break;
    at += size;
    events.push_back(std::move(event));
  }
  ::unlink(path_.c_str());
  return events;
}

}  // namespace agentmon
