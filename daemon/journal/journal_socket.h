// The system journal's native protocol (systemd's JOURNAL_NATIVE_PROTOCOL): one datagram is one entry of
// fields. Spoken here and not through sd_journal_sendv, which waits when journald does not read: the core
// thread must not.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/log.h"
#include "common/base/unique_fd.h"

namespace agentmon {

// Names are upper case letters, digits and '_'; values may hold any bytes.
using JournalFields = std::vector<std::pair<absl::string_view, std::string>>;

inline constexpr char kJournalIdentifier[] = "agentmond";

// What the datagram holds. A value longer than 4 KiB is cut.
std::string EncodeJournalEntry(const JournalFields& fields);

// Whether a descriptor is the journal's stream that `journal_stream`, the variable JOURNAL_STREAM
// ("DEVICE:INODE"), names. Null or another form: no.
bool IsJournalStream(int fd, const char* journal_stream);

// Thread-safe. Never blocks: what journald does not take at once is dropped and counted.
class JournalSocket {
 public:
  static constexpr char kPath[] = "/run/systemd/journal/socket";
  static absl::StatusOr<std::unique_ptr<JournalSocket>> Open(const std::string& path = kPath);

  void Send(const JournalFields& fields);
  // A line of the daemon's log.
  void SendLine(LogLevel level, absl::string_view message);
  uint64_t dropped() const { return dropped_; }

 private:
  JournalSocket(std::string path, UniqueFd socket) : path_(std::move(path)), socket_(std::move(socket)) {}

  const std::string path_;
  const UniqueFd socket_;
  std::atomic<uint64_t> dropped_{0};
};

}  // namespace agentmon
