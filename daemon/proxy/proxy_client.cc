#include "daemon/proxy/proxy_client.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/log.h"

namespace agentmon {
namespace {

constexpr size_t kMostPath = 1024;  // of a request's path, in an event
constexpr char kUsage[] =
    "agentmon: this is a proxy: it takes CONNECT host:port and targets that begin with http://";
constexpr char kNotChained[] =
    "; the proxy that was set outside of the session is not used: behind it nobody knows which address a "
    "name "
    "leads to";

SocksReply ReplyOf(int error) {
  switch (error) {
    case ECONNREFUSED:
      return SocksReply::kRefused;
    case ENETUNREACH:
      return SocksReply::kNetworkUnreachable;
    default:
      return SocksReply::kHostUnreachable;
  }
}

}  // namespace

ProxyClient::ProxyClient(Deps deps, std::shared_ptr<ProxySession> session, ProxyPeer peer, UniqueFd fd)
    : deps_(std::move(deps)),
      session_(std::move(session)),
      peer_(peer),
      program_(deps_.loop, std::move(fd), [this](uint32_t events) { OnProgram(events); }) {}

ProxyClient::~ProxyClient() {
  if (timer_) deps_.loop.Cancel(*timer_);
}

bool ProxyClient::Start() {
  Wait(kHeadTime);
  return program_.Watch(true);
}

void ProxyClient::Wait(absl::Duration patience) {
  if (timer_) deps_.loop.Cancel(*timer_);
  timer_ = deps_.loop.After(patience, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->timer_.reset();
    if (self->state_ == State::kHttpHead) {
      self->Refuse(408, SocksReply::kFailed, "agentmon: the request did not come in time");
      return self->Step();
    }
    self->End();
  });
}

// on_end gives this object up.
void ProxyClient::End() {
  if (ended_) return;
  ended_ = true;
  connector_.reset();
  deps_.on_end();
}

void ProxyClient::OnProgram(uint32_t events) {
  const std::shared_ptr<ProxyClient> self = shared_from_this();
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0 && !program_.Read()) return End();
  if ((events & EPOLLERR) != 0) return End();
  if (state_ == State::kClosing && (events & EPOLLOUT) != 0) Wait(kCloseTime);  // it takes its answer
  Step();
}

void ProxyClient::OnServer(uint32_t events) {
  const std::shared_ptr<ProxyClient> self = shared_from_this();
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0 && !server_->Read()) return End();
  Step();
}

void ProxyClient::Step() {
  const std::shared_ptr<ProxyClient> self = shared_from_this();
  while (state_ < State::kRouting && ReadRequest()) {
  }
  if (ended_) return;
  if (state_ < State::kRouting && program_.ended()) return End();
  if (state_ == State::kRelay) Pump();
  if (ended_) return;
  if (state_ == State::kClosing) program_.in.clear();
  // Move has; once more, and room would be made that nobody is called for.
  if (state_ != State::kRelay && !program_.Flush()) return End();
  if (state_ == State::kClosing && program_.finished() && program_.ended()) return End();
  const bool wants = state_ < State::kRouting || state_ == State::kClosing ||
                     (state_ == State::kRelay && server_->has_room() && program_.in.size() < Stream::kRoom);
  if (!program_.Watch(wants)) End();
}

bool ProxyClient::ReadRequest() {
  if (state_ == State::kFirst) {
    if (program_.in.empty()) return false;
    const bool socks = static_cast<uint8_t>(program_.in[0]) == kSocksVersion;
    if (!socks) request_ = NewRequestReader();
    state_ = socks ? State::kSocksMethods : State::kHttpHead;
    return true;
  }
  return state_ == State::kHttpHead ? ReadHttp() : ReadSocks();
}

bool ProxyClient::IsAuthorized(const HttpHead& head) const {
  absl::string_view given = head.Field("Proxy-Authorization");
  const size_t blank = given.find(' ');
  if (blank == absl::string_view::npos || !absl::EqualsIgnoreCase(given.substr(0, blank), "Basic"))
    return false;
  const std::string wanted = session_->door.Authorization();
  return SameSecret(absl::StripPrefix(absl::string_view(wanted), "Basic "), given.substr(blank + 1));
}

bool ProxyClient::ReadHttp() {
  const size_t taken = request_->Take(program_.in);
  program_.in.erase(0, taken);
  if (request_->state() == HttpReader::State::kHead) return false;
  if (request_->state() == HttpReader::State::kBad) {
    Refuse(request_->refusal(), SocksReply::kFailed,
           absl::StrCat("agentmon: no sound request: ", request_->why()));
    return false;
  }
  TakeHttp();
  return false;
}

