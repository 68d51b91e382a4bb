// What is wrong with a command line, and what was probably meant: in our words, not in those of the parser.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace agentmon {

// "agentmon session list".
std::string FullName(const CLI::App& app);

// One line. `verb` is the deepest verb that was recognized, `about_arguments` what to say of an argument too
// many.
std::string UsageErrorText(const CLI::App& verb, const CLI::ParseError& error,
                           absl::string_view about_arguments = "");

// ", did you mean 'x'?", or nothing.
std::string DidYouMean(absl::string_view word, const std::vector<std::string>& candidates);

// The candidate that the word begins or that differs from it by a slip or two; empty when none is near.
std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace agentmon
