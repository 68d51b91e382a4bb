// Any bytes as a kernel record: no crash, no read beyond them, and what is decoded is a sound message.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "daemon/event/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto decoded = agentmon::Decode(absl::MakeConstSpan(data, size), INT64_MAX / 2);
  if (!decoded.ok()) return 0;
  agentmon::Event copy;
  if (!copy.ParseFromString(decoded->event.SerializeAsString())) std::abort();
  if (decoded->event.count() == 0 || decoded->event.kind() == agentmon::v1::EVENT_KIND_UNSPECIFIED)
    std::abort();
  return 0;
}
