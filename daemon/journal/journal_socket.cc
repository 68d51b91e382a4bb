#include "daemon/journal/journal_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr size_t kMaxValue = 4096;

}  // namespace

std::string EncodeJournalEntry(const JournalFields& fields) {
  std::string out;
  for (const auto& [name, whole] : fields) {
    const absl::string_view value = absl::string_view(whole).substr(0, kMaxValue);
    if (value.find('\n') == absl::string_view::npos) {
      absl::StrAppend(&out, name, "=", value, "\n");
      continue;
    }
    absl::StrAppend(&out, name, "\n");
    for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(uint64_t{value.size()} >> shift);
    absl::StrAppend(&out, value, "\n");
  }
  return out;
}

bool IsJournalStream(int fd, const char* journal_stream) {
  if (journal_stream == nullptr) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(journal_stream, ':');
  uint64_t device = 0, inode = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &device) || !absl::SimpleAtoi(parts[1], &inode)) {
    return false;
  }
  struct stat st {};
  return ::fstat(fd, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

absl::StatusOr<std::unique_ptr<JournalSocket>> JournalSocket::Open(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("journal socket ", path, " is longer than 107 bytes"));
  }
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return ErrnoStatus(errno, "make a socket for the journal");
  return std::unique_ptr<JournalSocket>(new JournalSocket(path, std::move(socket)));
}

void JournalSocket::Send(const JournalFields& fields) {
  const std::string entry = EncodeJournalEntry(fields);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  // By address each time: a journald that was started anew is found.
  if (::sendto(socket_.get(), entry.data(), entry.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), sizeof(address)) < 0) {
    ++dropped_;
  }
}

void JournalSocket::SendLine(LogLevel level, absl::string_view message) {
  Send({{"MESSAGE", std::string(message)},
        {"PRIORITY", absl::StrCat(static_cast<int>(level))},
        {"SYSLOG_IDENTIFIER", kJournalIdentifier}});
}

}  // namespace agentmon
