// Any bytes as what a program sends to its proxy, and a server to it: no crash, bounded work, and a head that
// is passed on reads the same once more.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "daemon/proxy/destination.h"
#include "daemon/proxy/http_message.h"
#include "daemon/proxy/socks_message.h"

namespace {

using agentmon::HttpReader;

void Check(bool holds) {
  if (!holds) std::abort();
}

// In pieces of this size, as the network may bring it; the head of what was read.
std::unique_ptr<HttpReader> Read(std::unique_ptr<HttpReader> reader, absl::string_view bytes, size_t piece) {
  std::string waiting;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const absl::string_view next = bytes.substr(at, piece);
    waiting.append(next.data(), next.size());
    for (size_t taken = 1; taken > 0 && !waiting.empty();) {
      taken = reader->Take(waiting);
      Check(taken <= waiting.size());
      waiting.erase(0, taken);
    }
    if (reader->state() == HttpReader::State::kBad || reader->state() == HttpReader::State::kDone) break;
  }
  reader->End();
  Check(reader->state() == HttpReader::State::kBad || reader->state() == HttpReader::State::kDone);
  return reader;
}

void CheckRequest(absl::string_view bytes, size_t piece) {
  const auto reader = Read(agentmon::NewRequestReader(), bytes, piece);
  const agentmon::HttpHead& head = reader->head();
  agentmon::ParseAuthority(head.target);
  const auto target = agentmon::ParseHttpTarget(head.target);
  if (reader->state() == HttpReader::State::kBad || !agentmon::FlawOf(head).empty() || !target.has_value())
    return;
  std::string path = target->path + target->query;
  if (path.empty() || path[0] != '/') path.insert(0, "/");
  const std::string host = target->destination.ToString();
  const std::string written = agentmon::WriteRequest(head, path, host);
  const auto again = agentmon::NewRequestReader();
  Check(again->Take(written) == written.size());
  Check(again->state() == HttpReader::State::kDone || again->state() == HttpReader::State::kBody);
  Check(agentmon::FlawOf(again->head()).empty());
  Check(again->head().Field("Host") == host && again->head().target == path);
  Check(again->head().Field("Content-Length") == head.Field("Content-Length"));
  Check(again->head().Field("Transfer-Encoding") == head.Field("Transfer-Encoding"));
  Check(again->head().fields.size() <= head.fields.size() + 2);
}

void CheckSocks(absl::string_view bytes) {
  bool password = false;
  std::string user, secret;
  agentmon::SocksRequest request;
  for (const agentmon::SocksRead& read :
       {agentmon::ReadSocksMethods(bytes, password), agentmon::ReadSocksPassword(bytes, user, secret),
        agentmon::ReadSocksRequest(bytes, request)}) {
    Check(read.size <= bytes.size());
  }
  agentmon::MakeDestination(request.host, request.port);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = size_t{data[0]} + 1;
  CheckRequest(bytes, piece);
  const auto response = Read(agentmon::NewResponseReader((data[0] & 1) != 0), bytes, piece);
  agentmon::WriteResponse(response->head());
  CheckSocks(bytes);
  return 0;
}
