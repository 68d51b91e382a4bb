// execve or execveat, read while its caller waits.
#pragma once

#include <linux/seccomp.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/kernel/mediated_calls.h"
#include "daemon/enforce/caller_lookup.h"

namespace agentmon {

struct ExecCall {
  CallerName name;
  bool follow = true;
  std::vector<std::string> argv;
  bool argv_cut = false;  // more than what is looked at
};

// By its name; a copy may have another one.
bool IsLoaderName(absl::string_view exe);
// Of a dynamic loader that is started as a program: which argument is the program that it runs; 0 = none.
size_t LoaderPayload(absl::Span<const absl::string_view> argv);

// False when the caller's memory cannot be read: then the kernel cannot read it either.
bool CaptureExec(const MediatedCall& call, const seccomp_notif& request, ExecCall* out);

}  // namespace agentmon
