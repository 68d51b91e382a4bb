#include "daemon/probe/call_maker.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/base/status.h"
#include "common/kernel/own_program.h"
#include "daemon/probe/passed_bytes.h"

namespace agentmon {
namespace {

constexpr char kName[] = "agentmon-calls";
constexpr char kOption[] = "--calls";
constexpr int kChannelFd = 3;          // of the process, when it starts
constexpr size_t kChildrenMost = 256;  // hung ones included
constexpr int kOfOneMost = 64;         // of one session

enum class Word : uint32_t { kStops, kStopsOtherNames, kVerdict, kResult };

// Plain values and texts, one after the other.
class Packer {
 public:
  template <typename T>
  Packer& Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Packer& Text(absl::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    bytes_.append(text.data(), text.size());
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(absl::string_view bytes) : rest_(bytes) {}
  template <typename T>
  Unpacker& Take(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    ok_ = ok_ && rest_.size() >= sizeof(value);
    if (!ok_) return *this;
    std::memcpy(&value, rest_.data(), sizeof(value));
    rest_.remove_prefix(sizeof(value));
    return *this;
  }
  Unpacker& Text(std::string& text) {
    uint32_t size = 0;
    Take(size);
    ok_ = ok_ && rest_.size() >= size;
    if (!ok_) return *this;
    text = std::string(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return *this;
  }
  bool ok() const { return ok_; }

 private:
  absl::string_view rest_;
  bool ok_ = true;
};

// The two sides of one conversation are the same program.
std::string PackCall(const BrokeredCall& call) {
  Packer packer;
  packer.Put(call.cgroup_id).Put(call.act).Put(call.tid).Put(call.tgid).Put(call.by_fd).Put(call.at_flags);
  packer.Put(call.open_flags).Put(call.mode).Put(call.device).Put(call.uid).Put(call.gid).Put(call.size);
  packer.Put(call.name.dirfd).Text(call.name.name).Put(call.new_name.dirfd).Text(call.new_name.name);
  return packer.Text(call.target).bytes();
}

bool UnpackCall(absl::string_view bytes, BrokeredCall& call) {
  Unpacker unpacker(bytes);
  unpacker.Take(call.cgroup_id).Take(call.act).Take(call.tid).Take(call.tgid).Take(call.by_fd);
  unpacker.Take(call.at_flags).Take(call.open_flags).Take(call.mode).Take(call.device).Take(call.uid);
  unpacker.Take(call.gid).Take(call.size).Take(call.name.dirfd).Text(call.name.name);
  unpacker.Take(call.new_name.dirfd).Text(call.new_name.name).Text(call.target);
  return unpacker.ok();
}

// In the child. Who has no answer does nothing: the daemon is gone, or its caller is.
bool AskDaemon(int socket, const Packer& question) {
  if (!SendBytes(socket, question.bytes())) _exit(1);
  const auto answer = ReceiveBytes(socket);
  if (!answer.ok()) _exit(1);
  Word word{};
  bool stop = true;
  if (!Unpacker(answer->bytes).Take(word).Take(stop).ok() || word != Word::kVerdict) _exit(1);
  return stop;
}

// Nothing else stays open: the end of another child, or of its parent, is seen by the last descriptor.
[[noreturn]] void MakeCall(int given, absl::string_view bytes) {
  const int socket = kChannelFd;
  if (dup2(given, socket) != socket || syscall(SYS_close_range, socket + 1, ~0U, 0) != 0) _exit(1);
  BrokeredCall call;
  if (!UnpackCall(bytes, call)) _exit(1);
  FileJudge judge;
  judge.stops = [&](uint32_t operations, absl::string_view path, absl::string_view new_path, bool directory) {
    return AskDaemon(socket,
                     Packer().Put(Word::kStops).Put(operations).Put(directory).Text(path).Text(new_path));
  };
  judge.stops_other_names = [&](uint32_t operations, absl::string_view path, const struct stat& object) {
    return AskDaemon(socket, Packer().Put(Word::kStopsOtherNames).Put(operations).Put(object).Text(path));
  };
  const BrokerResult result = FileBroker(FileBroker::In::kOwnProcess).Handle(call, judge);
  Packer packer;
  packer.Put(Word::kResult).Put(result.answer).Put(result.error).Put(result.existed).Put(result.only_reads);
  SendBytes(socket, packer.Text(result.path).Text(result.new_path).bytes());
  _exit(0);
}

// One thread.
class Maker {
 public:
  explicit Maker(int channel) : channel_(channel) {}
  [[noreturn]] void Run() {
    for (;;) {
      std::vector<pollfd> fds = {{channel_, POLLIN, 0}};
      for (const Child& child : children_) {
        fds.push_back({child.process.get(), POLLIN, 0});
        fds.push_back({child.killed ? -1 : child.socket.get(), 0, 0});  // hangs up
      }
      if (poll(fds.data(), fds.size(), -1) < 0) continue;
      LookAfter(fds);
      if (fds[0].revents != 0) Make();
    }
  }

 private:
  struct Child {
    pid_t pid = 0;
    uint64_t cgroup_id = 0;
    UniqueFd process, socket;
    bool killed = false;
  };

  void LookAfter(const std::vector<pollfd>& fds) {
    std::vector<Child> left;
    for (size_t i = 0; i < children_.size(); ++i) {
      Child& child = children_[i];
      if (fds[1 + 2 * i].revents != 0 && waitpid(child.pid, nullptr, WNOHANG) == child.pid) continue;
      if (fds[2 + 2 * i].revents != 0) {
        kill(child.pid, SIGKILL);  // ours, and not waited for yet
        child.killed = true;
      }
      left.push_back(std::move(child));
    }
    children_ = std::move(left);
  }

  void Make() {
    auto request = ReceiveBytes(channel_);
    if (!request.ok()) _exit(0);  // the daemon is gone
    Child child;
    if (!Unpacker(request->bytes).Take(child.cgroup_id).ok() || !request->fd.valid()) return;
    const auto of_session = std::count_if(children_.begin(), children_.end(), [&](const Child& other) {
      return other.cgroup_id == child.cgroup_id;
    });
    if (children_.size() >= kChildrenMost || of_session >= kOfOneMost) return;
    child.socket = std::move(request->fd);
    child.pid = fork();
    if (child.pid == 0) MakeCall(child.socket.get(), request->bytes);
    child.process = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0)));
    if (child.pid > 0) children_.push_back(std::move(child));
  }

