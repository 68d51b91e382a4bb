#include "common/base/footprint.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace agentmon {
namespace {

int DropPages(dl_phdr_info* info, size_t, void*) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    // Never one that can be written, not even once by the loader: what is dropped is read from the file
    // again.
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    const uintptr_t start = (info->dlpi_addr + segment.p_vaddr) & ~(page - 1);
    const uintptr_t end = info->dlpi_addr + segment.p_vaddr + segment.p_memsz;
    ::madvise(reinterpret_cast<void*>(start), end - start, MADV_DONTNEED);  // EINVAL for the vDSO
  }
  return 0;
}

}  // namespace

void GiveBackMemory() {
  ::malloc_trim(0);
  ::dl_iterate_phdr(DropPages, nullptr);
}

}  // namespace agentmon
