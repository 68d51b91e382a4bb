// What daemon and holder say to each other: fixed messages on a SOCK_SEQPACKET socket, each with at most one
// descriptor. It changes as rarely as can be, because a new daemon must understand the holder of the one
// before it.
//
//   daemon  kHello                          once, first
//   holder  kWelcome + journal              or kBusy: another daemon is connected
//   holder  kListener(cgroup) + descriptor  one for each that it holds, and goes on to answer
//   holder  kGroup(cgroup) + descriptor     one for each fanotify group that it holds
//   holder  kMounts(cgroup) + descriptor    one for each channel to a mount keeper that it holds
//   holder  kEnd(0, when the last daemon was lost)
//   daemon  kTake(cgroup)                   the daemon is about to serve it
//   holder  kTaken(cgroup, count)           the holder answers it no more; it had answered `count` requests
//   daemon  kOnLoss(cgroup, LossAction) + descriptor of the cgroup's directory
//                                           what becomes of it when no daemon comes; kRemove is for this too
//   daemon  kAdd(cgroup, closed), kAddGroup(cgroup), kAddMounts(cgroup), each + descriptor; kRemove(cgroup)
//                                           at any time later; what is added, the daemon serves. closed = 1:
//                                           nothing of it may go on unjudged but calls that name a socket,
//                                           which the kernel judges; 3: nor these. kRemove is for all
//   holder  kLost(cgroup, count)            answered in the place of a daemon that does not come to it
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace agentmon {

inline constexpr uint32_t kHolderMagic = 0x686d6761;  // "agmh"
inline constexpr uint16_t kHolderVersion = 3;

enum class HolderMessageType : uint16_t {
  kHello = 1,
  kWelcome = 2,
  kBusy = 3,
  kListener = 4,
  kEnd = 5,
  kAdd = 6,
  kRemove = 7,
  kTake = 8,
  kTaken = 9,
  kLost = 10,
  kAddGroup = 11,
  kGroup = 12,
  kOnLoss = 13,
  kAddMounts = 14,
  kMounts = 15,
};

struct HolderMessage {
  uint32_t magic = kHolderMagic;
  uint16_t version = kHolderVersion;
  HolderMessageType type = HolderMessageType::kHello;
  uint64_t cgroup_id = 0;
  // kEnd: CLOCK_BOOTTIME at which the last daemon was lost, 0 = there was none; kAdd: closed; kOnLoss: the
  // action; kWelcome: 1 when kOnLoss is understood, 2 when kAddMounts is, too
  uint64_t count = 0;
};
static_assert(sizeof(HolderMessage) == 24);
inline constexpr uint64_t kClosed = 1, kSocketsClosed = 2;  // bits of kAdd's count

struct ReceivedMessage {
  HolderMessage message;
  UniqueFd fd;  // when one came with it
};

// fd: -1 = none. Blocks at most as long as the socket's send timeout; with MSG_DONTWAIT in `flags` not at
// all.
absl::Status SendHolderMessage(int socket, const HolderMessage& message, int fd = -1, int flags = 0);
// Unavailable when the other side is gone; FailedPrecondition when it speaks another version.
absl::StatusOr<ReceivedMessage> ReceiveHolderMessage(int socket);

}  // namespace agentmon
