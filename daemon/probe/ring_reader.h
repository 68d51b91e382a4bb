// Consumer of a BPF ring buffer (kernel, Documentation/bpf/ringbuf.rst). libbpf's maps the data twice
// from end to end, all of which counts as ours; this one maps it once and as much more as the longest
// record needs to be in one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace agentmon {

// One thread.
class RingReader {
 public:
  // `bytes`: max_entries of the map. Records are at most `max_record` bytes long.
  static absl::StatusOr<std::unique_ptr<RingReader>> Create(int map_fd, size_t bytes, size_t max_record);
  ~RingReader();
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;

  // Hands over what was in the ring when it was called, oldest first, at most `limit` records; a record
  // that its program has not finished yet ends it. Answers how many.
  size_t Read(size_t limit, const std::function<void(absl::Span<const uint8_t>)>& record);

 private:
  RingReader() = default;

  size_t bytes_ = 0;
  size_t mapped_ = 0;
  uint64_t* consumer_ = nullptr;       // a page of its own, ours to write
  const uint8_t* producer_ = nullptr;  // a page, then the data
  const uint8_t* data_ = nullptr;
};

}  // namespace agentmon
