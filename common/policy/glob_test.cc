#include "common/policy/glob.h"

#include <catch2/catch.hpp>

#include <random>

namespace agentmon::policy {
namespace {

std::vector<Glob> Globs(absl::string_view pattern, GlobKind kind = GlobKind::kPath) {
  std::vector<Glob> out;
  GlobError error;
  INFO(pattern << ": " << error.message);
  REQUIRE(Glob::Parse(pattern, kind, out, error));
  return out;
}

bool Match(absl::string_view pattern, absl::string_view text, GlobKind kind = GlobKind::kPath) {
  for (const Glob& glob : Globs(pattern, kind)) {
    if (glob.Matches(text)) return true;
  }
  return false;
}

std::string ErrorOf(absl::string_view pattern) {
  std::vector<Glob> out;
  GlobError error;
  return Glob::Parse(pattern, GlobKind::kPath, out, error) ? "" : error.message;
}

// What the tokens mean, written down as directly as possible: try everything.
bool Slow(absl::Span<const GlobToken> tokens, absl::string_view text, char separator) {
  using Type = GlobToken::Type;
  if (tokens.empty()) return text.empty();
  const auto rest = tokens.subspan(1);
  switch (tokens[0].type) {
    case Type::kLiteral:
      return text.substr(0, tokens[0].literal.size()) == tokens[0].literal &&
             Slow(rest, text.substr(tokens[0].literal.size()), separator);
    case Type::kAnyChar:
      return !text.empty() && text[0] != separator && Slow(rest, text.substr(1), separator);
    case Type::kSet: {
      if (text.empty() || text[0] == separator) return false;
      bool in = false;
      for (const auto& [low, high] : tokens[0].ranges)
        in |= low <= uint8_t(text[0]) && uint8_t(text[0]) <= high;
      return in != tokens[0].negated && Slow(rest, text.substr(1), separator);
    }
    case Type::kStar:
      for (size_t n = 0;; ++n) {
        if (Slow(rest, text.substr(n), separator)) return true;
        if (n == text.size() || text[n] == separator) return false;
      }
    case Type::kDoubleStar:
      for (size_t n = 0; n <= text.size(); ++n) {
        if (Slow(rest, text.substr(n), separator)) return true;
      }
      return false;
    case Type::kDirs:
      for (size_t n = 0; n < text.size(); ++n) {
        if (text[0] == '/' && text[n] == '/' && Slow(rest, text.substr(n + 1), separator)) return true;
      }
      return false;
    case Type::kSubtree:
      return text.empty() || text[0] == '/';
  }
  return false;
}

}  // namespace

TEST_CASE("a star stays within a segment and two cross them") {
  CHECK(Match("/a/*/c", "/a/b/c"));
  CHECK_FALSE(Match("/a/*/c", "/a/b/x/c"));
  CHECK(Match("/a/**/c", "/a/b/x/c"));
  CHECK(Match("/a/**/c", "/a/c"));
  CHECK_FALSE(Match("/a/**/c", "/ac"));
  CHECK(Match("/a/x*y", "/a/xy"));
  CHECK_FALSE(Match("/a/x*y", "/a/x/y"));
}

TEST_CASE("X/** covers X itself and not its neighbours") {
  CHECK(Match("/srv/x/**", "/srv/x"));
  CHECK(Match("/srv/x/**", "/srv/x/y/z"));
  CHECK_FALSE(Match("/srv/x/**", "/srv/xy"));
  CHECK(Match("/home/*/.ssh/**", "/home/u/.ssh"));
  CHECK(Match("/**", "/"));
  CHECK(Match("**", "/a/b"));
}

TEST_CASE("**/NAME matches in every directory, the root too") {
  CHECK(Match("**/.env", "/.env"));
  CHECK(Match("**/.env", "/a/b/.env"));
  CHECK_FALSE(Match("**/.env", "/a/b/x.env"));
  CHECK(Match("**/secrets/**", "/w/secrets"));
  CHECK(Match("**/secrets/**", "/w/secrets/a"));
  CHECK(Match("**/*.pem", "/a/k.pem"));
}

TEST_CASE("sets, single characters, alternatives and quoting") {
  CHECK(Match("/a/[a-c]?", "/a/bz"));
  CHECK_FALSE(Match("/a/[!a-c]x", "/a/bx"));
  CHECK_FALSE(Match("/a/[!b]x", "/a//x"));
  CHECK(Match("/a/{x,y{1,2}}/c", "/a/y2/c"));
  CHECK_FALSE(Match("/a/{x,y{1,2}}/c", "/a/y/c"));
  CHECK(Match("/a/\\*", "/a/*"));
  CHECK_FALSE(Match("/a/\\*", "/a/b"));
  CHECK(Match("/a/?", "/a/\xc3\xa9"));
  CHECK(Match("/a/?", "/a/\xff"));
  CHECK(Match("/a/*", "/a/b\nc"));
}

TEST_CASE("broken patterns are errors with a position") {
  CHECK(ErrorOf("/a/[b") == "[ without ]");
  CHECK(ErrorOf("/a/{b") == "{ without }");
  CHECK(ErrorOf("/a/b}") == "} without {");
  CHECK(ErrorOf("/a\\") != "");
  CHECK(ErrorOf("/a/../b") != "");
  CHECK(ErrorOf("/a/[z-a]") != "");
  std::vector<Glob> out;
  GlobError error;
  REQUIRE_FALSE(Glob::Parse("/ab/[c", GlobKind::kPath, out, error));
  CHECK(error.offset == 4);
}

TEST_CASE("domains match whole labels") {
  CHECK(Match("*.github.com", "api.github.com", GlobKind::kDomain));
  CHECK_FALSE(Match("*.github.com", "github.com", GlobKind::kDomain));
  CHECK_FALSE(Match("*.github.com", "a.b.github.com", GlobKind::kDomain));
  CHECK(Match("**.github.com", "a.b.github.com", GlobKind::kDomain));
  CHECK_FALSE(Match("*.github.com", "evilgithub.com", GlobKind::kDomain));
}

TEST_CASE("spellings of a pattern that mean the same are the same") {
  CHECK(Globs("/a//b/./c/")[0].tokens() == Globs("/a/b/c")[0].tokens());
  CHECK(Globs("/a/**/**/b")[0].tokens() == Globs("/a/**/b")[0].tokens());
  CHECK(Globs("//**")[0].tokens() == Globs("/**")[0].tokens());
}

TEST_CASE("the matcher agrees with trying everything") {
  std::mt19937 random(7);
  const auto pick = [&](absl::string_view from) { return from[random() % from.size()]; };
  for (int round = 0; round < 20000; ++round) {
    std::string pattern = "/", text = "/";
    for (unsigned n = random() % 8; n > 0; --n)
      pattern += random() % 3 ? std::string(1, pick("ab/*?")) : "**";
    for (unsigned n = random() % 9; n > 0; --n) text += pick("ab/");
    for (const Glob& glob : Globs(pattern)) {
      INFO(pattern << " on " << text);
      REQUIRE(glob.Matches(text) == Slow(glob.tokens(), text, '/'));
    }
  }
}

TEST_CASE("covering is never claimed wrongly") {
  CHECK(GlobCovers(Globs("/a/**")[0], Globs("/a/b/*.c")[0]));
  CHECK(GlobCovers(Globs("**")[0], Globs("/a/**")[0]));
  CHECK(GlobCovers(Globs("**/.env")[0], Globs("/a/.env")[0]));
  CHECK_FALSE(GlobCovers(Globs("/a/*")[0], Globs("/a/**")[0]));
  CHECK_FALSE(GlobCovers(Globs("/a/b/**")[0], Globs("/a/**")[0]));
  std::mt19937 random(11);
  const auto pick = [&](absl::string_view from) { return from[random() % from.size()]; };
  int covered = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string one = "/", two = "/";
    for (unsigned n = random() % 6; n > 0; --n) one += random() % 3 ? std::string(1, pick("ab/*?")) : "**";
    for (unsigned n = random() % 6; n > 0; --n) two += random() % 3 ? std::string(1, pick("ab/*?")) : "**";
    const Glob outer = Globs(one)[0], inner = Globs(two)[0];
    if (!GlobCovers(outer, inner)) continue;
    ++covered;
    for (int n = 0; n < 20; ++n) {
      std::string text = "/";
      for (unsigned k = random() % 8; k > 0; --k) text += pick("ab/");
      INFO(one << " over " << two << " on " << text);
      REQUIRE((!inner.Matches(text) || outer.Matches(text)));
    }
  }
  CHECK(covered > 100);
}

TEST_CASE("paths are put into one spelling") {
  std::string storage;
  CHECK(NormalizePath("/a//b/./c/../d/", storage) == "/a/b/d");
  CHECK(NormalizePath("/../..", storage) == "/");
  CHECK(NormalizePath("/a/.env", storage) == "/a/.env");
  CHECK(NormalizePath("/", storage) == "/");
}

TEST_CASE("alternatives are counted without making them") {
  CHECK(CountAlternatives("/a") == 1);
  CHECK(CountAlternatives("/{a,b}/{c,d,e}") == 6);
  CHECK(CountAlternatives("/{a,{b,c}{d,e}}") == 5);
  CHECK(CountAlternatives("/\\{a,b\\}") == 1);
  CHECK(CountAlternatives("{,},,") == 2);
  std::string many;
  for (int i = 0; i < 100; ++i) many += "{a,b}";
  CHECK(CountAlternatives(many) >= 1u << 20);
}

}  // namespace agentmon::policy
