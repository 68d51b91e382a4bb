#include "tests/fake/fake_daemon.h"

#include <grpcpp/server_builder.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace agentmon {
namespace {

using Lock = std::lock_guard<std::mutex>;

// The last events first up to the limit, in order of time; several messages, as the real one sends.
template <typename Response>
void SendEvents(const std::vector<v1::Event>& events, uint64_t limit, grpc::ServerWriter<Response>* writer) {
  const size_t first = limit != 0 && events.size() > limit ? events.size() - limit : 0;
  Response response;
  for (size_t i = first; i < events.size(); ++i) {
    *response.add_events() = events[i];
    if (response.events_size() < 100) continue;
    writer->Write(response);
    response.clear_events();
  }
  if (response.events_size() != 0) writer->Write(response);
}

void WaitForCancel(grpc::ServerContext* context) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!context->IsCancelled() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

class FakeSessions : public v1::Sessions::Service {
 public:
  explicit FakeSessions(FakeState& state) : state_(state) {}

  grpc::Status Start(grpc::ServerContext*, const v1::StartRequest* request,
                     v1::StartResponse* response) override {
    const Lock lock(state_.mutex);
    state_.start_requests.push_back(*request);
    *response = state_.start;
    return state_.refusal;
  }
  grpc::Status Adopt(grpc::ServerContext*, const v1::AdoptRequest* request,
                     v1::AdoptResponse* response) override {
    const Lock lock(state_.mutex);
    state_.adopt_requests.push_back(*request);
    *response = state_.adopt;
    return state_.refusal;
  }
  grpc::Status Stop(grpc::ServerContext*, const v1::StopRequest* request,
                    v1::StopResponse* response) override {
    std::function<void(const v1::StopRequest&)> on_stop;
    {
      const Lock lock(state_.mutex);
      state_.stop_requests.push_back(*request);
      if (state_.fail_stop) return {grpc::StatusCode::INTERNAL, "cannot stop"};
      for (const v1::Session& session : state_.sessions) response->add_sessions(session.id());
      on_stop = state_.on_stop;
      if (!state_.refusal.ok()) return state_.refusal;
    }
    if (on_stop) on_stop(*request);
    return grpc::Status::OK;
  }
  grpc::Status List(grpc::ServerContext*, const v1::ListRequest* request,
                    v1::ListResponse* response) override {
    const Lock lock(state_.mutex);
    state_.list_requests.push_back(*request);
    for (const v1::Session& session : state_.sessions) *response->add_sessions() = session;
    return state_.refusal;
  }
  grpc::Status Get(grpc::ServerContext*, const v1::GetRequest* request, v1::GetResponse* response) override {
    const Lock lock(state_.mutex);
    if (!state_.refusal.ok()) return state_.refusal;
    for (const v1::Session& session : state_.sessions) {
      if (!request->session().empty() && session.id() != request->session()) continue;
      *response->mutable_session() = session;
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::NOT_FOUND, "no session " + request->session()};
  }
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest*,
                     grpc::ServerWriter<v1::WatchResponse>* writer) override {
    bool ends;
    {
      const Lock lock(state_.mutex);
      if (!state_.refusal.ok()) return state_.refusal;
      ends = state_.stream_ends;
      v1::WatchResponse response;
      if (!state_.sessions.empty()) *response.mutable_session() = state_.sessions.front();
      writer->Write(response);
      for (const v1::Event& event : state_.events) {
        *response.mutable_event() = event;
        writer->Write(response);
      }
      response.set_gap(state_.gap);
      if (state_.gap != 0) writer->Write(response);
    }
    if (!ends) WaitForCancel(context);
    return grpc::Status::OK;
  }

 private:
  FakeState& state_;
};

class FakeTimeline : public v1::Timeline::Service {
 public:
  explicit FakeTimeline(FakeState& state) : state_(state) {}

  grpc::Status Query(grpc::ServerContext*, const v1::QueryRequest* request,
                     grpc::ServerWriter<v1::QueryResponse>* writer) override {
    const Lock lock(state_.mutex);
    state_.query_requests.push_back(*request);
    if (state_.refusal.ok()) SendEvents(state_.events, request->limit(), writer);
    return state_.refusal;
  }
  grpc::Status Tail(grpc::ServerContext* context, const v1::TailRequest* request,
                    grpc::ServerWriter<v1::TailResponse>* writer) override {
    bool ends;
    {
      const Lock lock(state_.mutex);
      state_.tail_requests.push_back(*request);
      if (!state_.refusal.ok()) return state_.refusal;
      SendEvents(state_.events, request->backlog(), writer);
      v1::TailResponse response;
      response.set_gap(state_.gap);
      if (state_.gap != 0) writer->Write(response);
      ends = state_.stream_ends;
    }
    if (!ends) WaitForCancel(context);
    return grpc::Status::OK;
  }
  grpc::Status Verify(grpc::ServerContext*, const v1::VerifyRequest*, v1::VerifyResponse* response) override {
    const Lock lock(state_.mutex);
    *response = state_.verify;
    return state_.refusal;
  }

 private:
  FakeState& state_;
};

class FakeHost : public v1::Host::Service {
 public:
  explicit FakeHost(FakeState& state) : state_(state) {}

  grpc::Status Status(grpc::ServerContext*, const v1::StatusRequest*, v1::StatusResponse* response) override {
    const Lock lock(state_.mutex);
    *response = state_.status;
    return state_.refusal;
  }

 private:
  FakeState& state_;
};

std::string NewDirectory() {
  std::string directory = "/tmp/fake-daemon.XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) abort();
  char* absolute = realpath(directory.c_str(), nullptr);
  if (absolute == nullptr) abort();
  directory = absolute;
  free(absolute);
  return directory;
}

}  // namespace

FakeDaemon::FakeDaemon(std::string socket_path)
    : directory_(socket_path.empty() ? NewDirectory() : ""),
      socket_(socket_path.empty() ? directory_ + "/agentmond.sock" : std::move(socket_path)),
      sessions_(std::make_unique<FakeSessions>(state_)),
      timeline_(std::make_unique<FakeTimeline>(state_)),
      host_(std::make_unique<FakeHost>(state_)) {
  state_.start.set_session("s-1");
  state_.start.set_token(std::string(32, 'T'));
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket_, grpc::InsecureServerCredentials());
  builder.RegisterService(sessions_.get());
  builder.RegisterService(timeline_.get());
  builder.RegisterService(host_.get());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    fprintf(stderr, "cannot listen at %s\n", socket_.c_str());
    abort();
  }
}

FakeDaemon::~FakeDaemon() {
  Stop();
  if (!directory_.empty()) rmdir(directory_.c_str());
}

void FakeDaemon::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
  unlink(socket_.c_str());
}

grpc::Status DetailedError(grpc::StatusCode code, const std::string& message, const std::string& reason,
                           const std::string& hint) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("agentmon");
  google::rpc::Help help;
  help.add_links()->set_description(hint);
  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);
  details.add_details()->PackFrom(info);
  details.add_details()->PackFrom(help);
  return {code, message, details.SerializeAsString()};
}

}  // namespace agentmon
