#include "daemon/proxy/relay.h"

#include <utility>

#include "absl/strings/match.h"

namespace agentmon {
namespace {

class Tunnel : public Relay {
 public:
  bool OnProgram(Stream& program, Stream& server) override { return Pass(program, server, program_ended_); }
  bool OnServer(Stream& server, Stream& program) override { return Pass(server, program, server_ended_); }
  bool done() const override { return program_ended_ && server_ended_; }
  bool answered() const override { return true; }

 private:
  static bool Pass(Stream& from, Stream& to, bool& ended) {
    if (!to.has_room()) return true;
    to.Write(from.in);
    from.in.clear();
    if (from.ended() && !ended) {
      ended = true;
      to.Finish();
    }
    return true;
  }
  bool program_ended_ = false, server_ended_ = false;
};

class Exchange : public Relay {
 public:
  Exchange(std::unique_ptr<HttpReader> request, std::function<void(int)> on_status)
      : request_(std::move(request)),
        no_body_(request_->head().method == "HEAD"),
        on_status_(std::move(on_status)),
        response_(NewResponseReader(no_body_)) {}

  // What follows the request was judged by nobody, and is passed to nobody.
  bool OnProgram(Stream& program, Stream& server) override {
    if (!server.has_room()) return true;
    const size_t taken = request_->Take(program.in);
    server.Write(absl::string_view(program.in).substr(0, taken));
    program.in.erase(0, taken);
    if (request_->state() == HttpReader::State::kDone) program.in.clear();
    if (request_->state() == HttpReader::State::kBad) return false;
    return request_->state() == HttpReader::State::kDone || !program.ended();
  }

  bool OnServer(Stream& server, Stream& program) override {
    while (program.has_room() && !done()) {
      const bool in_head = response_->state() == HttpReader::State::kHead;
      const size_t taken = response_->Take(server.in);
      if (response_->state() == HttpReader::State::kBad) return false;
      if (in_head && response_->state() != HttpReader::State::kHead) {
        if (!PassHead(program)) return false;
      } else if (!in_head) {
        program.Write(absl::string_view(server.in).substr(0, taken));
      }
      server.in.erase(0, taken);
      if (taken != 0) continue;
      if (!server.ended()) return true;
      response_->End();
      if (response_->state() == HttpReader::State::kBad) return false;
    }
    return true;
  }

  bool done() const override { return response_->state() == HttpReader::State::kDone; }
  bool answered() const override { return answered_; }

 private:
  // After an interim answer comes another one. A server that changes the protocol was not asked to.
  bool PassHead(Stream& program) {
    const HttpHead& head = response_->head();
    if (head.status == 101) return false;
    program.Write(WriteResponse(head));
    answered_ = true;
    if (head.status / 100 == 1) {
      response_ = NewResponseReader(no_body_);
      return true;
    }
    on_status_(head.status);
    return true;
  }

  const std::unique_ptr<HttpReader> request_;
  const bool no_body_;
  const std::function<void(int)> on_status_;
  std::unique_ptr<HttpReader> response_;
  bool answered_ = false;
};

}  // namespace

std::unique_ptr<Relay> NewTunnel() { return std::make_unique<Tunnel>(); }

std::unique_ptr<Relay> NewExchange(std::unique_ptr<HttpReader> request, std::function<void(int)> on_status) {
  return std::make_unique<Exchange>(std::move(request), std::move(on_status));
}

}  // namespace agentmon
