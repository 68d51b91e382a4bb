// Colours of a terminal, or none.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/output/output.h"

namespace agentmon {

enum class Color {
  kNone = 0,
  kBold = 1,
  kDim = 2,
  kRed = 31,
  kGreen = 32,
  kYellow = 33,
  kBlue = 34,
  kMagenta = 35,
  kCyan = 36
};

// `when` is auto, always or never. auto: on a terminal, unless NO_COLOR is set or TERM is dumb.
bool UseColor(const std::string& when, const Output& output);

class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  std::string operator()(Color color, absl::string_view text) const {
    if (!on_ || color == Color::kNone) return std::string(text);
    return absl::StrCat("\x1b[", static_cast<int>(color), "m", text, "\x1b[0m");
  }

 private:
  bool on_;
};

}  // namespace agentmon
