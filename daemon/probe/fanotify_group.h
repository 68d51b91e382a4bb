// The fanotify group of one session, with marks on the mounts of the session's own mount namespace.
#pragma once

#include <sys/fanotify.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"
#include "common/kernel/mountinfo.h"

namespace agentmon {

struct FanotifyEvent {
  pid_t pid =
      0;  // process, of a group that is asked thread; 0 when it is in a pid namespace that we do not see
  bool asks_open = false;  // the opener waits for an answer
  bool asks_exec = false;
  bool opened = false;
  bool closed_after_write = false;
  bool directory = false;
  std::string path;     // in the session's mount namespace, without a trailing " (deleted)"
  int fd = -1;          // of the file, valid during the call
  bool served = false;  // lies behind a server: there is no descriptor, or only one of a copy of the content
};

// By the mask that the kernel gives, FAN_*.
FanotifyEvent EventOfMask(uint64_t mask);

// What a group that is asked is marked for, and what of it waits for an answer.
inline constexpr uint64_t kFanotifyAsked = FAN_OPEN_PERM | FAN_OPEN_EXEC_PERM | FAN_CLOSE_WRITE | FAN_ONDIR;
inline constexpr uint64_t kFanotifyWaits = FAN_OPEN_PERM | FAN_OPEN_EXEC_PERM;

// A group that is asked. file_flags: with which the files of its events are opened, besides those for
// reading. ResourceExhausted when root has no groups left.
absl::StatusOr<UniqueFd> NewAskedGroup(unsigned file_flags);

// Marks the mount with that number, if it is what lies at that path: errno, 0 = done, ESTALE = it is not.
// Never out of the root, and never through a link. Nothing but system calls.
int MarkMountBelow(int group, int root, const char* mount_point, uint64_t number, uint64_t mask);

// What a group is for: it hears of accesses afterwards, or is asked before.
enum class FanotifyMode { kHear, kAsk };

// True for file systems that are not watched: kernel interfaces, which would raise many events and mean
// little.
bool IsUnwatchedFileSystem(absl::string_view fs_type);

// Not thread-safe. Events name files, and where it is asked directories: no devices, pipes or sockets. The
// reader's own accesses raise none: it is in another mount namespace.
class FanotifyGroup {
 public:
  // What this host or the service's own restrictions refuse, before a session finds out.
  static absl::Status CheckSupport();
  // `pid` is a process of the session in the mount namespace that the session shares with nobody:
  // FailedPrecondition when it is the daemon's, that of process 1 or that of its parent. ResourceExhausted
  // when root has no groups left (fs.fanotify.max_user_groups).
  static absl::StatusOr<std::unique_ptr<FanotifyGroup>> Create(pid_t pid,
                                                               FanotifyMode mode = FanotifyMode::kHear);

  // The group that the daemon before us had for the session, as the holder kept it. Its marks are still
  // there; what they ignore is asked again.
  static absl::StatusOr<std::unique_ptr<FanotifyGroup>> Adopt(pid_t pid, UniqueFd group);

  bool asks() const { return mode_ != FanotifyMode::kHear; }

  int fd() const { return group_.get(); }
  // Has EPOLLPRI when something was mounted or unmounted; MarkMounts then.
  int mounts_fd() const { return mountinfo_.get(); }
  // Marks every mount that can be reached by its path and asks no server. Also after the process is gone. The
  // number of marks.
  absl::StatusOr<int> MarkMounts();
  // The others that are to be watched: of served file systems, and those that lie below one.
  absl::StatusOr<std::vector<Mount>> ServedMounts() const;
  // Of the process, O_PATH.
  int root() const { return root_.get(); }

  // Something waits to be read. Any thread.
  bool Waits() const;
  // Hands over what waits; the number of events that were lost, at least. True allows what an event asks;
  // nothing is read after the callback that is not answered. `answered`: called with the same event once its
  // asker goes on; may be null.
  uint64_t Read(const std::function<bool(const FanotifyEvent&)>& on_event,
                const std::function<void(const FanotifyEvent&)>& answered = nullptr);
  // No open events for the file or directory from now on, until a file is written to or it leaves the
  // kernel's cache. For directories needs Linux 6.0.
  void IgnoreOpens(int fd, bool directory = false);
  // Asks again about everything that was ignored. Any thread.
  void ForgetIgnored();

 private:
  static absl::StatusOr<std::unique_ptr<FanotifyGroup>> Of(pid_t pid, FanotifyMode mode, UniqueFd group);
  FanotifyGroup(FanotifyMode mode, UniqueFd group, UniqueFd mountinfo, UniqueFd root)
      : mode_(mode), group_(std::move(group)), mountinfo_(std::move(mountinfo)), root_(std::move(root)) {}
  void Answer(int fd, bool allow);

  const FanotifyMode mode_;
  UniqueFd group_;
  UniqueFd mountinfo_;  // holds the mount namespace
  UniqueFd root_;       // of the process
};

}  // namespace agentmon
