// Choices of property tests, the same for the same seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace agentmon::policy {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(engine_() % n); }
  bool OneIn(uint32_t n) { return Below(n) == 0; }
  template <size_t N>
  std::string Of(const char* const (&list)[N]) {
    return list[Below(N)];
  }
  // One or two of them, as a list in YAML.
  template <size_t N>
  std::string Some(const char* const (&list)[N]) {
    std::vector<std::string> out;
    for (uint32_t n = 1 + Below(2); n > 0; --n) out.push_back(absl::StrCat("\"", Of(list), "\""));
    return absl::StrCat("[", absl::StrJoin(out, ", "), "]");
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace agentmon::policy
