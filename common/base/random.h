// Bytes that nobody can guess.
#pragma once

#include <cstddef>
#include <string>

namespace agentmon {

// Of the kernel's generator; ends the process where that fails, since tokens and names are made of them.
std::string RandomBytes(size_t size);

}  // namespace agentmon
