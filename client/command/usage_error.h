// What is wrong with a command line, and what was probably meant.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace agentmon {

// One line. `verb` is the deepest verb that was recognized.
std::string UsageErrorText(const CLI::App& verb, const CLI::ParseError& error);

// ", did you mean 'x'?", or nothing.
std::string DidYouMean(absl::string_view word, const std::vector<std::string>& candidates);

// The candidate that differs from the word by a slip or two; empty when none is near.
std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace agentmon