void ProxyClient::TakeHttp() {
  const HttpHead& head = request_->head();
  if (!IsAuthorized(head)) {
    return Refuse(
        407, SocksReply::kFailed,
        "agentmon: this proxy serves one session; its address and password are in HTTP_PROXY there");
  }
  if (const std::string flaw = FlawOf(head); !flaw.empty())
    return Refuse(400, SocksReply::kFailed, absl::StrCat("agentmon: no sound request: ", flaw));
  method_ = head.method;
  if (method_ == "CONNECT") {
    std::optional<Destination> destination = ParseAuthority(head.target);
    // A body before the tunnel: whose is it?
    if (!destination.has_value() || request_->state() != HttpReader::State::kDone)
      return Refuse(400, SocksReply::kFailed, kUsage);
    return Find(*std::move(destination));
  }
  std::optional<HttpTarget> target = ParseHttpTarget(head.target);
  if (!target.has_value()) return Refuse(400, SocksReply::kFailed, kUsage);
  target_ = *std::move(target);
  Find(target_.destination);
}

bool ProxyClient::ReadSocks() {
  SocksRead read;
  if (state_ == State::kSocksMethods) {
    bool password = false;
    read = ReadSocksMethods(program_.in, password);
    if (read.what == SocksRead::kRead) {
      program_.Write(WriteSocksMethod(password));
      state_ = State::kSocksPassword;
      if (!password) Close();
    }
  } else if (state_ == State::kSocksPassword) {
    std::string user, password;
    read = ReadSocksPassword(program_.in, user, password);
    if (read.what == SocksRead::kRead) {
      const bool good = user == kProxyUser && SameSecret(password, session_->door.token);
      program_.Write(WriteSocksPasswordReply(good));
      state_ = State::kSocksRequest;
      if (!good) Close();
    }
  } else {
    SocksRequest request;
    read = ReadSocksRequest(program_.in, request);
    if (read.what == SocksRead::kRead) {
      program_.in.erase(0, read.size);
      if (request.refusal != SocksReply::kDone)
        Refuse(400, request.refusal, "");
      else if (std::optional<Destination> destination = MakeDestination(request.host, request.port))
        Find(*std::move(destination));
      else
        Refuse(400, SocksReply::kFailed, "");
      return false;
    }
  }
  if (read.what == SocksRead::kBad) Close();
  if (read.what != SocksRead::kRead) return false;
  program_.in.erase(0, read.size);
  return state_ != State::kClosing;
}

void ProxyClient::Find(Destination destination) {
  state_ = State::kRouting;
  if (timer_) deps_.loop.Cancel(*timer_);
  timer_.reset();
  target_.destination = std::move(destination);
  deps_.router.Find(session_, target_.destination, [weak = weak_from_this()](Route route) {
    const auto self = weak.lock();
    if (self == nullptr || self->ended_) return;
    self->OnRoute(std::move(route));
    self->Step();
  });
}

void ProxyClient::OnRoute(Route route) {
  for (const Judged& denied : route.denied) TellConnect(denied.address, denied.judgement, 0);
  if (route.open.empty()) {
    if (!route.denied.empty())
      return Refuse(403, SocksReply::kDenied, WhyDenied(route.denied.front().judgement));
    return Refuse(502, SocksReply::kHostUnreachable,
                  absl::StrCat("agentmon: ", target_.destination.host, ": ", route.failure,
                               session_->of.had_proxy ? kNotChained : ""));
  }
  route_ = std::move(route);
  std::vector<policy::Address> addresses;
  for (const auto& [address, judgement] : route_.open) addresses.push_back(address);
  connector_ = std::make_unique<Connector>(
      deps_.loop, std::move(addresses), target_.destination.port,
      [this](size_t index, int error) {
        const auto& [address, judgement] = route_.open[index];
        TellConnect(policy::ToString(address), judgement, error);
      },
      [this](UniqueFd fd, int error) {
        const std::shared_ptr<ProxyClient> self = shared_from_this();
        OnConnected(std::move(fd), error);
        Step();
      });
  connector_->Start();
}

