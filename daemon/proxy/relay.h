// What goes between a program and the server that it was connected to.
#pragma once

#include <functional>
#include <memory>

#include "daemon/proxy/http_message.h"
#include "daemon/proxy/stream.h"

namespace agentmon {

// The loop's thread. Each call takes what can be taken of what was read; what stays waits for more.
class Relay {
 public:
  virtual ~Relay() = default;
  // False: it cannot go on.
  virtual bool OnProgram(Stream& program, Stream& server) = 0;
  virtual bool OnServer(Stream& server, Stream& program) = 0;
  // All that will be passed on was passed on, but for what the streams still have to write.
  virtual bool done() const = 0;
  // Something of an answer has gone to the program.
  virtual bool answered() const = 0;
};

// Bytes, each direction until its end.
std::unique_ptr<Relay> NewTunnel();

// One request and its answer. `request` has read the head, which is written already; on_status is told the
// status of the answer before the program is.
std::unique_ptr<Relay> NewExchange(std::unique_ptr<HttpReader> request, std::function<void(int)> on_status);

}  // namespace agentmon
