// The supervisor's end of a seccomp filter (seccomp_unotify(2)). Functions on a descriptor that the
// caller owns; none of them logs. They work from any thread.
#pragma once

#include <linux/seccomp.h>

#include <cstdint>

#include "absl/status/status.h"

namespace agentmon {

// Missing in the headers of Linux 6.1.
inline constexpr unsigned long kSeccompWaitKillable = 1UL
                                                      << 5;  // SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, 5.19

// InvalidArgument when the descriptor is something else. A client chooses what it hands over, and anything
// that polls readable for ever would keep a reader busy.
absl::Status CheckSeccompListener(int fd);

enum class ReceiveResult { kRequest, kNone, kClosed };

// Receives one request into *request, which the kernel fills before the call returns: memory shared with
// another process therefore never misses a request that was taken. Call it only when the listener polls
// readable and nobody else reads it, else it blocks. kNone: the caller died meanwhile, or a signal came.
ReceiveResult ReceiveNotify(int listener, seccomp_notif* request);

// Lets the call go on in the kernel as the program made it. False when there was nothing to answer any more:
// the caller is gone, or somebody else answered.
bool ContinueNotify(int listener, uint64_t id);

// The call is not made; the program sees errno `error`, or `value`. False as above.
bool AnswerNotify(int listener, uint64_t id, int error, int64_t value = 0);

// False when the caller is gone: what was read from its memory since may be another process's.
bool NotifyIdValid(int listener, uint64_t id);

// Wakes the reader on the caller's processor (Linux 6.6). Unimplemented on older kernels.
absl::Status SetSyncWakeUp(int listener);

}  // namespace agentmon
