// What the values of options may be, with errors that say what is expected.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace agentmon {

// One of the words that `choices` lists, "table|json", which becomes the name of the value.
void OneOf(CLI::Option* option, const std::string& choices);
// A whole number, `least` to `most`.
void WholeNumber(CLI::Option* option, uint64_t least, uint64_t most);
// Seconds, `least` to `most`; fractions may be given.
void Seconds(CLI::Option* option, double least, double most);

}  // namespace agentmon
