#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/str_split.h"
#include "common/base/log.h"
#include "common/base/log_writer.h"
#include "daemon/app/app.h"
#include "daemon/app/options.h"
#include "daemon/holder/holder_process.h"
#include "daemon/journal/journal_socket.h"
#include "daemon/probe/call_maker.h"
#include "daemon/probe/mount_keeper.h"

namespace {

// As many as allowed: connections and sessions hold descriptors.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Null where standard error is not the journal's, or the journal cannot be reached: then the log goes there.
std::unique_ptr<agentmon::JournalSocket> OpenJournal() {
  if (!agentmon::IsJournalStream(STDERR_FILENO, std::getenv("JOURNAL_STREAM"))) return nullptr;
  auto journal = agentmon::JournalSocket::Open();
  return journal.ok() ? std::move(*journal) : nullptr;
}

int Fail(const absl::Status& status) {
  for (absl::string_view line : absl::StrSplit(status.message(), '\n')) agentmon::LogError(line);
  return 1;
}

int RunApp(const agentmon::Options& options, const agentmon::Config& config, agentmon::JournalSocket* journal,
           mode_t mask) {
  ::umask(mask);
  ::signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();
  auto app = agentmon::App::Create(options, config, journal);
  if (!app.ok()) return Fail(app.status());
  const absl::Status ended = (*app)->Run();
  return ended.ok() ? 0 : Fail(ended);
}

}  // namespace

int main(int argc, char** argv) {
  agentmon::RunHolderIfAsked(argc, argv);
  agentmon::RunMountKeeperIfAsked(argc, argv);
  agentmon::RunCallMakerIfAsked(argc, argv);
  // For as long as the process: whoever logs last needs it.
  static agentmon::JournalSocket* const journal = OpenJournal().release();
  if (journal != nullptr) {
    agentmon::SetLogWriter(
        [](agentmon::LogLevel level, absl::string_view line) { journal->SendLine(level, line); });
  }
  const agentmon::Options options = agentmon::ParseOptions(argc, argv);
  if (options.user && ::geteuid() == 0) {
    return Fail(absl::PermissionDeniedError(
        "agentmond --user is for an ordinary user: root runs agentmond without --user, which can do more"));
  }
  const auto config = agentmon::EffectiveConfig(options);
  if (!config.ok()) return Fail(config.status());
  agentmon::SetLogLevel(config->log_level);
  if (options.user) return RunApp(options, *config, journal, 0077);
  if (::geteuid() != 0) {
    return Fail(
        absl::PermissionDeniedError("agentmond needs root: it loads BPF programs and makes cgroups; "
                                    "start it as root ('systemctl start agentmon' where it is a service), or "
                                    "with --user for what a user can have"));
  }
  return RunApp(options, *config, journal, 0022);
}
