#include "common/cli/value_checks.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/cli/usage_error.h"

namespace agentmon {

void OneOf(CLI::Option* option, const std::string& choices) {
  const std::vector<std::string> words = absl::StrSplit(choices, '|');
  option->type_name(choices);
  option->check([words, choices](const std::string& value) {
    if (std::find(words.begin(), words.end(), value) != words.end()) return std::string();
    return absl::StrCat("'", value, "' is none of ", choices, DidYouMean(value, words));
  });
}

void WholeNumber(CLI::Option* option, uint64_t least, uint64_t most) {
  option->check([=](const std::string& value) {
    uint64_t number = 0;
    const bool is_number = absl::SimpleAtoi(value, &number) && number >= least && number <= most;
    return is_number ? std::string()
                     : absl::StrCat("'", value, "' is no whole number from ", least, " to ", most);
  });
}

void Seconds(CLI::Option* option, double least, double most) {
  option->check([=](const std::string& value) {
    double number = 0;
    const bool is_number = absl::SimpleAtod(value, &number) && number >= least && number <= most;
    return is_number
               ? std::string()
               : absl::StrFormat("'%s' is no number of seconds from %.15g to %.15g", value, least, most);
  });
}

}  // namespace agentmon
