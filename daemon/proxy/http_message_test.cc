#include "daemon/proxy/http_message.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

using State = HttpReader::State;

// How a request with these header lines is taken.
struct Taken {
  State state = State::kHead;
  std::string flaw;
  int refusal = 0;
};
Taken Take(const std::string& lines, const std::string& start = "POST http://a.test/ HTTP/1.1") {
  const auto reader = NewRequestReader();
  const std::string bytes = absl::StrCat(start, "\r\n", lines, "\r\n");
  reader->Take(bytes);
  return {reader->state(), reader->state() == State::kBad ? "" : FlawOf(reader->head()), reader->refusal()};
}

bool Passes(const std::string& lines) {
  const Taken taken = Take(lines);
  return taken.state != State::kBad && taken.state != State::kHead && taken.flaw.empty();
}

TEST_CASE("a head is taken as a whole, and its body byte by byte") {
  const auto reader = NewRequestReader();
  const std::string head = "POST http://a.test/x?q HTTP/1.1\r\nHost: b.test\r\nContent-Length: 5\r\n\r\n";
  CHECK(reader->Take(head.substr(0, 20)) == 0);
  CHECK(reader->state() == State::kHead);
  REQUIRE(reader->Take(head + "hello GET") == head.size());
  CHECK(reader->state() == State::kBody);
  CHECK(reader->head().method == "POST");
  CHECK(reader->head().target == "http://a.test/x?q");
  CHECK(reader->head().Field("host") == "b.test");
  CHECK(reader->Take("hel") == 3);
  CHECK(reader->Take("lo GET") == 2);
  CHECK(reader->state() == State::kDone);
}

TEST_CASE("a chunked body ends with its last chunk, whatever the pieces") {
  const std::string head = "POST http://a.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string body :
       {"5\r\nhello\r\n3;x=y\r\nabc\r\n0\r\nTrailer: x\r\n\r\n", "0\r\n\r\n", "0\r\nTrailer: x\r\n\r\n"}) {
    for (size_t piece = 1; piece <= body.size(); ++piece) {
      const auto reader = NewRequestReader();
      REQUIRE(reader->Take(head) == head.size());
      std::string waiting;
      size_t taken = 0;
      for (size_t at = 0; at < body.size(); at += piece) {
        waiting += body.substr(at, piece);
        const size_t n = reader->Take(waiting);
        taken += n;
        waiting.erase(0, n);
      }
      CHECK(reader->state() == State::kDone);
      CHECK(taken == body.size());
      CHECK(reader->head().Field("Trailer").empty());
    }
  }
}

TEST_CASE("what two servers could read in two ways is refused") {
  CHECK(Passes("Host: a\r\n"));
  CHECK(Passes("Content-Length: 3\r\n"));
  CHECK(Passes("Transfer-Encoding: chunked\r\n"));
  CHECK(Passes("Connection: keep-alive, x-own\r\n"));
  CHECK_FALSE(Passes("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"));
  CHECK_FALSE(Passes("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"));
  CHECK_FALSE(Passes("Content-Length: 3\r\nContent-Length: 4\r\n"));
  CHECK_FALSE(Passes("Content-Length: +3\r\n"));
  CHECK_FALSE(Passes("Content-Length: 0x3\r\n"));
  CHECK_FALSE(Passes("Transfer-Encoding: gzip\r\n"));
  CHECK_FALSE(Passes("Transfer-Encoding: gzip, chunked\r\n"));
  CHECK_FALSE(Passes("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"));
  CHECK_FALSE(Passes("Transfer-Encoding : chunked\r\n"));
  CHECK_FALSE(Passes("Connection: Content-Length\r\nContent-Length: 3\r\n"));
  CHECK_FALSE(Passes("Connection: x, transfer-encoding\r\n"));
  CHECK_FALSE(Passes("A: b\nC: d\r\n"));
  CHECK_FALSE(Passes(std::string("A: b\0c\r\n", 8)));
  CHECK_FALSE(Take("Transfer-Encoding: chunked\r\n", "POST http://a.test/ HTTP/1.0").flaw.empty());
}

TEST_CASE("a head that is too large, and what is no head, are refused with their status") {
  CHECK(Take(absl::StrCat("A: ", std::string(kMostHeadBytes, 'a'), "\r\n")).refusal == 431);
  const auto endless = NewRequestReader();
  endless->Take(std::string(kMostHeadBytes, 'a'));
  CHECK(endless->state() == State::kBad);
  const auto garbage = NewRequestReader();
  garbage->Take("\x16\x03\x01 garbage\r\n\r\n");
  CHECK(garbage->state() == State::kBad);
  CHECK(garbage->refusal() == 400);
}

TEST_CASE("what is meant for one hop is not passed on, and the host is the one that was judged") {
  const auto reader = NewRequestReader();
  reader->Take(
      "GET http://a.test/x HTTP/1.1\r\nHost: other.test\r\nProxy-Authorization: Basic eA==\r\nConnection: "
      "x-mine, "
      "close\r\nX-Mine: 1\r\nTE: trailers\r\nUpgrade: websocket\r\nAccept: */*\r\nhost: third.test\r\n\r\n");
  REQUIRE(reader->state() == State::kDone);
  CHECK(WriteRequest(reader->head(), "/x", "a.test") ==
        "GET /x HTTP/1.1\r\nHost: a.test\r\nAccept: */*\r\nConnection: close\r\n\r\n");
}

TEST_CASE("a header with a line end in a folded value does not become two") {
  const auto reader = NewRequestReader();
  reader->Take("GET http://a.test/ HTTP/1.1\r\nA: b\r\n X-Injected: c\r\n\r\n");
  REQUIRE(reader->state() == State::kDone);
  const std::string out = WriteRequest(reader->head(), "/", "a.test");
  CHECK(out.find("\r\nX-Injected") == std::string::npos);
  CHECK(out.find("\r\n X-Injected") == std::string::npos);
}

TEST_CASE("answers end with their length, with their connection, or without a body") {
  const auto sized = NewResponseReader(false);
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: x\r\nConnection: keep-alive\r\n\r\n";
  CHECK(sized->Take(head + "ab") == head.size());
  CHECK(WriteResponse(sized->head()) == "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n");
  CHECK(sized->Take("ab") == 2);
  CHECK(sized->state() == State::kDone);

  const auto open = NewResponseReader(false);
  open->Take("HTTP/1.0 200 OK\r\n\r\n");
  CHECK(open->state() == State::kBody);
  CHECK(open->Take("anything") == 8);
  open->End();
  CHECK(open->state() == State::kDone);

  const auto cut = NewResponseReader(false);
  cut->Take("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
  cut->Take("a");
  cut->End();
  CHECK(cut->state() == State::kBad);

  const auto to_head = NewResponseReader(true);
  to_head->Take("HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n");
  CHECK(to_head->state() == State::kDone);
}

TEST_CASE("an answer of the proxy itself has its length and one line") {
  CHECK(
      WriteAnswer(403, "no") ==
      "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\nConnection: "
      "close\r\n\r\nno\n");
  CHECK(WriteAnswer(200, "") == "HTTP/1.1 200 Connection established\r\n\r\n");
}

}  // namespace
}  // namespace agentmon
