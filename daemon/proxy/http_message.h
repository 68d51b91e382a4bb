// HTTP/1.1 messages as a proxy sees them: heads are read and written again, bodies are only measured.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace agentmon {

constexpr size_t kMostHeadBytes = 64 * 1024;

struct HttpHead {
  std::string method, target;  // of a request
  int status = 0;              // of a response
  std::string reason;
  int version = 11;                                         // 10 or 11
  std::vector<std::pair<std::string, std::string>> fields;  // in their order, values without outer blanks

  // Of the first field of this name; empty = there is none.
  absl::string_view Field(absl::string_view name) const;
};

// One message, from its first byte to its last.
class HttpReader {
 public:
  enum class State { kHead, kBody, kDone, kBad };
  virtual ~HttpReader() = default;
  // How many of these bytes belong to the message; it stops at the end of the head and of the message. What
  // was not taken comes again, with more behind it: a head is taken as a whole.
  virtual size_t Take(absl::string_view bytes) = 0;
  // Nothing comes any more: some bodies end so.
  virtual void End() = 0;
  virtual State state() const = 0;
  virtual const HttpHead& head() const = 0;
  // When it is bad: the status that says so, and why in some words.
  virtual int refusal() const = 0;
  virtual std::string why() const = 0;
};

std::unique_ptr<HttpReader> NewRequestReader();
// no_body: it answers HEAD.
std::unique_ptr<HttpReader> NewResponseReader(bool no_body);

// Why a proxy must not pass a request with this head on; empty = it may. What two servers could read in two
// ways is refused.
std::string FlawOf(const HttpHead& request);
// The heads as they are passed on: without what is meant for the next hop only, and each connection is for
// one exchange. The host of a request is the one that was judged.
std::string WriteRequest(const HttpHead& request, absl::string_view origin_target, absl::string_view host);
std::string WriteResponse(const HttpHead& response);
// An answer of the proxy's own; `text` is one line.
std::string WriteAnswer(int status, absl::string_view text);

}  // namespace agentmon
