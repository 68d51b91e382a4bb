#include "daemon/resolver/upstream.h"

#include <ares.h>
#include <sys/epoll.h>
#include <sys/time.h>

#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"

namespace agentmon {
namespace {

// Reference counted by c-ares, which gRPC uses too; never undone.
bool LibraryIsReady() {
  static const bool ready = ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS;
  return ready;
}

absl::Status AresStatus(int status, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", ares_strerror(status)));
}

}  // namespace

// One question on its way. Its channel must not go while c-ares calls us, so landing is posted.
class Upstream::Flight {
 public:
  Flight(Upstream& owner, uint64_t number, DnsQuestion question, Done done)
      : owner_(owner), number_(number), question_(std::move(question)), done_(std::move(done)) {}
  ~Flight() {
    going_ = true;
    if (deadline_) owner_.loop_.Cancel(*deadline_);
    if (step_) owner_.loop_.Cancel(*step_);
    if (channel_ != nullptr) ares_destroy(channel_);
    for (const int fd : fds_) owner_.loop_.Unwatch(fd);
  }

  void Start() {
    deadline_ = owner_.loop_.After(owner_.options_.total_timeout, [this] {
      deadline_.reset();
      Finish(absl::DeadlineExceededError("no server has answered in time"));
    });
    if (const absl::Status sent = Send(); !sent.ok()) return Finish(sent);
    SetStep();
  }
  void Complete() { done_(std::move(*result_)); }

 private:
  absl::Status Send() {
    if (!LibraryIsReady()) return absl::UnavailableError("c-ares cannot be used");
    ares_options options{};
    options.flags = ARES_FLAG_EDNS;
    options.ednspsz = kUdpBytes;
    options.timeout = static_cast<int>(absl::ToInt64Milliseconds(owner_.options_.server_timeout));
    options.tries = owner_.options_.tries;
    options.sock_state_cb = &Flight::OnSocket;
    options.sock_state_cb_data = this;
    const int status = ares_init_options(
        &channel_, &options,
        ARES_OPT_FLAGS | ARES_OPT_EDNSPSZ | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB);
    if (status != ARES_SUCCESS) {
      channel_ = nullptr;
      return AresStatus(status, "read resolv.conf");
    }
    if (!owner_.options_.servers.empty()) {
      const int set = ares_set_servers_ports_csv(channel_, owner_.options_.servers.c_str());
      if (set != ARES_SUCCESS) return AresStatus(set, "resolver.servers");
    }
    unsigned char* query = nullptr;
    int size = 0;
    const int made = ares_create_query(question_.name.c_str(), question_.klass, question_.type, 0, 1, &query,
                                       &size, kUdpBytes);
    if (made != ARES_SUCCESS) return AresStatus(made, "write the question");
    ares_send(channel_, query, size, &Flight::OnAnswer, this);
    ares_free_string(query);
    return absl::OkStatus();
  }

  static void OnAnswer(void* self, int status, int, unsigned char* bytes, int size) {
    auto* flight = static_cast<Flight*>(self);
    if (flight->going_) return;
    if (status != ARES_SUCCESS || bytes == nullptr)
      return flight->Finish(AresStatus(status, "ask the host's DNS servers"));
    flight->Finish(DnsAnswer::Read(absl::MakeConstSpan(bytes, static_cast<size_t>(size)), flight->question_));
  }

  static void OnSocket(void* self, ares_socket_t fd, int readable, int writable) {
    auto* flight = static_cast<Flight*>(self);
    PollLoop& loop = flight->owner_.loop_;
    if (readable == 0 && writable == 0) {
      loop.Unwatch(fd);
      flight->fds_.erase(fd);
      return;
    }
    const uint32_t events = (readable != 0 ? EPOLLIN : 0u) | (writable != 0 ? EPOLLOUT : 0u);
    const absl::Status watched = loop.Watch(fd, events, [flight, fd](uint32_t ready) {
      const bool failed = (ready & (EPOLLERR | EPOLLHUP)) != 0;
      flight->Process(failed || (ready & EPOLLIN) != 0 ? fd : ARES_SOCKET_BAD,
                      (ready & EPOLLOUT) != 0 ? fd : ARES_SOCKET_BAD);
    });
    if (watched.ok())
      flight->fds_.insert(fd);
    else
      flight->Finish(watched);
  }

  void Process(ares_socket_t readable, ares_socket_t writable) {
    ares_process_fd(channel_, readable, writable);
    SetStep();
  }
  // When c-ares wants to look again although nothing came.
  void SetStep() {
    if (step_) owner_.loop_.Cancel(*step_);
    step_.reset();
    timeval wait{};
    if (result_ || ares_timeout(channel_, nullptr, &wait) == nullptr) return;
    step_ = owner_.loop_.After(absl::DurationFromTimeval(wait) + absl::Milliseconds(1), [this] {
      step_.reset();
      Process(ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    });
  }

  void Finish(absl::StatusOr<DnsAnswer> result) {
    if (result_) return;
    result_.emplace(std::move(result));
    owner_.loop_.Post([&owner = owner_, number = number_, alive = owner_.alive_] {
      if (*alive) owner.Land(number);
    });
  }

  Upstream& owner_;
  const uint64_t number_;
  const DnsQuestion question_;
  const Done done_;
  ares_channel channel_ = nullptr;
  std::set<int> fds_;
  std::optional<PollLoop::Timer> deadline_, step_;
  std::optional<absl::StatusOr<DnsAnswer>> result_;
  bool going_ = false;  // what c-ares still calls for is a channel that goes
};

Upstream::Upstream(PollLoop& loop, Options options) : loop_(loop), options_(std::move(options)) {}

Upstream::~Upstream() { *alive_ = false; }

void Upstream::Ask(const DnsQuestion& question, Done done) {
  const uint64_t number = next_++;
  auto& flight = flights_[number] = std::make_unique<Flight>(*this, number, question, std::move(done));
  flight->Start();
}

void Upstream::Land(uint64_t number) {
  const auto it = flights_.find(number);
  if (it == flights_.end()) return;
  const std::unique_ptr<Flight> flight = std::move(it->second);
  flights_.erase(it);
  flight->Complete();
}

absl::Status Upstream::CheckServers(const std::string& servers) {
  ares_channel channel = nullptr;
  ares_options options{};
  if (!LibraryIsReady() || ares_init_options(&channel, &options, 0) != ARES_SUCCESS)
    return absl::UnavailableError("c-ares cannot be used");
  const int set = ares_set_servers_ports_csv(channel, servers.c_str());
  ares_addr_port_node* list = nullptr;
  const bool some = !servers.empty() && set == ARES_SUCCESS &&
                    ares_get_servers_ports(channel, &list) == ARES_SUCCESS && list != nullptr;
  if (list != nullptr) ares_free_data(list);
  ares_destroy(channel);
  if (some) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", servers, "' is not a list of addresses such as 192.0.2.1,[2001:db8::1]:5353"));
}

}  // namespace agentmon
