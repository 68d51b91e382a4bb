#include "daemon/holder/notify_journal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/status.h"

namespace agentmon {
namespace {

constexpr size_t kBytes = sizeof(NotifyShared);

}  // namespace

absl::StatusOr<NotifyJournal> NotifyJournal::Create() {
  UniqueFd fd(memfd_create("agentmon-journal", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  if (ftruncate(fd.get(), kBytes) != 0) return ErrnoStatus(errno, "size the journal");
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "seal the journal");
  }
  return Open(std::move(fd));
}

absl::StatusOr<NotifyJournal> NotifyJournal::Open(UniqueFd fd) {
  struct stat st {};
  if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, "look at the journal");
  if (st.st_size != static_cast<off_t>(kBytes))
    return absl::FailedPreconditionError("the journal has another size");
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "map the journal");
  return NotifyJournal(std::move(fd), static_cast<NotifyShared*>(memory));
}

}  // namespace agentmon
