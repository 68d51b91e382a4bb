// A mount of a session about which the kernel asks nobody.
#pragma once

#include <string>

namespace agentmon {

struct UnmarkedMount {
  std::string mount_point;
  std::string fs_type;
  std::string why;
};

}  // namespace agentmon
