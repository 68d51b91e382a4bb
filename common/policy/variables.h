// ${NAME}, ${NAME:-default} (nested) and a leading ~ in patterns.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace agentmon::policy {

// What a session's variables stand for. `derived` comes from the daemon's own knowledge of the user and the
// workspace (HOME, USER, UID, WORKSPACE, GIT_ROOT, TMPDIR); `session` is the environment of the session,
// which its starter chooses: it never replaces a derived name, and layers of root's do not see it.
struct Variables {
  std::map<std::string, std::string, std::less<>> derived;
  std::map<std::string, std::string, std::less<>> session;
};

enum class Escape { kNone, kGlob };

struct ExpandResult {
  std::string value;
  std::string error;      // empty when it worked
  std::string undefined;  // the name that has no value, when that is the error
  size_t offset = 0;      // of the error
};

// `session_visible`: look into variables.session too. Values are quoted for globs with Escape::kGlob.
ExpandResult Expand(absl::string_view text, const Variables& variables, bool session_visible, Escape escape);

// The names that occur, for checks before there is a session; error as above. ~ counts as HOME.
std::vector<std::string> VariableNames(absl::string_view text, ExpandResult& error);

}  // namespace agentmon::policy
