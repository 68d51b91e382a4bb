// Performs file-changing system calls for the sessions whose policy must be asked first.
//
// The name that a program gave may mean something else a moment later. So the caller's name is looked up
// once, held by descriptor, judged by the path of what is held, and the call is made on that, with the
// caller's rights.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/kernel/mediated_calls.h"
#include "daemon/enforce/caller_credentials.h"
#include "daemon/enforce/caller_lookup.h"

namespace agentmon {

// One call, copied out of the caller.
struct BrokeredCall {
  FileAct act = FileAct::kUnlink;
  uint64_t cgroup_id = 0;  // of the session
  pid_t tid = 0;
  pid_t tgid = 0;
  CallerName name;
  CallerName new_name;    // rename, link; symlink: dirfd and name of the link itself
  std::string target;     // symlink: the text
  bool by_fd = false;     // fchmod and the like: name.dirfd is the object
  uint64_t at_flags = 0;  // AT_*, of rename RENAME_*
  uint32_t open_flags = 0;
  uint32_t mode = 0;
  uint64_t device = 0;
  int64_t uid = -1, gid = -1;
  uint64_t size = 0;
};

enum class BrokerAnswer {
  kContinue,  // the kernel may do it: what it will do was judged by what cannot change any more
  kDone,      // done, or failed with error
  kStopped,   // the policy stops it
};

struct BrokerResult {
  BrokerAnswer answer = BrokerAnswer::kDone;
  int error = 0;  // errno; 0 = done
  std::string path, new_path;
  bool existed = false;     // open: the file is there
  bool only_reads = false;  // open: and nothing of it would be changed
};

// What is asked of the policy: true = it stops the act. operations: policy::FileOp bits.
struct FileJudge {
  std::function<bool(uint32_t operations, absl::string_view path, absl::string_view new_path, bool directory)>
      stops;
  // An object that has other names as well; asked with the thread's own rights.
  std::function<bool(uint32_t operations, absl::string_view path, const struct stat& object)>
      stops_other_names;
};

// One thread's own; that thread has called PrepareToActForCallers(). May wait for a file system.
class FileBroker {
 public:
  enum class In { kThread, kOwnProcess };
  // kOwnProcess: this process is there for one call, and becomes its caller.
  explicit FileBroker(In in = In::kThread) : in_(in) {}
  BrokerResult Handle(const BrokeredCall& call, const FileJudge& judge);

 private:
  BrokerResult Open(const BrokeredCall& call, const FileJudge& judge);
  absl::StatusOr<CallerCredentials> CredentialsOf(const BrokeredCall& call);

  // Before anything is looked up: false = it has failed.
  bool Become(const BrokeredCall& call);

  const In in_;
  KnownCredentials known_;
};

}  // namespace agentmon
