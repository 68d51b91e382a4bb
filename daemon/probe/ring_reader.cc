#include "daemon/probe/ring_reader.h"

#include <linux/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/base/status.h"

namespace agentmon {

absl::StatusOr<std::unique_ptr<RingReader>> RingReader::Create(int map_fd, size_t bytes, size_t max_record) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::unique_ptr<RingReader> reader(new RingReader);
  void* consumer = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
  if (consumer == MAP_FAILED) return ErrnoStatus(errno, "map the ring's consumer page");
  reader->consumer_ = static_cast<uint64_t*>(consumer);
  const size_t beyond = std::min((max_record + BPF_RINGBUF_HDR_SZ + page - 1) / page * page, bytes);
  const size_t mapped = page + bytes + beyond;
  void* producer = mmap(nullptr, mapped, PROT_READ, MAP_SHARED, map_fd, static_cast<off_t>(page));
  if (producer == MAP_FAILED) return ErrnoStatus(errno, "map the ring");
  reader->producer_ = static_cast<const uint8_t*>(producer);
  reader->data_ = reader->producer_ + page;
  reader->bytes_ = bytes;
  reader->mapped_ = mapped;
  return reader;
}

RingReader::~RingReader() {
  if (consumer_ != nullptr) munmap(consumer_, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  if (producer_ != nullptr) munmap(const_cast<uint8_t*>(producer_), mapped_);
}

size_t RingReader::Read(size_t limit, const std::function<void(absl::Span<const uint8_t>)>& record) {
  uint64_t position = __atomic_load_n(consumer_, __ATOMIC_RELAXED);
  const uint64_t end = __atomic_load_n(reinterpret_cast<const uint64_t*>(producer_), __ATOMIC_ACQUIRE);
  size_t records = 0;
  while (position < end && records < limit) {
    const uint8_t* at = data_ + (position & (bytes_ - 1));
    const uint32_t length = __atomic_load_n(reinterpret_cast<const uint32_t*>(at), __ATOMIC_ACQUIRE);
    if ((length & BPF_RINGBUF_BUSY_BIT) != 0) break;
    const uint32_t size = length & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
    if ((length & BPF_RINGBUF_DISCARD_BIT) == 0) {
      record(absl::MakeConstSpan(at + BPF_RINGBUF_HDR_SZ, size));
      ++records;
    }
    position += (size + BPF_RINGBUF_HDR_SZ + 7) / 8 * 8;
    // Sequentially consistent: "all consumed" must not be seen after a later look at the wake-up.
    __atomic_store_n(consumer_, position, __ATOMIC_SEQ_CST);
  }
  return records;
}

}  // namespace agentmon
