#include "common/policy/path_index.h"

#include <catch2/catch.hpp>

#include <random>

namespace agentmon::policy {
namespace {

std::string RandomText(std::mt19937& random, bool pattern) {
  static const char* const kPieces[] = {"a", "bb", ".env", "key.pem", "secret", "x.tar.gz", "abcdef"};
  static const char* const kWild[] = {"*", "**", "*.pem", "abcd*", "?", "{a,bb}", "*c*", "s[a-e]*t", "**b"};
  std::string out = random() % 12 == 0 ? "@" : "";
  if (pattern && out.empty() && random() % 4 == 0) out = "**";
  for (unsigned n = 1 + random() % 4; n > 0; --n) {
    out += '/';
    out += pattern && random() % 3 == 0 ? kWild[random() % std::size(kWild)]
                                        : kPieces[random() % std::size(kPieces)];
  }
  if (pattern && random() % 4 == 0) out += "/**";
  return out;
}

}  // namespace

TEST_CASE("the index finds the same first rule as a loop over all globs") {
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    PathIndex index, all(true);
    std::vector<std::pair<Glob, std::pair<uint32_t, uint32_t>>> list;
    for (uint32_t rule = 0; rule < 20; ++rule) {
      std::vector<Glob> globs;
      GlobError error;
      REQUIRE(Glob::Parse(RandomText(random, true), GlobKind::kPath, globs, error));
      const uint32_t operations = 1 + random() % 7;
      for (const Glob& glob : globs) {
        index.Add(glob, rule, operations);
        all.Add(glob, rule, operations);
        list.push_back({glob, {rule, operations}});
      }
    }
    for (int n = 0; n < 50; ++n) {
      const std::string path = RandomText(random, false);
      const PathKeys keys(path);
      FirstRules first(5);
      index.Find(keys, first);
      std::vector<uint32_t> collected;
      all.Collect(keys, collected);
      for (const uint32_t bit : {1u, 4u}) {
        uint32_t want = FirstRules::kNone;
        for (const auto& [glob, rule] : list) {
          if (!glob.Matches(path)) continue;
          REQUIRE(std::find(collected.begin(), collected.end(), rule.first) != collected.end());
          if (rule.second & bit) want = std::min(want, rule.first);
        }
        INFO(path);
        REQUIRE(first.Of(bit) == want);
      }
    }
  }
}

}  // namespace agentmon::policy
