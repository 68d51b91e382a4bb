// Checks every batch against its hash and every row against its part. Any thread, on a connection of its own,
// in slices like a query.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agentmon/v1/timeline.pb.h"
#include "daemon/store/chain.h"
#include "daemon/store/query.h"
#include "daemon/store/sqlite.h"

namespace agentmon {

class Verifier {
 public:
  static constexpr int kMostFindings = 100;

  explicit Verifier(Database& database) : database_(database), names_(database) {}

  // What is wrong stands in the answer; an error means that the check itself could not be done.
  absl::StatusOr<v1::VerifyResponse> Run(const std::function<bool()>& cancelled);

 private:
  struct Anchor {
    uint64_t number = 0;
    uint64_t last_seq = 0;
    std::string hash;
    uint64_t events = 0;
  };

  absl::StatusOr<Anchor> ReadAnchor();
  absl::StatusOr<bool> Slice();
  absl::Status CheckBatch(const Statement& row);
  absl::Status CheckOrder(const Batch& batch);
  absl::Status CheckRows(const Batch& batch);
  absl::Status CheckStray(int64_t after, int64_t before);
  void CheckPart(const Batch& batch, const Part& part, uint64_t rows, const std::string& hash);
  void Find(std::string finding);

  Database& database_;
  NameCache names_;
  Statement rows_, stray_;
  v1::VerifyResponse answer_;
  Anchor previous_;  // the batch before the one that is checked
  int findings_ = 0;
};

}  // namespace agentmon
