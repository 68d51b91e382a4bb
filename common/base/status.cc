#include "common/base/status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace agentmon {

std::string ErrnoName(int error_number) {
  const char* name = strerrorname_np(error_number);
  return name != nullptr ? name : absl::StrCat("errno ", error_number);
}

absl::Status ErrnoStatus(int error_number, absl::string_view what) {
  const char* text = strerrordesc_np(error_number);
  return absl::Status(
      absl::ErrnoToStatusCode(error_number),
      absl::StrCat(what, ": ", text != nullptr ? text : "unknown error", " (", ErrnoName(error_number), ")"));
}

absl::Status WithContext(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

}  // namespace agentmon
