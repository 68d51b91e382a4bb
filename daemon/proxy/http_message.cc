// Boost 1.74 asserts that five bytes are there where the first chunk is the last one and was looked at
// before. Three are enough for what it does then, and "0\r\n" that comes by itself would end a daemon with
// assertions.
#define BOOST_DISABLE_ASSERTS
#include "daemon/proxy/http_message.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace agentmon {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using Text = boost::beast::string_view;

constexpr uint64_t kAnyBody = std::numeric_limits<uint64_t>::max();

std::string Copy(Text text) { return std::string(text.data(), text.size()); }

template <bool kRequest>
class Reader : public HttpReader, private http::basic_parser<kRequest> {
  using Parser = http::basic_parser<kRequest>;

 public:
  explicit Reader(bool no_body) {
    this->header_limit(kMostHeadBytes);
    this->body_limit(kAnyBody);
    if (no_body) this->skip(true);
  }

  size_t Take(absl::string_view bytes) override {
    const bool in_head = state_ == State::kHead;
    size_t taken = 0;
    while (state_ != State::kDone && state_ != State::kBad && taken < bytes.size()) {
      error_code error;
      const size_t n =
          Parser::put(boost::asio::const_buffer(bytes.data() + taken, bytes.size() - taken), error);
      if (error == http::error::need_more) {
        taken += n;
        if (in_head && bytes.size() >= kMostHeadBytes) Fail(http::error::header_limit);
        return taken;
      }
      if (error) {
        Fail(error);
        return taken;
      }
      taken += n;
      Advance();
      if ((in_head && state_ != State::kHead) || n == 0) return taken;
    }
    return taken;
  }

  void End() override {
    if (state_ == State::kDone || state_ == State::kBad) return;
    error_code error;
    if (state_ == State::kHead)
      error = http::error::partial_message;
    else
      Parser::put_eof(error);
    if (error) return Fail(error);
    state_ = State::kDone;
  }

  State state() const override { return state_; }
  const HttpHead& head() const override { return head_; }
  int refusal() const override { return too_large_ ? 431 : 400; }
  std::string why() const override { return why_; }

 private:
  void Advance() {
    if (Parser::is_done())
      state_ = State::kDone;
    else if (Parser::is_header_done())
      state_ = State::kBody;
  }
  void Fail(error_code error) {
    state_ = State::kBad;
    too_large_ = error == http::error::header_limit;
    why_ = too_large_ ? absl::StrCat("the head is larger than ", kMostHeadBytes, " bytes") : error.message();
  }

  void on_request_impl(http::verb, Text method, Text target, int version, error_code&) override {
    head_.method = Copy(method);
    head_.target = Copy(target);
    head_.version = version;
  }
  void on_response_impl(int status, Text reason, int version, error_code&) override {
    head_.status = status;
    head_.reason = Copy(reason);
    head_.version = version;
  }
  void on_field_impl(http::field, Text name, Text value, error_code&) override {
    if (!headed_) head_.fields.emplace_back(Copy(name), Copy(value));  // else a trailer
  }
  void on_header_impl(error_code&) override { headed_ = true; }
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(Text body, error_code&) override { return body.size(); }
  void on_chunk_header_impl(uint64_t, Text, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, Text body, error_code&) override { return body.size(); }
  void on_finish_impl(error_code&) override {}

  State state_ = State::kHead;
  HttpHead head_;
  bool headed_ = false, too_large_ = false;
  std::string why_;
};

// Of one hop (RFC 9110, 7.6.1), and what is between a program and us.
constexpr absl::string_view kHopFields[] = {
    "Connection", "Proxy-Connection",    "Keep-Alive",         "TE",
    "Upgrade",    "Proxy-Authorization", "Proxy-Authenticate", "Proxy-Authentication-Info"};
// Which body is whose depends on them.
constexpr absl::string_view kFraming[] = {"Content-Length", "Transfer-Encoding", "Host"};

