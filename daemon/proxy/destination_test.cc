#include "daemon/proxy/destination.h"

#include <catch2/catch.hpp>
#include <string>

#include "daemon/proxy/proxy_door.h"
#include "daemon/proxy/socks_message.h"

namespace agentmon {
namespace {

std::string Authority(const std::string& text) {
  const auto parsed = ParseAuthority(text);
  return parsed.has_value() ? parsed->ToString() : "";
}

std::string Target(const std::string& text) {
  const auto parsed = ParseHttpTarget(text);
  return parsed.has_value() ? parsed->destination.ToString() + " " + parsed->path + " " + parsed->query : "";
}

TEST_CASE("a destination has one spelling, and every spelling of an address is one") {
  CHECK(Authority("Example.COM:443") == "example.com:443");
  CHECK(Authority("example.com.:443") == "example.com:443");
  CHECK(Authority("[::1]:80") == "[::1]:80");
  CHECK(Authority("[::ffff:127.0.0.1]:80") == "127.0.0.1:80");
  CHECK(Authority("2130706433:80") == "127.0.0.1:80");
  CHECK(Authority("0x7f.1:80") == "127.0.0.1:80");
  for (const char* bad : {"", "example.com", "example.com:", "example.com:0", "example.com:65536", "a b:1",
                          ":1", "::1:80", "[::1]", "[::1", "[a.test]:1", "a.test:1x", "a.test\\b:1",
                          "a%2etest:1", "a\r\nb:1", "a/b:1", "user@a.test:1"}) {
    INFO(bad);
    CHECK(Authority(bad).empty());
  }
}

TEST_CASE("the target of a request names the host behind the last user") {
  CHECK(Target("http://a.test") == "a.test:80  ");
  CHECK(Target("HTTP://a.test:8080/x/y?q=1#f") == "a.test:8080 /x/y ?q=1");
  CHECK(Target("http://u:p@a.test/") == "a.test:80 / ");
  CHECK(Target("http://good.test@evil.test/") == "evil.test:80 / ");
  CHECK(Target("http://a@b@c.test/") == "c.test:80 / ");
  CHECK(Target("http://a.test?x@b.test") == "a.test:80  ?x@b.test");
  for (const char* bad : {"/", "*", "a.test:80", "https://a.test/", "ftp://a.test/", "http://", "http:///x",
                          "http://good.test\\@evil.test/", "http://a.test:99999/"}) {
    INFO(bad);
    CHECK(Target(bad).empty());
  }
}

TEST_CASE("SOCKS messages are read when they are whole") {
  bool password = false;
  CHECK(ReadSocksMethods(std::string("\5\2\0", 3), password).what == SocksRead::kMore);
  CHECK(ReadSocksMethods(std::string("\5\2\0\2", 4), password).size == 4);
  CHECK(password);
  CHECK(ReadSocksMethods(std::string("\5\1\0", 3), password).what == SocksRead::kRead);
  CHECK_FALSE(password);
  CHECK(ReadSocksMethods("\4\1", password).what == SocksRead::kBad);

  std::string user, secret;
  const std::string login = "\1\7session\3abc";
  for (size_t n = 0; n < login.size(); ++n)
    CHECK(ReadSocksPassword(login.substr(0, n), user, secret).what == SocksRead::kMore);
  CHECK(ReadSocksPassword(login, user, secret).size == login.size());
  CHECK((user == "session" && secret == "abc"));

  SocksRequest request;
  const std::string named = std::string("\5\1\0\3\6a.test\1\xbb", 13);
  for (size_t n = 0; n < named.size(); ++n)
    CHECK(ReadSocksRequest(named.substr(0, n), request).what == SocksRead::kMore);
  CHECK(ReadSocksRequest(named, request).size == named.size());
  CHECK((request.host == "a.test" && request.port == 443 && request.refusal == SocksReply::kDone));

  SocksRequest four;
  CHECK(ReadSocksRequest(std::string("\5\1\0\1\x7f\0\0\1\0\x50", 10), four).what == SocksRead::kRead);
  CHECK((four.host == "127.0.0.1" && four.port == 80));
  SocksRequest bind;
  ReadSocksRequest(std::string("\5\2\0\1\x7f\0\0\1\0\x50", 10), bind);
  CHECK(bind.refusal == SocksReply::kNoSuchCommand);
  SocksRequest strange;
  ReadSocksRequest(std::string("\5\1\0\2\x7f", 5), strange);
  CHECK(strange.refusal == SocksReply::kNoSuchAddress);
}

TEST_CASE("a door is found again in the environment that it was put into") {
  const ProxyDoor door{40123, NewProxyToken()};
  const std::string environment =
      std::string("A=b\0HTTP_PROXY=http://corp.test:3128\0", 38) + "HTTP_PROXY=" + door.Url() + '\0';
  const auto found = FindProxyDoor(environment);
  REQUIRE(found.has_value());
  CHECK((found->port == door.port && found->token == door.token));
  CHECK_FALSE(FindProxyDoor("HTTP_PROXY=http://session:short@127.0.0.1:1").has_value());
  CHECK_FALSE(FindProxyDoor("HTTP_PROXY=http://session:" + door.token + "@127.0.0.2:1").has_value());
  CHECK(SameSecret(door.token, found->token));
  CHECK_FALSE(SameSecret(door.token, NewProxyToken()));
}

}  // namespace
}  // namespace agentmon
