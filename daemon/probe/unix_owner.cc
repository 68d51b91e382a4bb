#include "daemon/probe/unix_owner.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>

#include "bpf/unix_owner.skel.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace agentmon {
namespace {

constexpr size_t kRowsAtOnce = 64;
constexpr int kMostReads = 10'000;
constexpr int kMinorBits = 20;

}  // namespace

UnixOwner::~UnixOwner() = default;

absl::StatusOr<std::shared_ptr<UnixOwner>> UnixOwner::Create(uint32_t session_level) {
  std::shared_ptr<UnixOwner> owner(new UnixOwner);
  ASSIGN_OR_RETURN(owner->bpf_,
                   LoadSkeleton<unix_owner_bpf>("iterator of unix sockets", [=](unix_owner_bpf* bpf) {
                     bpf->rodata->session_level = session_level;
                     return absl::OkStatus();
                   }));
  owner->link_.reset(bpf_program__attach_iter(owner->bpf_->progs.list_own, nullptr));
  if (owner->link_ == nullptr) return BpfError(errno, "attach the iterator of unix sockets");
  return owner;
}

bool UnixOwner::Any(const std::function<bool(const am_own_socket&)>& is_it) const {
  const UniqueFd iter(bpf_iter_create(bpf_link__fd(link_.get())));
  if (!iter.valid()) {
    LogWarning("whose a unix socket is: ", BpfError(errno, "start the iterator").message());
    return false;
  }
  am_own_socket rows[kRowsAtOnce];
  size_t bytes = 0;
  for (int i = 0; i < kMostReads; ++i) {
    const ssize_t got = read(iter.get(), reinterpret_cast<char*>(rows) + bytes, sizeof(rows) - bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return false;
    bytes += static_cast<size_t>(got);
    if (bytes % sizeof(am_own_socket) != 0) continue;
    for (size_t row = 0; row < bytes / sizeof(am_own_socket); ++row) {
      if (is_it(rows[row])) return true;
    }
    bytes = 0;
  }
  return false;
}

bool UnixOwner::IsOwn(uint64_t cgroup_id, const struct stat& file) const {
  const uint32_t dev = major(file.st_dev) << kMinorBits | minor(file.st_dev);
  return Any([&](const am_own_socket& row) {
    return row.cgroup_id == cgroup_id && row.ino != 0 && row.ino == file.st_ino && row.dev == dev;
  });
}

bool UnixOwner::IsOwnAbstract(uint64_t cgroup_id, absl::string_view name, int type) const {
  return Any([&](const am_own_socket& row) {
    return row.cgroup_id == cgroup_id && row.ino == 0 && row.type == static_cast<uint32_t>(type) &&
           absl::string_view(reinterpret_cast<const char*>(row.name), row.name_len) == name;
  });
}

}  // namespace agentmon
