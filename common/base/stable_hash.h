// A number of a text that is the same in every build and on every host, unlike std::hash. Not against
// anybody who picks the text.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace agentmon {

// FNV-1a, 64 bits.
inline uint64_t StableHash(absl::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

}  // namespace agentmon
