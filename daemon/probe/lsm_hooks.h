// The programs on the hooks of security modules: loaded, attached, and pinned so that what they stop stays
// stopped when the daemon dies. The next daemon of the same build finds them and goes on; one of another
// build attaches its own beside them and takes the old ones away once its sessions are in.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bpf/lsm_abi.h"
#include "common/base/unique_fd.h"
#include "daemon/enforce/lsm_compile.h"
#include "daemon/probe/bpf_load.h"

struct bpf_object;

namespace agentmon {

// Names of objects whose loss a session must know of.
inline constexpr char kLsmExec[] = "lsm_exec";
inline constexpr char kLsmUnix[] = "lsm_unix";
inline constexpr char kLsmProcess[] = "lsm_process";
inline constexpr char kLsmGuard[] = "lsm_guard";

// Core thread, all of it.
class LsmHooks {
 public:
  enum Map { kConfig, kSessions, kPolicies, kNodes, kAliases, kNames, kDenials, kLost, kScratches, kMaps };

  // pins: a directory of a BPF file system, this instance's own. Nothing is attached where nothing was.
  static absl::StatusOr<std::unique_ptr<LsmHooks>> Create(std::string pins, uint32_t session_level);

  // Does nothing when they are attached. An error leaves nothing attached.
  absl::Status Attach();
  // Takes away what is pinned of this build's.
  void Detach();
  // And of other builds'.
  void DetachOthers();

  bool attached() const { return attached_; }
  int map(Map which) const { return maps_[which].get(); }
  const LsmKey& key() const { return key_; }
  // Whether this object's programs run.
  bool Runs(absl::string_view object) const { return running_.count(std::string(object)) != 0; }
  // Objects of programs that cannot run here, with the reason.
  const std::vector<std::string>& inactive() const { return inactive_; }
  // How often the kernel did not run a program because it ran already on that CPU: what was asked then
  // passed. Kernels before 6.2 that may be preempted anywhere.
  uint64_t Skipped() const;

 private:
  struct Object {
    std::string name;
    bpf_object* bpf = nullptr;
    std::shared_ptr<void> owner;
    std::vector<UniqueLink> links;
  };

  LsmHooks(std::string pins, uint32_t session_level)
      : pins_(std::move(pins)), session_level_(session_level) {}
  std::string PinOf(const char* name) const { return own_ + "/" + name; }
  absl::Status TakeOver();
  absl::Status MakeMaps();
  absl::Status Load();
  template <typename Skeleton>
  absl::Status LoadObject(const char* name);
  absl::Status AttachObject(Object& object);

  const std::string pins_;
  const uint32_t session_level_;
  std::string own_;  // of this build, below pins_
  LsmKey key_{};
  UniqueFd maps_[kMaps];
  std::vector<Object> objects_;  // empty when programs of an earlier daemon run
  std::set<std::string> running_;
  std::vector<std::string> inactive_;
  bool attached_ = false;
};

}  // namespace agentmon
