#include "daemon/event/pending_counts.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace agentmon {
namespace {

// Each event is preceded by its size.
void Append(const Event& event, std::string* bytes) {
  const auto size = static_cast<uint32_t>(event.ByteSizeLong());
  bytes->append(reinterpret_cast<const char*>(&size), sizeof(size));
  event.AppendToString(bytes);
}

absl::Status WriteAll(int fd, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::write(fd, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ErrnoStatus(errno, "write pending counts");
    at += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

std::string ReadAll(int fd) {
  std::string bytes;
  char part[65536];
  for (ssize_t n; (n = ::read(fd, part, sizeof(part))) > 0;) bytes.append(part, static_cast<size_t>(n));
  return bytes;
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
  const std::string fresh = absl::StrCat(path_, ".new");
  const UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", fresh));
  RETURN_IF_ERROR(WriteAll(fd.get(), bytes));
  if (::rename(fresh.c_str(), path_.c_str()) != 0)
    return ErrnoStatus(errno, absl::StrCat("rename to ", path_));
  return absl::OkStatus();
}

std::vector<Event> PendingCounts::Take() {
  std::vector<Event> events;
  if (path_.empty()) return events;
  const UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return events;
  const std::string bytes = ReadAll(fd.get());
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
