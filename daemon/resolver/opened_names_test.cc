#include "daemon/resolver/opened_names.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

using Names = std::vector<std::string>;

policy::Address Numbered(uint32_t n) {
  const uint8_t bytes[4] = {192, static_cast<uint8_t>(n >> 16), static_cast<uint8_t>(n >> 8),
                            static_cast<uint8_t>(n)};
  return policy::FromBytes4(bytes);
}

}  // namespace

TEST_CASE("an address has the names that opened it in this session, the newest first, while they hold") {
  OpenedNames opened;
  opened.Add(1, {"a.example", Numbered(1), 100});
  opened.Add(1, {"b.example", Numbered(1), 50});
  CHECK(opened.NamesOf(1, Numbered(1), 50) == Names{"b.example", "a.example"});
  CHECK(opened.NamesOf(1, Numbered(1), 51) == Names{"a.example"});
  CHECK(opened.NamesOf(1, Numbered(1), 101).empty());
  CHECK(opened.NamesOf(1, Numbered(2), 1).empty());
  CHECK(opened.NamesOf(2, Numbered(1), 1).empty());
}

TEST_CASE("a name again is the newest, and never ends earlier than before") {
  OpenedNames opened;
  opened.Add(1, {"a.example", Numbered(1), 100});
  opened.Add(1, {"b.example", Numbered(1), 100});
  opened.Add(1, {"a.example", Numbered(1), 10});
  CHECK(opened.NamesOf(1, Numbered(1), 100) == Names{"a.example", "b.example"});
}

TEST_CASE("what is remembered of a session is bounded, and ends with it") {
  OpenedNames opened;
  for (uint32_t i = 0; i < OpenedNames::kAddressesPerSession + 10; ++i)
    opened.Add(1, {"a.example", Numbered(i), 100});
  CHECK(opened.NamesOf(1, Numbered(9), 1).empty());
  CHECK(opened.NamesOf(1, Numbered(10), 1).size() == 1);
  for (size_t i = 0; i < OpenedNames::kNamesPerAddress + 3; ++i)
    opened.Add(1, {absl::StrCat("n", i), Numbered(10), 100});
  CHECK(opened.NamesOf(1, Numbered(10), 1).size() == OpenedNames::kNamesPerAddress);
  opened.Remove(1);
  CHECK(opened.NamesOf(1, Numbered(10), 1).empty());
}

}  // namespace agentmon
