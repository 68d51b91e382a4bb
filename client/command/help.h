// The text of --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace agentmon {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

// "agentmon run [OPTIONS] -- CMD [ARGS]..."
std::string UsageLine(const CLI::App& app);

// "-f, --follow", "--since TIME", "ID": as help and manual pages show an option.
std::string OptionSynopsis(const CLI::Option& option);

// Lines of at most `width` columns; words longer than that stay whole.
std::vector<std::string> WrapWords(absl::string_view text, size_t width);

}  // namespace agentmon
