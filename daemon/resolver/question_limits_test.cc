#include "daemon/resolver/question_limits.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "daemon/resolver/dns_fixture.h"

namespace agentmon {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

DnsQuestion Of(absl::string_view name) { return ReadQuery(Ask(name, kDnsA)).query.question; }

}  // namespace

TEST_CASE("questions are limited by their rate, and the limit comes back with time") {
  QuestionLimits limits({.per_second = 10, .burst = 20});
  for (int i = 0; i < 20; ++i) CHECK(limits.TakeQuestion(kStart));
  CHECK_FALSE(limits.TakeQuestion(kStart));
  CHECK_FALSE(limits.TakeQuestion(kStart + absl::Milliseconds(50)));
  CHECK(limits.TakeQuestion(kStart + absl::Milliseconds(110)));
  CHECK_FALSE(limits.TakeQuestion(kStart + absl::Milliseconds(110)));
  // A clock that is set back gives nothing and takes nothing.
  CHECK_FALSE(limits.TakeQuestion(kStart - absl::Hours(1)));
  for (int i = 0; i < 20; ++i) CHECK(limits.TakeQuestion(kStart + absl::Hours(1)));
  CHECK_FALSE(limits.TakeQuestion(kStart + absl::Hours(1)));
}

TEST_CASE("long labels and long names look like data") {
  QuestionLimits limits;
  CHECK(limits.Suspicion(Of("www.example.com"), kStart).empty());
  CHECK(limits.Suspicion(Of(absl::StrCat(std::string(52, 'a'), ".example.com")), kStart).empty());
  CHECK_FALSE(limits.Suspicion(Of(absl::StrCat(std::string(53, 'a'), ".example.com")), kStart).empty());
  std::string name = "example.com";
  for (int i = 0; i < 4; ++i) name = absl::StrCat(std::string(40, 'b'), ".", name);
  CHECK_FALSE(limits.Suspicion(Of(name), kStart).empty());
}

TEST_CASE("many different names below one domain look like data, the same ones again do not") {
  QuestionLimits limits({.names_per_parent = 5});
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5; ++i)
      CHECK(limits.Suspicion(Of(absl::StrCat("n", i, ".example.com")), kStart).empty());
  }
  CHECK_FALSE(limits.Suspicion(Of("n5.example.com"), kStart).empty());
  CHECK_FALSE(limits.Suspicion(Of("n5.deeper.example.com"), kStart).empty());
  CHECK(limits.Suspicion(Of("example.com"), kStart).empty());
  CHECK(limits.Suspicion(Of("n5.example.org"), kStart).empty());
  CHECK(limits.Suspicion(Of("n5.example.com"), kStart + absl::Minutes(2)).empty());
}

TEST_CASE("what the limits remember is bounded") {
  QuestionLimits limits({.parents = 3});
  for (int i = 0; i < 3; ++i) CHECK(limits.Suspicion(Of(absl::StrCat("a.d", i, ".example")), kStart).empty());
  CHECK_FALSE(limits.Suspicion(Of("a.d3.example"), kStart).empty());
}

TEST_CASE("the domain that a registrant has is guessed from the last labels") {
  CHECK(ParentDomain("a.b.example.com") == "example.com");
  CHECK(ParentDomain("example.com") == "example.com");
  CHECK(ParentDomain("a.example.co.uk") == "example.co.uk");
  CHECK(ParentDomain("co.uk") == "co.uk");
  CHECK(ParentDomain("com") == "com");
  CHECK(ParentDomain("") == "");
}

}  // namespace agentmon
