#include "daemon/holder/holder_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/kernel/own_program.h"
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

constexpr char kName[] = "agentmon-holder";
constexpr char kHolderOption[] = "--holder";
constexpr int kAcceptFd = 3;  // of the holder, when it starts
constexpr int kJournalFd = 4;
constexpr uint64_t kKnowsLoss = 1, kKnowsMounts = 2;
constexpr char kEarlier[] = "the holder is one of an earlier version, until its last session ends";

absl::Status StartHolder(const std::string& path, const NotifyJournal& journal) {
  ASSIGN_OR_RETURN(const UniqueFd accept_socket, Listen(path));
  return StartOwnProgram(kName, kHolderOption, path.c_str(), {accept_socket.get(), journal.fd()});
}

absl::StatusOr<UniqueFd> ConnectAndGreet(const std::string& path) {
  ASSIGN_OR_RETURN(UniqueFd connection, Connect(path));
  if (!SendHolderMessage(connection.get(), {.type = HolderMessageType::kHello}).ok()) {
    return absl::UnavailableError("the holder is gone");
  }
  return connection;
}

absl::StatusOr<ReceivedMessage> ReceiveWelcome(int connection) {
  ASSIGN_OR_RETURN(ReceivedMessage welcome, ReceiveHolderMessage(connection));
  if (welcome.message.type == HolderMessageType::kBusy) {
    return absl::AlreadyExistsError("another daemon uses this runtime directory");
  }
  if (welcome.message.type != HolderMessageType::kWelcome || !welcome.fd.valid()) {
    return absl::InternalError("the holder gave no journal");
  }
  return welcome;
}

}  // namespace

void RunHolderIfAsked(int argc, char** argv) {
  if (argc != 3 || std::strcmp(argv[1], kHolderOption) != 0) return;
  BecomeOwnProgram(kName, 2);
  auto journal = NotifyJournal::Open(UniqueFd(kJournalFd));
  if (!journal.ok()) _exit(1);
  HolderProcess(argv[2], UniqueFd(kAcceptFd), std::move(*journal)).Run();
  _exit(0);
}

absl::StatusOr<std::unique_ptr<HolderClient>> JoinHolder(const std::string& runtime_dir) {
  ASSIGN_OR_RETURN(UniqueFd connection, ConnectAndGreet(SocketPath(runtime_dir)));
  ASSIGN_OR_RETURN(ReceivedMessage welcome, ReceiveWelcome(connection.get()));
  ASSIGN_OR_RETURN(NotifyJournal journal, NotifyJournal::Open(std::move(welcome.fd)));
  std::unique_ptr<HolderClient> client(
      new HolderClient(runtime_dir, std::move(connection), std::move(journal), welcome.message.count));
  RETURN_IF_ERROR(client->ReceiveHeld());
  return client;
}

absl::StatusOr<std::unique_ptr<HolderClient>> StartOrJoinHolder(const std::string& runtime_dir) {
  absl::StatusOr<std::unique_ptr<HolderClient>> client;
  for (int i = 0; i < kTries; ++i) {
    client = JoinHolder(runtime_dir);
    const bool silent = absl::IsDeadlineExceeded(client.status());
    if (client.ok() || !(silent || absl::IsUnavailable(client.status()))) break;
    if (silent && i == 0) continue;  // the host may be very busy
    if (silent) {
      LogWarning(
          "the holder does not answer and another one takes its place; file calls of the sessions "
          "that it holds wait for it");
    } else if (const auto again = Connect(SocketPath(runtime_dir)); again.ok()) {
      continue;  // nobody listens, or the one who did was just leaving: then this finds nobody the next time
    }
    ASSIGN_OR_RETURN(const NotifyJournal journal, NotifyJournal::Create());
    if (absl::Status s = StartHolder(SocketPath(runtime_dir), journal); !s.ok())
      return WithContext(s, "start the holder");
  }
  if (!client.ok()) return WithContext(client.status(), "join the holder");
  return client;
}

absl::Status HolderClient::ReceiveHeld() {
  for (;;) {
    ASSIGN_OR_RETURN(ReceivedMessage received, ReceiveHolderMessage(connection_.get()));
    if (received.message.type == HolderMessageType::kEnd) {
      alone_since_ns_ = received.message.count;
      return absl::OkStatus();
    }
    if (received.message.type == HolderMessageType::kListener && received.fd.valid()) {
      held_.push_back({received.message.cgroup_id, std::move(received.fd)});
    }
    if (received.message.type == HolderMessageType::kGroup && received.fd.valid()) {
      groups_[received.message.cgroup_id] = std::move(received.fd);
    }
    if (received.message.type == HolderMessageType::kMounts && received.fd.valid()) {
      mounts_[received.message.cgroup_id] = std::move(received.fd);
    }
  }
}

