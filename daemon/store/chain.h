// The hash chain. Rows of one batch fall into parts: one per session and class (plain or kept), which is
// also what retention removes at once. A part's hash covers its rows, a batch's hash its parts' hashes
// and the hash of the batch before: the chain stays checkable when the rows of a part are gone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/store/row.h"

struct evp_md_ctx_st;

namespace agentmon {

inline constexpr size_t kHashBytes = 32;

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) = default;
  Sha256& operator=(Sha256&&) = default;
  void Add(absl::string_view bytes);
  std::string Finish();  // once

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

struct Part {
  int64_t session = 0;  // sessions.num
  bool kept = false;
  bool pruned = false;  // the rows are gone; not covered by any hash
  uint32_t rows = 0;
  uint64_t bytes = 0;  // as usage counts them
  std::string hash;
};

struct Batch {
  uint64_t number = 0;  // from 1, without holes
  uint64_t first_seq = 0;
  uint64_t last_seq = 0;
  int64_t min_ns = 0;
  int64_t max_ns = 0;
  std::vector<Part> parts;
  std::string hash;
};

// Hashes the rows of one part, given in order of seq.
class PartHash {
 public:
  explicit PartHash(absl::string_view session_id);
  void Add(const RowView& row, absl::string_view exe);
  std::string Finish();

 private:
  Sha256 hash_;
  std::string buffer_;
};

std::string BatchHash(absl::string_view previous_hash, const Batch& batch);

std::string EncodeParts(const std::vector<Part>& parts);
absl::StatusOr<std::vector<Part>> DecodeParts(absl::string_view bytes);

}  // namespace agentmon
