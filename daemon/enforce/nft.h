// libnftables: runs commands in the language of nft(8), a whole text as one transaction of the kernel.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct nft_ctx;

namespace agentmon {

// One thread at a time. Calls take some milliseconds; more where tables of the host are large, our own, too.
class Nft {
 public:
  // Fails where this process may not, or the kernel cannot.
  static absl::StatusOr<std::unique_ptr<Nft>> Create();
  ~Nft();

  // All of it or nothing. The error has the first line of what nft says.
  absl::Status Run(const std::string& commands);

 private:
  explicit Nft(nft_ctx* context) : context_(context) {}
  nft_ctx* const context_;
};

}  // namespace agentmon
