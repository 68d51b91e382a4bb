// What the daemon and a mount keeper say to each other, on a SOCK_SEQPACKET socket: a head, a text, and at
// most one descriptor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"

namespace agentmon {

inline constexpr uint32_t kKeeperMagic = 0x6b6d6761;  // "agmk"
inline constexpr uint16_t kKeeperVersion = 1;

enum class KeeperMessageType : uint16_t {
  kBegin = 1,     // daemon, first: uid, gid, and groups as the text: with whose rights files are opened
  kGroup = 2,     // keeper, to each of these: the group's descriptor
  kMark = 3,      // daemon: number = of the mount, text = its mount point; uid and gid = its owner
  kMarked = 4,    // keeper: number, error
  kQuestion = 5,  // keeper: number, tid, mask, size, sent_ns, text = path; asks if the mask does
  kContent = 6,   // daemon: number, what does that file hold? keeper: the same, and a memfd with it
  kAnswer = 7,    // daemon: number, allow
  kUnopened = 8,  // keeper: error: a file could not be opened, and whoever asked was denied
};

struct KeeperHead {
  uint32_t magic = kKeeperMagic;
  uint16_t version = kKeeperVersion;
  KeeperMessageType type = KeeperMessageType::kBegin;
  uint32_t number = 0;
  int32_t tid = 0;
  uint64_t mask = 0;    // FAN_*
  int64_t size = -1;    // of the file, in bytes; -1 = not known
  int64_t sent_ns = 0;  // CLOCK_BOOTTIME
  uint32_t uid = 0, gid = 0;
  int32_t error = 0;  // errno; 0 = done
  uint32_t allow = 0;
};
static_assert(sizeof(KeeperHead) == 56);

struct KeeperMessage {
  KeeperHead head;
  std::string text;
  UniqueFd fd;  // when one came with it
};

// Whoever asks has waited long enough: the keeper says no by itself, and an answer comes too late.
inline constexpr int64_t kKeeperPatience_ns = 1'500'000'000;

absl::Status SendKeeperMessage(int socket, const KeeperHead& head, absl::string_view text = {}, int fd = -1,
                               int flags = 0);
// Unavailable when the other side is gone; FailedPrecondition when it speaks another version.
absl::StatusOr<KeeperMessage> ReceiveKeeperMessage(int socket, int flags = 0);

}  // namespace agentmon
