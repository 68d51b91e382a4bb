// One connection of a program to its session's proxy.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "daemon/event/event.h"
#include "daemon/proxy/connector.h"
#include "daemon/proxy/http_message.h"
#include "daemon/proxy/proxy_session.h"
#include "daemon/proxy/relay.h"
#include "daemon/proxy/router.h"
#include "daemon/proxy/socks_message.h"
#include "daemon/proxy/stream.h"

namespace agentmon {

// The loop's thread. The first byte tells HTTP from SOCKS; then the credential, the request, the route, the
// connection, the relay. Ends by itself: with the exchange, and when the program takes longer than kHeadTime
// until its request is whole.
class ProxyClient : public std::enable_shared_from_this<ProxyClient> {
 public:
  static constexpr absl::Duration kHeadTime = absl::Seconds(15);
  static constexpr absl::Duration kCloseTime = absl::Seconds(5);  // for the program to take its answer

  struct Deps {
    PollLoop& loop;
    Router& router;
    // An event of this connection, judged; without process, session and source.
    std::function<void(const ProxyPeer& peer, const Event& event)> tell;
    std::function<void()> on_end;  // gives this object up
  };

  ProxyClient(Deps deps, std::shared_ptr<ProxySession> session, ProxyPeer peer, UniqueFd fd);
  ~ProxyClient();
  // False: it cannot be watched.
  bool Start();

 private:
  enum class State {
    kFirst,
    kHttpHead,
    kSocksMethods,
    kSocksPassword,
    kSocksRequest,
    kRouting,
    kRelay,
    kClosing
  };

  void OnProgram(uint32_t events);
  void OnServer(uint32_t events);
  void Step();
  bool ReadRequest();  // one step of it; false: more bytes are needed, or it is decided
  bool ReadHttp();
  bool ReadSocks();
  bool IsAuthorized(const HttpHead& head) const;
  void TakeHttp();
  void Find(Destination destination);
  void OnRoute(Route route);
  void OnConnected(UniqueFd fd, int error);
  void Pump();
  bool Move();  // false: it cannot go on
  // Answers in the program's protocol, and closes.
  void Refuse(int status, SocksReply reply, absl::string_view text);
  void Close();
  void End();
  void Wait(absl::Duration patience);
  void TellConnect(const std::string& address, const v1::Judgement& judgement, int error);
  void TellHttp(int status);

  const Deps deps_;
  const std::shared_ptr<ProxySession> session_;
  const ProxyPeer peer_;
  State state_ = State::kFirst;
  Stream program_;
  std::unique_ptr<Stream> server_;
  std::unique_ptr<HttpReader> request_;  // null: SOCKS
  HttpTarget target_;                    // of a request; of CONNECT and SOCKS only the destination
  std::string method_;                   // of HTTP
  Route route_;
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<Relay> relay_;
  std::optional<PollLoop::Timer> timer_;
  bool ended_ = false, http_told_ = false;
};

}  // namespace agentmon
