#include "daemon/event/filter.h"

#include <catch2/catch.hpp>

namespace agentmon {
namespace {

bool GlobMatches(absl::string_view pattern, absl::string_view path) {
  absl::StatusOr<Glob> glob = Glob::Compile(pattern);
  INFO(pattern << " on " << path << " " << glob.status().ToString());
  REQUIRE(glob.ok());
  return glob->Matches(path);
}

Event NetEvent(absl::string_view address, uint32_t port) {
  Event event;
  event.set_kind(v1::CONNECT);
  event.mutable_net()->set_address(std::string(address));
  event.mutable_net()->set_port(port);
  return event;
}

bool DestMatches(absl::string_view dest, const Event& event) {
  absl::StatusOr<DestMatcher> matcher = DestMatcher::Parse(dest);
  INFO(dest << " " << matcher.status().ToString());
  REQUIRE(matcher.ok());
  return matcher->Matches(event);
}

}  // namespace

TEST_CASE("a star stays within its segment and two stars cross segments") {
  CHECK(GlobMatches("/home/*/x", "/home/ann/x"));
  CHECK_FALSE(GlobMatches("/home/*/x", "/home/ann/b/x"));
  CHECK(GlobMatches("/home/**/x", "/home/ann/b/x"));
  CHECK(GlobMatches("/home/**x", "/home/ann/b/x"));
  CHECK(GlobMatches("*.env", "prod.env"));
  CHECK_FALSE(GlobMatches("*.env", "/a/prod.env"));
  CHECK(GlobMatches("**", ""));
  CHECK(GlobMatches("**", "/any/thing"));
}

TEST_CASE("two stars as a whole segment may stand for no segment") {
  CHECK(GlobMatches("**/.env", "/.env"));
  CHECK(GlobMatches("**/.env", ".env"));
  CHECK(GlobMatches("**/.env", "/a/b/.env"));
  CHECK_FALSE(GlobMatches("**/.env", "/a/b/x.env"));
  CHECK(GlobMatches("/a/**/b", "/a/b"));
  CHECK(GlobMatches("/a/**/b", "/a/x/y/b"));
  CHECK_FALSE(GlobMatches("/a/**/b", "/a/xb"));
}

TEST_CASE("a pattern that ends in slash two stars also matches the directory itself") {
  CHECK(GlobMatches("/secret/**", "/secret"));
  CHECK(GlobMatches("/secret/**", "/secret/"));
  CHECK(GlobMatches("/secret/**", "/secret/a/b"));
  CHECK_FALSE(GlobMatches("/secret/**", "/secrets"));
  CHECK_FALSE(GlobMatches("/secret/**", "/secre"));
  CHECK(GlobMatches("/home/*/.ssh/**", "/home/ann/.ssh"));
}

TEST_CASE("question marks, sets and braces match single bytes and alternatives") {
  CHECK(GlobMatches("/a?c", "/abc"));
  CHECK_FALSE(GlobMatches("/a?c", "/a/c"));
  CHECK(GlobMatches("/[a-c]x", "/bx"));
  CHECK_FALSE(GlobMatches("/[!a-c]x", "/bx"));
  CHECK(GlobMatches("/[!a-c]x", "/dx"));
  CHECK_FALSE(GlobMatches("/a[!x]b", "/a/b"));
  CHECK(GlobMatches("/[]]x", "/]x"));
  CHECK(GlobMatches("*.{cc,h}", "a.h"));
  CHECK(GlobMatches("/{a,b/{c,d}}/e", "/b/d/e"));
  CHECK_FALSE(GlobMatches("/{a,b/{c,d}}/e", "/b/e"));
  CHECK(GlobMatches("/a{,.bak}", "/a"));
  CHECK(GlobMatches("/{/secret/**,x}", "//secret"));
}

TEST_CASE("a backslash takes the meaning of the next byte and any byte may stand in a path") {
  CHECK(GlobMatches("/a\\*b", "/a*b"));
  CHECK_FALSE(GlobMatches("/a\\*b", "/axb"));
  CHECK(GlobMatches("/\\{x\\}", "/{x}"));
  CHECK(GlobMatches("/\xff*", absl::string_view("/\xff\x01\x80", 4)));
  CHECK(GlobMatches("/a?", absl::string_view("/a\0", 3)));
}

TEST_CASE("a pattern that is not closed or too large is refused") {
  for (const char* bad : {"/[a", "/{a,b", "/a\\", "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"}) {
    INFO(bad);
    CHECK(Glob::Compile(bad).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK_FALSE(Glob::Compile(std::string(5000, 'a')).ok());
}

TEST_CASE("a hostile pattern does not take exponential time") {
  const std::string path(4000, 'a');
  CHECK_FALSE(GlobMatches("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", path));
  CHECK_FALSE(GlobMatches("**a**a**a**a**a**a**a**a**a**b", path));
}

TEST_CASE("a destination is an address, a port, a network or a socket's name") {
  const Event v4 = NetEvent("10.1.2.3", 443), v6 = NetEvent("2001:db8::1", 53);
  CHECK(DestMatches("10.1.2.3", v4));
  CHECK(DestMatches("::ffff:10.1.2.3", v4));
  CHECK_FALSE(DestMatches("10.1.2.4", v4));
  CHECK(DestMatches("10.1.2.3:443", v4));
  CHECK_FALSE(DestMatches("10.1.2.3:80", v4));
  CHECK(DestMatches("10.0.0.0/8", v4));
  CHECK(DestMatches("10.1.2.0/23:443", v4));
  CHECK_FALSE(DestMatches("10.1.4.0/23", v4));
  CHECK(DestMatches("0.0.0.0/0", v4));
  CHECK_FALSE(DestMatches("0.0.0.0/0", v6));
  CHECK(DestMatches(":443", v4));
  CHECK(DestMatches("*:53", v6));
  CHECK(DestMatches("2001:db8::1", v6));
  CHECK(DestMatches("2001:db8::/32", v6));
  CHECK(DestMatches("[2001:DB8:0::1]:53", v6));
  CHECK_FALSE(DestMatches("[2001:db8::1]:54", v6));

  Event named = v4;
  named.mutable_net()->set_name("git.example.org");
  CHECK(DestMatches("git.example.org", named));
  CHECK(DestMatches("GIT.example.org.:443", named));
  CHECK_FALSE(DestMatches("git.example.org:80", named));
  CHECK_FALSE(DestMatches("example.org", named));
  CHECK_FALSE(DestMatches("git.example.org", v4));
  Event asked;
  asked.set_kind(v1::DNS);
  asked.mutable_dns()->set_name("git.example.org");
  CHECK(DestMatches("git.example.org", asked));
  CHECK_FALSE(DestMatches("git.example.org:443", asked));
  CHECK_FALSE(DestMatches("10.1.2.3", asked));
  Event request;
  request.set_kind(v1::HTTP);
  request.mutable_http()->set_host("git.example.org");
  request.mutable_http()->set_port(443);
  CHECK(DestMatches("git.example.org", request));
  CHECK(DestMatches("git.example.org:443", request));
  CHECK_FALSE(DestMatches("git.example.org:80", request));
  CHECK_FALSE(DestMatches("10.1.2.3", request));
  request.mutable_http()->set_host("10.1.2.3");
  CHECK(DestMatches("10.1.2.0/24", request));

  Event socket;
  socket.set_kind(v1::UNIX_CONNECT);
  socket.mutable_unix()->set_path("/run/docker.sock");
  CHECK(DestMatches("/run/docker.sock", socket));
  CHECK(DestMatches("/run/**", socket));
  CHECK(DestMatches("**/docker.sock", socket));
  CHECK_FALSE(DestMatches("/run/x", socket));
  CHECK_FALSE(DestMatches("10.1.2.3", socket));
  socket.mutable_unix()->set_path("@dbus");
  CHECK(DestMatches("@dbus", socket));
  CHECK(DestMatches("@d*", socket));

  for (const char* bad : {"", "exa mple.org", "1.2.3.4:99999", "1.2.3.4/33", "[::1", "1.2.3.4:", "[::1]x"}) {
    INFO(bad);
    CHECK(DestMatcher::Parse(bad).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("each condition of a filter can reject an event that all the others accept") {
  Event event;
  event.set_seq(10);
  event.set_wall_ns(1000);
  event.set_session("s1");
  event.set_kind(v1::OPEN);
  event.mutable_process()->set_pid(7);
  event.set_exe("/usr/bin/cat");
  event.mutable_file()->set_path("/etc/passwd");
  event.mutable_file()->set_new_path("/etc/new");
  event.mutable_judgement()->set_decision(v1::DENY);
  event.mutable_judgement()->set_enforced(true);

  v1::EventFilter all;
  all.set_session("s1");
  all.set_since_ns(1000);
  all.set_until_ns(1001);
  all.add_kinds(v1::OPEN);
  all.add_kinds(v1::EXEC);
  all.set_decision(v1::DENY);
  all.set_enforced(v1::EventFilter::YES);
  all.set_path_glob("/etc/*");
  all.set_exe_glob("**/cat");
  all.set_pid(7);
  all.set_after_seq(9);
  const auto matches = [&event](const v1::EventFilter& filter) {
    return EventMatcher::Create(filter).value().Matches(event);
  };
  CHECK(matches(all));
  CHECK(matches(v1::EventFilter()));

  const auto rejects = [&](auto change) {
    v1::EventFilter filter = all;
    change(filter);
    return !matches(filter);
  };
  CHECK(rejects([](auto& f) { f.set_session("s2"); }));
  CHECK(rejects([](auto& f) { f.set_since_ns(1001); }));
  CHECK(rejects([](auto& f) { f.set_until_ns(1000); }));
  CHECK(rejects([](auto& f) { f.clear_kinds(), f.add_kinds(v1::EXEC); }));
  CHECK(rejects([](auto& f) { f.set_decision(v1::ASK); }));
  CHECK(rejects([](auto& f) { f.set_enforced(v1::EventFilter::NO); }));
  CHECK(rejects([](auto& f) { f.set_path_glob("/usr/*"); }));
  CHECK(rejects([](auto& f) { f.set_exe_glob("/bin/*"); }));
  CHECK(rejects([](auto& f) { f.set_pid(8); }));
  CHECK(rejects([](auto& f) { f.set_after_seq(10); }));
  CHECK(rejects([](auto& f) { f.set_dest("1.2.3.4"); }));
  CHECK_FALSE(rejects([](auto& f) { f.set_session("*"); }));
  CHECK_FALSE(rejects([](auto& f) { f.set_path_glob("/etc/new"); }));
}

TEST_CASE("an event that nothing judged is neither enforced nor not enforced") {
  v1::EventFilter filter;
  Event event;
  for (const auto enforced : {v1::EventFilter::YES, v1::EventFilter::NO}) {
    filter.set_enforced(enforced);
    CHECK_FALSE(EventMatcher::Create(filter).value().Matches(event));
  }
  event.mutable_judgement()->set_decision(v1::ALLOW);
  CHECK(EventMatcher::Create(filter).value().Matches(event));
}

}  // namespace agentmon
