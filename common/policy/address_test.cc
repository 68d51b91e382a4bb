#include "common/policy/address.h"

#include <catch2/catch.hpp>

namespace agentmon::policy {
namespace {

std::string Norm(absl::string_view text) {
  const auto address = ParseAddress(text);
  return address ? ToString(*address) : "none";
}

}  // namespace

TEST_CASE("every spelling of an address is one address") {
  for (const char* text : {"169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376",
                           "169.254.43518", "0xa9.254.0251.254", "::ffff:169.254.169.254",
                           "[::ffff:a9fe:a9fe]", "64:ff9b::a9fe:a9fe", "::169.254.169.254"}) {
    INFO(text);
    CHECK(Norm(text) == "169.254.169.254");
  }
  CHECK(Norm("127.1") == "127.0.0.1");
  CHECK(Norm("::1") == "::1");
  CHECK(Norm("fe80::1%eth0") == "fe80::1");
  for (const char* text :
       {"", "1.2.3.4.5", "256.1.1.1", "1.2.3.400", "08.1.1.1", "0x", "1..2", "abc", ":::", "4294967296"}) {
    INFO(text);
    CHECK(Norm(text) == "none");
  }
}

TEST_CASE("prefixes contain what their bits say") {
  std::string error;
  const auto p = ParsePrefix("10.128.0.0/9", error);
  REQUIRE(p);
  CHECK(p->Contains(*ParseAddress("10.200.1.1")));
  CHECK_FALSE(p->Contains(*ParseAddress("10.100.1.1")));
  CHECK_FALSE(p->Contains(*ParseAddress("::1")));
  CHECK(ToString(*ParsePrefix("::ffff:10.0.0.0/104", error)) == "10.0.0.0/8");
  CHECK(ParsePrefix("0.0.0.0/0", error)->Contains(*ParseAddress("1.2.3.4")));
  CHECK(ParsePrefix("2001:db8::/33", error)->Contains(*ParseAddress("2001:db8:7fff::1")));
  CHECK_FALSE(ParsePrefix("2001:db8::/33", error)->Contains(*ParseAddress("2001:db8:8000::1")));
  CHECK_FALSE(ParsePrefix("10.0.0.0/33", error));
  CHECK_FALSE(ParsePrefix("10.0.0.1/8", error));
  CHECK(error.find("10.0.0.0/8") != std::string::npos);
}

TEST_CASE("labels become punycode (RFC 3492's examples and common names)") {
  CHECK(LabelToAscii("b\xc3\xbc"
                     "cher") == "xn--bcher-kva");
  CHECK(LabelToAscii("B\xc3\x9c"
                     "CHER") == "xn--bcher-kva");
  CHECK(LabelToAscii("m\xc3\xbcnchen") == "xn--mnchen-3ya");
  CHECK(LabelToAscii("\xe4\xbe\x8b\xe3\x81\x88") == "xn--r8jz45g");
  CHECK(LabelToAscii("\xd0\xbf\xd1\x80\xd0\xb8\xd0\xbc\xd0\xb5\xd1\x80") == "xn--e1afmkfd");
  CHECK(LabelToAscii("\xd9\x84\xd9\x8a\xd9\x87\xd9\x85\xd8\xa7\xd8\xa8\xd8\xaa\xd9\x83\xd9\x84\xd9\x85\xd9"
                     "\x88\xd8\xb4\xd8\xb9\xd8\xb1\xd8\xa8\xd9\x8a\xd8\x9f") == "xn--egbpdaj6bu4bxfgehfvwxn");
  CHECK(LabelToAscii("3\xe5\xb9\xb4"
                     "b\xe7\xb5\x84\xe9\x87\x91\xe5\x85\xab\xe5\x85\x88\xe7\x94\x9f") ==
        "xn--3b-ww4c5e180e575a65lsy2b");
  CHECK(LabelToAscii("Plain") == "plain");
  CHECK_FALSE(LabelToAscii("\xc3\x28"));
}

TEST_CASE("names have one spelling") {
  CHECK(NormalizeDomain("WWW.Example.COM.") == "www.example.com");
  CHECK(NormalizeDomain("b\xc3\xbc"
                        "cher\xe3\x80\x82"
                        "de") == "xn--bcher-kva.de");
  CHECK_FALSE(NormalizeDomain("a..b"));
  CHECK_FALSE(NormalizeDomain(""));
  CHECK_FALSE(NormalizeDomain(std::string(64, 'a')));
}

TEST_CASE("the unspecified addresses lead to the loopback, in every spelling") {
  for (const char* text : {"0.0.0.0", "0", "0x0", "::ffff:0.0.0.0"})
    CHECK(ToString(Reached(*ParseAddress(text))) == "127.0.0.1");
  CHECK(ToString(Reached(*ParseAddress("::"))) == "::1");
  CHECK(ToString(Reached(*ParseAddress("10.0.0.0"))) == "10.0.0.0");
}

}  // namespace agentmon::policy
