// A daemon that answers from canned state on a unix socket of its own: for tests of whoever talks to one.
#pragma once

#include <grpcpp/server.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "agentmon/v1/host.grpc.pb.h"
#include "agentmon/v1/sessions.grpc.pb.h"
#include "agentmon/v1/timeline.grpc.pb.h"

namespace agentmon {

// What the daemon answers and what it was asked. Guarded by its mutex: calls come from gRPC's threads.
struct FakeState {
  std::mutex mutex;
  std::vector<v1::Session> sessions;
  std::vector<v1::Event> events;  // what Query, Tail and Watch give out, whatever the filter says
  v1::StatusResponse status;
  v1::StartResponse start;
  v1::VerifyResponse verify;
  v1::AdoptResponse adopt;
  uint64_t gap = 0;          // sent by Tail and Watch after the events
  bool stream_ends = false;  // Tail and Watch end after the events in place of waiting for a cancel
  grpc::Status refusal = grpc::Status::OK;  // every call answers this when it is not OK
  bool fail_stop = false;                   // Stop alone fails

  std::vector<v1::StartRequest> start_requests;
  std::vector<v1::StopRequest> stop_requests;
  std::vector<v1::ListRequest> list_requests;
  std::vector<v1::QueryRequest> query_requests;
  std::vector<v1::TailRequest> tail_requests;
  std::vector<v1::AdoptRequest> adopt_requests;
  std::function<void(const v1::StopRequest&)> on_stop;  // called without the mutex
};

class FakeDaemon {
 public:
  // Listens at `socket_path`, or in a new directory below the current one. Aborts when it cannot.
  explicit FakeDaemon(std::string socket_path = "");
  ~FakeDaemon();

  const std::string& socket() const { return socket_; }
  FakeState& state() { return state_; }
  // Closes all connections and the socket.
  void Stop();

 private:
  FakeState state_;
  std::string directory_;  // to be removed; empty when the caller chose the path
  std::string socket_;
  std::unique_ptr<v1::Sessions::Service> sessions_;
  std::unique_ptr<v1::Timeline::Service> timeline_;
  std::unique_ptr<v1::Host::Service> host_;
  std::unique_ptr<grpc::Server> server_;
};

// An error as the daemon sends it: google.rpc.Status with ErrorInfo and Help in the trailer.
grpc::Status DetailedError(grpc::StatusCode code, const std::string& message, const std::string& reason,
                           const std::string& hint);

// A few events of every kind, in order of time, of session "s-1".
std::vector<v1::Event> SampleEvents();
// One event of each kind, as docs/events.md shows them.
std::vector<v1::Event> EventOfEachKind();
v1::Session SampleSession();
v1::StatusResponse SampleStatus();

}  // namespace agentmon
