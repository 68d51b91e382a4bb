// Opening, loading and attaching BPF skeletons, with reasons in one line.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

struct bpf_link;
struct bpf_program;

namespace agentmon {

// Sends libbpf's own messages to our log at debug level, once.
void RouteLibbpfLog();

// "load process programs: ...", with what to do about it for the errors that everybody meets.
absl::Status BpfError(int error_number, absl::string_view what);

// Ok when this kernel can run our programs at all: BPF, type information, rights.
absl::Status CheckBpf();

// How often the kernel did not run the program because it already ran on that CPU.
uint64_t RecursionMisses(const bpf_program* program);

struct LinkDestroyer {
  void operator()(bpf_link* link) const;
};
using UniqueLink = std::unique_ptr<bpf_link, LinkDestroyer>;

// A skeleton of bpftool: open, then let the caller set it up, then load.
template <typename Skeleton>
struct SkeletonDestroyer {
  void operator()(Skeleton* skeleton) const { Skeleton::destroy(skeleton); }
};
template <typename Skeleton>
using UniqueSkeleton = std::unique_ptr<Skeleton, SkeletonDestroyer<Skeleton>>;

template <typename Skeleton>
absl::StatusOr<UniqueSkeleton<Skeleton>> LoadSkeleton(absl::string_view what,
                                                      const std::function<absl::Status(Skeleton*)>& set_up) {
  RouteLibbpfLog();
  UniqueSkeleton<Skeleton> skeleton(Skeleton::open(nullptr));
  if (skeleton == nullptr) return BpfError(errno, std::string("open ") + std::string(what));
  RETURN_IF_ERROR(set_up(skeleton.get()));
  if (int error = Skeleton::load(skeleton.get()); error != 0) {
    return BpfError(-error, std::string("load ") + std::string(what));
  }
  return skeleton;
}

}  // namespace agentmon
