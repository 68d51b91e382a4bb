#include "daemon/holder/holder_client.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "daemon/holder/holder_process.h"
#include "daemon/holder/holder_protocol.h"

namespace agentmon {
namespace {

constexpr int kTimeout_s = 5;
constexpr int kTries = 3;  // a holder that is about to leave closes the connection

std::string SocketPath(const std::string& runtime_dir) { return absl::StrCat(runtime_dir, "/holder.sock"); }

absl::StatusOr<sockaddr_un> Address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return absl::InvalidArgumentError("the runtime directory's name is too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<UniqueFd> Connect(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, Address(path));
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  const timeval timeout{kTimeout_s, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return absl::UnavailableError("no holder");
    return ErrnoStatus(errno, "connect to the holder");
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) {
    return absl::PermissionDeniedError("the holder's socket is served by somebody else");
  }
  return fd;
}

absl::StatusOr<UniqueFd> Listen(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, Address(path));
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  unlink(path.c_str());  // of a holder that was killed; a live one would have answered
  const mode_t mask = umask(0177);
  const int bound = bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  umask(mask);
  if (bound != 0) return ErrnoStatus(error, absl::StrCat("bind ", path));
  if (listen(fd.get(), 4) != 0) return ErrnoStatus(errno, "listen");
  return fd;
}

// Keeps `kept` and /dev/null as 0 to 2.
void CloseAllBut(std::vector<int> kept) {
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; ++fd) dup2(null, fd);
  std::sort(kept.begin(), kept.end());
  unsigned from = 3;
  for (const int fd : kept) {
    if (static_cast<unsigned>(fd) > from) syscall(SYS_close_range, from, static_cast<unsigned>(fd) - 1, 0);
    from = static_cast<unsigned>(fd) + 1;
  }
  syscall(SYS_close_range, from, ~0U, 0);
}

void LeaveTheDaemon() {
  setsid();
  prctl(PR_SET_NAME, "agentmon-holder");
  for (const int signal_number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2}) {
    signal(signal_number, SIG_IGN);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (chdir("/") != 0) _exit(1);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  // Without it every file call of every agent fails.
  const UniqueFd oom(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  [[maybe_unused]] const ssize_t n = write(oom.get(), "-900", 4);
}

absl::Status ForkHolder(const std::string& path) {
  ASSIGN_OR_RETURN(UniqueFd accept_socket, Listen(path));
  ASSIGN_OR_RETURN(NotifyJournal journal, NotifyJournal::Create());
  const pid_t child = fork();
  if (child < 0) return ErrnoStatus(errno, "fork the holder");
  if (child == 0) {
    // Twice, so that the holder is no child of the daemon.
    if (fork() != 0) _exit(0);
    LeaveTheDaemon();
    CloseAllBut({accept_socket.get(), journal.fd()});
    HolderProcess(path, std::move(accept_socket), std::move(journal)).Run();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<HolderClient>> JoinHolder(const std::string& runtime_dir) {
  ASSIGN_OR_RETURN(UniqueFd connection, Connect(SocketPath(runtime_dir)));
  if (!SendHolderMessage(connection.get(), {.type = HolderMessageType::kHello}).ok()) {
    return absl::UnavailableError("the holder is gone");
  }
  ASSIGN_OR_RETURN(ReceivedMessage welcome, ReceiveHolderMessage(connection.get()));
  if (welcome.message.type == HolderMessageType::kBusy) {
    return absl::AlreadyExistsError("another daemon uses this runtime directory");
  }
  if (welcome.message.type != HolderMessageType::kWelcome || !welcome.fd.valid()) {
    return absl::InternalError("the holder gave no journal");
  }
  ASSIGN_OR_RETURN(NotifyJournal journal, NotifyJournal::Open(std::move(welcome.fd)));
  std::vector<HolderClient::Held> held;
  uint64_t alone_since_ns = 0;
  for (;;) {
    ASSIGN_OR_RETURN(ReceivedMessage received, ReceiveHolderMessage(connection.get()));
    if (received.message.type == HolderMessageType::kEnd) {
      alone_since_ns = received.message.cgroup_id;
      break;
    }
    if (received.message.type == HolderMessageType::kListener && received.fd.valid()) {
      held.push_back({received.message.cgroup_id, std::move(received.fd)});
    }
  }
  return std::unique_ptr<HolderClient>(
      new HolderClient(std::move(connection), std::move(journal), std::move(held), alone_since_ns));
}

absl::StatusOr<std::unique_ptr<HolderClient>> StartOrJoinHolder(const std::string& runtime_dir) {
  absl::StatusOr<std::unique_ptr<HolderClient>> client;
  for (int i = 0; i < kTries; ++i) {
    client = JoinHolder(runtime_dir);
    if (client.ok() || client.status().code() != absl::StatusCode::kUnavailable) break;
    // Nobody listens, or the one who did was just leaving: then this finds nobody the next time.
    if (const auto again = Connect(SocketPath(runtime_dir)); again.ok()) continue;
    if (absl::Status s = ForkHolder(SocketPath(runtime_dir)); !s.ok())
      return WithContext(s, "start the holder");
  }
  if (!client.ok()) return WithContext(client.status(), "join the holder");
  return client;
}

absl::Status HolderClient::Add(uint64_t cgroup_id, int listener) {
  const HolderMessage message{.type = HolderMessageType::kAdd, .cgroup_id = cgroup_id};
  return WithContext(SendHolderMessage(connection_.get(), message, listener),
                     "give the listener to the holder");
}

absl::Status HolderClient::Remove(uint64_t cgroup_id) {
  const HolderMessage message{.type = HolderMessageType::kRemove, .cgroup_id = cgroup_id};
  return WithContext(SendHolderMessage(connection_.get(), message), "take the listener from the holder");
}

}  // namespace agentmon
