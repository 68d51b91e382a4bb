#include "client/output/color.h"

#include <cstdlib>
#include <cstring>

namespace agentmon {

bool UseColor(const std::string& when, const Output& output) {
  if (when == "always") return true;
  const char* no_color = getenv("NO_COLOR");  // no-color.org: any value but the empty one
  const char* term = getenv("TERM");
  const bool unwanted =
      (no_color != nullptr && *no_color != '\0') || (term != nullptr && std::strcmp(term, "dumb") == 0);
  return when == "auto" && !unwanted && output.is_terminal();
}

}  // namespace agentmon
