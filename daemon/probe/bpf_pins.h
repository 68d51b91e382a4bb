// Links of BPF programs that outlive the daemon: below /sys/fs/bpf/agentmon/INSTANCE/RUN/GROUP, where RUN is
// one life of a daemon. The next one puts its own programs in place and then removes those of earlier lives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct bpf_link;

namespace agentmon {

// Core thread.
class BpfPins {
 public:
  // Mounts the BPF file system where nobody has. Makes no directory before something is pinned. Fails where
  // the place is not root's alone.
  static absl::StatusOr<std::unique_ptr<BpfPins>> Create(const std::string& instance,
                                                         const std::string& mount = "/sys/fs/bpf");
  // What is pinned stays.
  ~BpfPins();

  absl::Status Pin(bpf_link* link, absl::string_view group, absl::string_view name);
  void Remove(absl::string_view group);
  // What earlier lives of this instance have left.
  void RemoveEarlier();

 private:
  BpfPins(std::string root, std::string instance_dir, std::string run)
      : root_(std::move(root)), instance_dir_(std::move(instance_dir)), run_(std::move(run)) {}
  std::string RunDir() const { return instance_dir_ + "/" + run_; }
  absl::Status MakeDirectories(const std::string& group_dir) const;
  void RemoveEmpty() const;

  const std::string root_, instance_dir_, run_;
};

}  // namespace agentmon