template <typename Names>
bool IsOneOf(absl::string_view name, const Names& names) {
  for (const absl::string_view one : names) {
    if (absl::EqualsIgnoreCase(name, one)) return true;
  }
  return false;
}

std::vector<std::string> Nominated(const HttpHead& head) {
  std::vector<std::string> names;
  for (const auto& [name, value] : head.fields) {
    if (!absl::EqualsIgnoreCase(name, "Connection") && !absl::EqualsIgnoreCase(name, "Proxy-Connection"))
      continue;
    for (const absl::string_view part : absl::StrSplit(value, ','))
      names.emplace_back(absl::StripAsciiWhitespace(part));
  }
  return names;
}

void WriteFields(const HttpHead& head, bool with_host, std::string& out) {
  const std::vector<std::string> nominated = Nominated(head);
  for (const auto& [name, value] : head.fields) {
    if (IsOneOf(name, kHopFields) || (IsOneOf(name, nominated) && !IsOneOf(name, kFraming))) continue;
    if (!with_host && absl::EqualsIgnoreCase(name, "Host")) continue;
    absl::StrAppend(&out, name, ": ", value, "\r\n");
  }
}

absl::string_view ReasonOf(int status) {
  switch (status) {
    case 200:
      return "Connection established";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 407:
      return "Proxy Authentication Required";
    case 408:
      return "Request Timeout";
    case 431:
      return "Request Header Fields Too Large";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Error";
  }
}

}  // namespace

absl::string_view HttpHead::Field(absl::string_view name) const {
  for (const auto& [own, value] : fields) {
    if (absl::EqualsIgnoreCase(own, name)) return value;
  }
  return "";
}

std::unique_ptr<HttpReader> NewRequestReader() { return std::make_unique<Reader<true>>(false); }

std::unique_ptr<HttpReader> NewResponseReader(bool no_body) {
  return std::make_unique<Reader<false>>(no_body);
}

std::string FlawOf(const HttpHead& request) {
  for (const auto& [name, value] : request.fields) {
    if (absl::string_view(value).find_first_of(absl::string_view("\r\n\0", 3)) != absl::string_view::npos)
      return absl::StrCat("a line end inside of ", name);
    if (!absl::EqualsIgnoreCase(name, "Transfer-Encoding")) continue;
    if (!absl::EqualsIgnoreCase(value, "chunked")) return "a Transfer-Encoding other than chunked";
    if (request.version < 11) return "Transfer-Encoding in HTTP/1.0";
  }
  for (const std::string& name : Nominated(request)) {
    if (IsOneOf(name, kFraming)) return absl::StrCat("Connection names ", absl::AsciiStrToLower(name));
  }
  return "";
}

std::string WriteRequest(const HttpHead& request, absl::string_view origin_target, absl::string_view host) {
  std::string out = absl::StrCat(request.method, " ", origin_target, " HTTP/1.", request.version - 10,
                                 "\r\nHost: ", host, "\r\n");
  WriteFields(request, false, out);
  absl::StrAppend(&out, "Connection: close\r\n\r\n");
  return out;
}

std::string WriteResponse(const HttpHead& response) {
  std::string out =
      absl::StrCat("HTTP/1.", response.version - 10, " ", response.status, " ", response.reason, "\r\n");
  WriteFields(response, true, out);
  absl::StrAppend(&out, response.status / 100 == 1 ? "\r\n" : "Connection: close\r\n\r\n");
  return out;
}

std::string WriteAnswer(int status, absl::string_view text) {
  std::string out = absl::StrCat("HTTP/1.1 ", status, " ", ReasonOf(status), "\r\n");
  if (status == 200) return out + "\r\n";
  if (status == 407) absl::StrAppend(&out, "Proxy-Authenticate: Basic realm=\"agentmon\"\r\n");
  absl::StrAppend(&out, "Content-Type: text/plain; charset=utf-8\r\nContent-Length: ", text.size() + 1,
                  "\r\nConnection: close\r\n\r\n", text, "\n");
  return out;
}

}  // namespace agentmon