void ProxyClient::OnConnected(UniqueFd fd, int error) {
  if (error != 0) {
    return Refuse(error == ETIMEDOUT ? 504 : 502, ReplyOf(error),
                  absl::StrCat("agentmon: connect to ", target_.destination.ToString(), ": ",
                               std::strerror(error), session_->of.had_proxy ? kNotChained : ""));
  }
  server_ =
      std::make_unique<Stream>(deps_.loop, std::move(fd), [this](uint32_t events) { OnServer(events); });
  state_ = State::kRelay;
  if (request_ == nullptr || method_ == "CONNECT") {
    if (request_ == nullptr) {
      program_.Write(WriteSocksReply(SocksReply::kDone));
    } else {
      TellHttp(200);
      program_.Write(WriteAnswer(200, ""));
    }
    relay_ = NewTunnel();
    return;
  }
  std::string path = target_.path;
  if (path.empty()) path = method_ == "OPTIONS" && target_.query.empty() ? "*" : "/";
  const Destination& to = target_.destination;
  const std::string host = absl::StrCat(absl::StripSuffix(to.ToString(), ":80"));
  server_->Write(WriteRequest(request_->head(), path + target_.query, host));
  relay_ = NewExchange(std::move(request_), [this](int status) { TellHttp(status); });
}

// Until nothing moves: what stays is watched for, or there is no room for it.
bool ProxyClient::Move() {
  for (size_t before = SIZE_MAX, now = program_.in.size() + server_->in.size(); now != before;) {
    before = now;
    // Room first: who has none would not be called again once all is written.
    if (!program_.Flush() || !server_->Flush()) return false;
    if (!relay_->OnProgram(program_, *server_) || !relay_->OnServer(*server_, program_)) return false;
    if (!program_.Flush() || !server_->Flush()) return false;
    now = program_.in.size() + server_->in.size();
  }
  return true;
}

void ProxyClient::Pump() {
  if (!Move()) {
    if (relay_->answered()) return End();
    return Refuse(502, SocksReply::kFailed,
                  absl::StrCat("agentmon: ", target_.destination.ToString(), " gave no sound answer"));
  }
  if (relay_->done()) {
    if (method_.empty() || method_ == "CONNECT") {
      // Both directions have ended; what waits to be written goes out first.
      if (!program_.Flush()) return End();
      if (program_.finished() && server_->finished()) return End();
    } else {
      return Close();
    }
  }
  const bool wants = program_.has_room() && server_->in.size() < Stream::kRoom;
  if (!server_->Watch(wants)) End();
}

void ProxyClient::Refuse(int status, SocksReply reply, absl::string_view text) {
  const bool socks = state_ == State::kSocksRequest || (state_ >= State::kRouting && method_.empty());
  if (socks) {
    if (!text.empty()) LogDebug("proxy: ", text);
    program_.Write(WriteSocksReply(reply));
  } else {
    if (!method_.empty()) TellHttp(status);
    program_.Write(WriteAnswer(status, text));
  }
  Close();
}

// What the program has sent meanwhile is read on: the answer would be lost with it otherwise.
void ProxyClient::Close() {
  state_ = State::kClosing;
  connector_.reset();
  server_.reset();
  program_.Finish();
  Wait(kCloseTime);
}

void ProxyClient::TellConnect(const std::string& address, const v1::Judgement& judgement, int error) {
  Event event;
  event.set_kind(v1::CONNECT);
  event.set_count(1);
  *event.mutable_judgement() = judgement;
  v1::Net* net = event.mutable_net();
  net->set_protocol("tcp");
  net->set_address(address);
  net->set_port(target_.destination.port);
  if (!target_.destination.address.has_value()) net->set_name(target_.destination.host);
  const bool stopped = judgement.enforced() && judgement.mechanism() == "proxy";
  net->set_result(stopped || error != 0 ? v1::Net::FAILED : v1::Net::OK);
  net->set_error(stopped ? EPERM : error);
  deps_.tell(peer_, event);
}

void ProxyClient::TellHttp(int status) {
  if (std::exchange(http_told_, true)) return;
  Event event;
  event.set_kind(v1::HTTP);
  event.set_count(1);
  v1::Http* http = event.mutable_http();
  http->set_method(method_.substr(0, 64));
  http->set_host(target_.destination.host);
  http->set_port(target_.destination.port);
  if (method_ != "CONNECT") {
    const std::string path = absl::CHexEscape(target_.path.empty() ? "/" : target_.path);
    http->set_path(path.substr(0, kMostPath));
    if (path.size() > kMostPath) event.set_cut(true);
  }
  http->set_status(static_cast<uint32_t>(status));
  deps_.tell(peer_, event);
}

}  // namespace agentmon
