#include "common/base/random.h"

#include <sys/random.h>

#include <cstdlib>

#include "common/base/log.h"

namespace agentmon {

std::string RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  if (getrandom(bytes.data(), size, 0) != static_cast<ssize_t>(size)) {
    LogError("getrandom failed");
    abort();
  }
  return bytes;
}

}  // namespace agentmon
