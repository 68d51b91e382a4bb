// JSON Schema of policy files and a starter file, both from the key table.
#pragma once

#include <string>

namespace agentmon::policy {

std::string JsonSchema();
std::string StarterPolicy();  // commented YAML that loads as it is

}  // namespace agentmon::policy
