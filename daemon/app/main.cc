#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_split.h"
#include "common/base/log.h"
#include "daemon/app/app.h"
#include "daemon/app/options.h"
#include "daemon/holder/holder_process.h"

namespace {

// As many as allowed: connections and sessions hold descriptors.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int Fail(const absl::Status& status) {
  for (absl::string_view line : absl::StrSplit(status.message(), '\n')) agentmon::LogError(line);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  agentmon::RunHolderIfAsked(argc, argv);
  const agentmon::Options options = agentmon::ParseOptions(argc, argv);
  const auto config = agentmon::EffectiveConfig(options);
  if (!config.ok()) return Fail(config.status());
  agentmon::SetLogLevel(config->log_level);
  if (::geteuid() != 0) {
    return Fail(
        absl::PermissionDeniedError("agentmond needs root: it loads BPF programs and makes cgroups; "
                                    "start it as root ('systemctl start agentmon' where it is a service)"));
  }
  ::umask(0022);
  ::signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();
  auto app = agentmon::App::Create(options, *config);
  if (!app.ok()) return Fail(app.status());
  const absl::Status ended = (*app)->Run();
  return ended.ok() ? 0 : Fail(ended);
}