absl::StatusOr<uint64_t> HolderClient::TakeOver(uint64_t cgroup_id) {
  const HolderMessage take{.type = HolderMessageType::kTake, .cgroup_id = cgroup_id};
  RETURN_IF_ERROR(SendHolderMessage(connection_.get(), take));
  for (;;) {
    ASSIGN_OR_RETURN(const ReceivedMessage received, ReceiveHolderMessage(connection_.get()));
    const HolderMessage& message = received.message;
    if (message.type == HolderMessageType::kTaken && message.cgroup_id == cgroup_id) return message.count;
    if (message.type == HolderMessageType::kLost) told_.push_back({message.cgroup_id, message.count});
  }
}

absl::StatusOr<std::vector<HolderClient::Unseen>> HolderClient::Read() {
  pollfd readable{connection_.get(), POLLIN, 0};
  while (poll(&readable, 1, 0) > 0) {
    const auto received = ReceiveHolderMessage(connection_.get());
    if (!received.ok()) {
      if (told_.empty()) return received.status();
      break;  // the next call says so
    }
    if (received->message.type == HolderMessageType::kLost) {
      told_.push_back({received->message.cgroup_id, received->message.count});
    }
  }
  return std::exchange(told_, {});
}

absl::Status HolderClient::Restart() {
  const std::string path = SocketPath(runtime_dir_);
  RETURN_IF_ERROR(StartHolder(path, journal_));
  ASSIGN_OR_RETURN(UniqueFd connection, ConnectAndGreet(path));
  ASSIGN_OR_RETURN(const ReceivedMessage welcome, ReceiveWelcome(connection.get()));  // the same journal
  connection_ = std::move(connection);
  knows_ = welcome.message.count;
  return ReceiveHeld();
}

namespace {

UniqueFd TakeOut(std::map<uint64_t, UniqueFd>& held, uint64_t cgroup_id) {
  const auto found = held.find(cgroup_id);
  if (found == held.end()) return UniqueFd();
  UniqueFd fd = std::move(found->second);
  held.erase(found);
  return fd;
}

}  // namespace

UniqueFd HolderClient::TakeGroup(uint64_t cgroup_id) { return TakeOut(groups_, cgroup_id); }

UniqueFd HolderClient::TakeMounts(uint64_t cgroup_id) { return TakeOut(mounts_, cgroup_id); }

absl::Status HolderClient::AddMounts(uint64_t cgroup_id, int channel) {
  if (knows_ < kKnowsMounts) return absl::UnimplementedError(kEarlier);
  const HolderMessage message{.type = HolderMessageType::kAddMounts, .cgroup_id = cgroup_id};
  return WithContext(SendHolderMessage(connection_.get(), message, channel),
                     "give the channel to the mount keeper to the holder");
}

std::vector<uint64_t> HolderClient::GroupsLeft() const {
  std::vector<uint64_t> left;
  for (const auto& [cgroup_id, group] : groups_) left.push_back(cgroup_id);
  return left;
}

absl::Status HolderClient::AddGroup(uint64_t cgroup_id, int group) {
  const HolderMessage message{.type = HolderMessageType::kAddGroup, .cgroup_id = cgroup_id};
  return WithContext(SendHolderMessage(connection_.get(), message, group), "give the group to the holder");
}

absl::Status HolderClient::Add(uint64_t cgroup_id, int listener, bool closed, bool sockets_closed) {
  const HolderMessage message{.type = HolderMessageType::kAdd,
                              .cgroup_id = cgroup_id,
                              .count = (closed ? kClosed : 0) | (sockets_closed ? kSocketsClosed : 0)};
  return WithContext(SendHolderMessage(connection_.get(), message, listener),
                     "give the listener to the holder");
}

absl::Status HolderClient::SetLossAction(uint64_t cgroup_id, int cgroup_directory, LossAction action) {
  if (knows_ < kKnowsLoss) return absl::UnimplementedError(kEarlier);
  const HolderMessage message{
      .type = HolderMessageType::kOnLoss, .cgroup_id = cgroup_id, .count = static_cast<uint64_t>(action)};
  return WithContext(SendHolderMessage(connection_.get(), message, cgroup_directory),
                     "tell the holder what becomes of the session without a daemon");
}

absl::Status HolderClient::Remove(uint64_t cgroup_id) {
  const HolderMessage message{.type = HolderMessageType::kRemove, .cgroup_id = cgroup_id};
  return WithContext(SendHolderMessage(connection_.get(), message), "take the listener from the holder");
}

}  // namespace agentmon