  const int channel_;
  std::vector<Child> children_;
};

}  // namespace

absl::StatusOr<UniqueFd> CallMaker::Begin(const BrokeredCall& call) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return ErrnoStatus(errno, "socketpair");
  UniqueFd own(ends[0]);
  const UniqueFd childs(ends[1]);
  const std::string bytes = PackCall(call);
  absl::MutexLock lock(&mutex_);
  if (channel_.valid() && SendBytes(channel_.get(), bytes, childs.get())) return own;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return ErrnoStatus(errno, "socketpair");
  channel_ = UniqueFd(ends[0]);
  const UniqueFd makers(ends[1]);
  RETURN_IF_ERROR(StartOwnProgram(kName, kOption, "", {makers.get()}));
  if (!SendBytes(channel_.get(), bytes, childs.get())) return ErrnoStatus(errno, "send to the call maker");
  return own;
}

int FollowMadeCall(int socket, const FileJudge& judge, BrokerResult* result) {
  for (;;) {
    // A signal ends the waiting only: what was said is heard.
    pollfd said{socket, POLLIN, 0};
    if (poll(&said, 1, -1) < 0) return EINTR;
    const auto received = ReceiveBytes(socket);
    if (!received.ok()) return EIO;
    Unpacker unpacker(received->bytes);
    Word word{};
    unpacker.Take(word);
    uint32_t operations = 0;
    std::string path, new_path;
    bool stop = true;
    if (word == Word::kResult) {
      unpacker.Take(result->answer).Take(result->error).Take(result->existed).Take(result->only_reads);
      return unpacker.Text(result->path).Text(result->new_path).ok() ? 0 : EIO;
    }
    if (word == Word::kStops) {
      bool directory = false;
      if (!unpacker.Take(operations).Take(directory).Text(path).Text(new_path).ok()) return EIO;
      stop = judge.stops(operations, path, new_path, directory);
    } else if (word == Word::kStopsOtherNames) {
      struct stat object {};
      if (!unpacker.Take(operations).Take(object).Text(path).ok()) return EIO;
      stop = judge.stops_other_names(operations, path, object);
    } else {
      return EIO;
    }
    if (!SendBytes(socket, Packer().Put(Word::kVerdict).Put(stop).bytes())) return EIO;
  }
}

void RunCallMakerIfAsked(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], kOption) != 0) return;
  BecomeOwnProgram(kName, 1);
  Maker(kChannelFd).Run();
}

}  // namespace agentmon
