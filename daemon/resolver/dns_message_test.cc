#include "daemon/resolver/dns_message.h"

#include <catch2/catch.hpp>

#include <random>

#include "daemon/resolver/dns_fixture.h"

namespace agentmon {
namespace {

using What = ReceivedQuery::What;

DnsQuestion QuestionOf(absl::string_view name, uint16_t type) {
  return ReadQuery(Ask(name, type)).query.question;
}

std::string Ip(const DnsAnswer& answer, size_t i) {
  return policy::ToString(answer.addresses().at(i).address);
}

}  // namespace

TEST_CASE("a question is read, its name in lower case and its spelling kept for the answer") {
  const ReceivedQuery got = ReadQuery(Ask("WWW.Example.COM", kDnsAaaa, 0x1234));
  REQUIRE(got.what == What::kQuestion);
  CHECK(got.query.id == 0x1234);
  CHECK(got.query.recursion_desired);
  CHECK(got.query.question.name == "www.example.com");
  CHECK(got.query.question.type == kDnsAaaa);
  CHECK(got.query.question.klass == kDnsInternet);
  CHECK(got.query.question.is_host_name);
  CHECK(got.query.question.longest_label == 7);
  CHECK(got.query.wire_name == DnsBytes::NameData("WWW.Example.COM"));
  CHECK_FALSE(got.query.edns);
  CHECK(got.query.udp_bytes == 512);
}

TEST_CASE("of EDNS the size of datagrams is taken, between 512 and what never needs fragments") {
  const auto with = [](uint16_t bytes, uint8_t version) {
    return ReadQuery(
        DnsBytes().Header(1, 0x0100, 1, 0, 0, 1).Question("a.example", kDnsA).Edns(bytes, version).Take());
  };
  CHECK(with(900, 0).query.udp_bytes == 900);
  CHECK(with(9000, 0).query.udp_bytes == kUdpBytes);
  CHECK(with(0, 0).query.udp_bytes == 512);
  CHECK(with(900, 0).query.edns);
  const ReceivedQuery newer = with(900, 1);
  CHECK(newer.what == What::kError);
  CHECK(newer.error == DnsRcode::kBadVers);
}

TEST_CASE("messages that are no question are dropped or answered with an error") {
  CHECK(ReadQuery({}).what == What::kDrop);
  CHECK(ReadQuery(std::vector<uint8_t>(11)).what == What::kDrop);
  // An answer: answering it could go on forever.
  CHECK(ReadQuery(DnsBytes().Header(1, 0x8100, 1).Question("a.example", 1).Take()).what == What::kDrop);
  const auto error = [](const DnsBytes& bytes) {
    const ReceivedQuery got = ReadQuery(bytes.Take());
    REQUIRE(got.what == What::kError);
    CHECK(got.query.id == 1);
    return got.error;
  };
  CHECK(error(DnsBytes().Header(1, 0x2800, 1).Question("a.example", 6)) == DnsRcode::kNotImp);  // an update
  CHECK(error(DnsBytes().Header(1, 0x0100, 0)) == DnsRcode::kFormErr);
  CHECK(error(DnsBytes().Header(1, 0x0300, 1).Question("a.example", 1)) == DnsRcode::kFormErr);  // cut
  CHECK(error(DnsBytes().Header(1, 0x0100, 2).Question("a.example", 1).Question("b.example", 1)) ==
        DnsRcode::kFormErr);
  CHECK(error(DnsBytes().Header(1, 0x0100, 1)) == DnsRcode::kFormErr);  // no question behind the header
  CHECK(error(DnsBytes().Header(1, 0x0100, 1).Name("a.example").Word(1)) == DnsRcode::kFormErr);  // no class
  CHECK(error(DnsBytes().Header(1, 0x0100, 1).Byte(63).Raw("short")) == DnsRcode::kFormErr);
  CHECK(error(DnsBytes().Header(1, 0x0100, 1).Byte(0x80).Word(1).Word(1)) == DnsRcode::kFormErr);
  CHECK(error(DnsBytes().Header(1, 0x0100, 1).Pointer(12).Word(1).Word(1)) == DnsRcode::kFormErr);  // itself
  CHECK(error(DnsBytes().Header(1, 0x0100, 1).Pointer(0x3ff).Word(1).Word(1)) == DnsRcode::kFormErr);
  // Records in a question, and something else than EDNS behind it.
  CHECK(
      error(DnsBytes().Header(1, 0x0100, 1, 1).Question("a.example", 1).Record("a.example", 1, 1, "1234")) ==
      DnsRcode::kFormErr);
  CHECK(error(DnsBytes()
                  .Header(1, 0x0100, 1, 0, 0, 1)
                  .Question("a.example", 1)
                  .Record("a.example", 1, 1, "1234")) == DnsRcode::kFormErr);
  CHECK(error(DnsBytes().Header(1, 0x0100, 1, 0, 0, 2).Question("a.example", 1).Edns(512).Edns(512)) ==
        DnsRcode::kFormErr);
  DnsBytes longest;
  longest.Header(1, 0x0100, 1).Question("a.example", 1).Raw(std::string(kMostQueryBytes, 'x'));
  CHECK(error(longest) == DnsRcode::kFormErr);
  DnsBytes name;  // 5 * 64 bytes: longer than a name may be
  name.Header(1, 0x0100, 1);
  for (int i = 0; i < 5; ++i) name.Byte(63).Raw(std::string(63, 'a'));
  CHECK(error(name.Byte(0).Word(1).Word(1)) == DnsRcode::kFormErr);
}

TEST_CASE("a dot, a NUL or a space inside of a label makes no other name") {
  const auto of = [](absl::string_view label) {
    return ReadQuery(DnsBytes()
                         .Header(1, 0x0100, 1)
                         .Byte(static_cast<uint8_t>(label.size()))
                         .Raw(label)
                         .Byte(0)
                         .Word(1)
                         .Word(1)
                         .Take());
  };
  const std::vector<std::string> labels = {"github.com", std::string("a\0b", 3), "a b", "a\\b", "\xff"};
  for (const std::string& label : labels) {
    const ReceivedQuery got = of(label);
    REQUIRE(got.what == What::kQuestion);
    CHECK_FALSE(got.query.question.is_host_name);
    CHECK(got.query.question.name != label);
  }
  CHECK(of("_dmarc-1").query.question.is_host_name);
}

TEST_CASE("addresses of an answer are found behind aliases, in any order, with the shortest time to live") {
  const auto bytes = DnsBytes()
                         .Header(9, 0x8180, 1, 4)
                         .Question("www.example", kDnsA)
                         .Record("c.example", kDnsA, 300, DnsBytes::V4({192, 0, 2, 1}))
                         .Record("b.example", kDnsCname, 60, DnsBytes::NameData("C.example"))
                         .Record("www.example", kDnsCname, 3000, DnsBytes::NameData("b.example"))
                         .Record("c.example", kDnsA, 20, DnsBytes::V4({192, 0, 2, 2}))
                         .Take();
  const auto answer = DnsAnswer::Read(bytes, QuestionOf("www.example", kDnsA));
  REQUIRE(answer.ok());
  REQUIRE(answer->addresses().size() == 2);
  CHECK(Ip(*answer, 0) == "192.0.2.1");
  CHECK(answer->addresses()[0].ttl_s == 60);
  CHECK(Ip(*answer, 1) == "192.0.2.2");
  CHECK(answer->addresses()[1].ttl_s == 20);
  CHECK(answer->Describe(8) == std::vector<std::string>{"b.example", "c.example", "192.0.2.1", "192.0.2.2"});
}

TEST_CASE("what an answer has beside the question is not passed on") {
  const auto bytes = DnsBytes()
                         .Header(9, 0x8180, 1, 3, 1, 1)
                         .Question("www.example", kDnsA)
                         .Record("other.example", kDnsA, 300, DnsBytes::V4({10, 0, 0, 1}))
                         .Record("www.example", kDnsA, 300, DnsBytes::V4({192, 0, 2, 1}))
                         .Record("www.example", kDnsAaaa, 300, std::string(16, '\x20'))
                         .Record("example", 2, 300, DnsBytes::NameData("ns.example"))
                         .Record("ns.example", kDnsA, 300, DnsBytes::V4({10, 0, 0, 2}))
                         .Take();
  const auto answer = DnsAnswer::Read(bytes, QuestionOf("www.example", kDnsA));
  REQUIRE(answer.ok());
  CHECK(answer->Describe(8) == std::vector<std::string>{"192.0.2.1"});
  const DnsQuery query = ReadQuery(Ask("wWw.example", kDnsA, 77)).query;
  const auto expected = DnsBytes()
                            .Header(77, 0x8180, 1, 1)
                            .Question("wWw.example", kDnsA)
                            .Pointer(12)
                            .Word(kDnsA)
                            .Word(1)
                            .Word(0)
                            .Word(300)
                            .Word(4)
                            .Raw(DnsBytes::V4({192, 0, 2, 1}))
                            .Take();
  CHECK(WriteAnswer(query, *answer, 512) == expected);
}

TEST_CASE("answers that are malformed, cut, or to another question are not taken") {
  const DnsQuestion asked = QuestionOf("a.example", kDnsA);
  const auto fails = [&asked](const DnsBytes& bytes) { return !DnsAnswer::Read(bytes.Take(), asked).ok(); };
  const std::string address = DnsBytes::V4({192, 0, 2, 1});
  const auto good =
      DnsBytes().Header(1, 0x8180, 1, 1).Question("A.example", 1).Record("a.example", 1, 5, address);
  CHECK_FALSE(fails(good));
  CHECK(fails(DnsBytes()));
  CHECK(fails(DnsBytes().Header(1, 0x8180, 0)));
  CHECK(
      fails(DnsBytes().Header(1, 0x0180, 1, 1).Question("a.example", 1).Record("a.example", 1, 5, address)));
  CHECK(
      fails(DnsBytes().Header(1, 0x8380, 1, 1).Question("a.example", 1).Record("a.example", 1, 5, address)));
  CHECK(
      fails(DnsBytes().Header(1, 0x8180, 1, 1).Question("b.example", 1).Record("a.example", 1, 5, address)));
  CHECK(
      fails(DnsBytes().Header(1, 0x8180, 1, 1).Question("a.example", 28).Record("a.example", 1, 5, address)));
  CHECK(
      fails(DnsBytes().Header(1, 0x8180, 1, 2).Question("a.example", 1).Record("a.example", 1, 5, address)));
  CHECK(fails(DnsBytes().Header(1, 0x8180, 1, 1).Question("a.example", 1).Record("a.example", 1, 5, "123")));
  CHECK(fails(DnsBytes().Header(1, 0x8182, 1).Question("a.example", 1)));  // SERVFAIL
  CHECK(fails(DnsBytes().Header(1, 0x8185, 1).Question("a.example", 1)));  // REFUSED
  DnsBytes huge = good;
  CHECK(fails(huge.Raw(std::string(kMostAnswerBytes, 'x'))));
  CHECK(fails(DnsBytes()
                  .Header(1, 0x8180, 1, 2)
                  .Question("a.example", 1)
                  .Record("a.example", kDnsCname, 5, DnsBytes::NameData("b.example"))
                  .Record("b.example", kDnsCname, 5, DnsBytes::NameData("a.example"))));
}

TEST_CASE("bytes behind an address, and behind a message, are not passed on") {
  const auto answer =
      DnsAnswer::Read(DnsBytes()
                          .Header(1, 0x8180, 1, 1)
                          .Question("a.example", 1)
                          .Record("a.example", 1, 5, DnsBytes::V4({192, 0, 2, 1}) + "smuggled")
                          .Raw("smuggled")
                          .Take(),
                      QuestionOf("a.example", kDnsA));
  if (!answer.ok()) return;
  CHECK(answer->Describe(8) == std::vector<std::string>{"192.0.2.1"});
  const std::vector<uint8_t> written = WriteAnswer(ReadQuery(Ask("a.example", 1)).query, *answer, 512);
  CHECK(absl::string_view(reinterpret_cast<const char*>(written.data()), written.size()).find("smuggled") ==
        absl::string_view::npos);
}

TEST_CASE("that there is no such name or no such record is an answer, with how long that holds") {
  const std::string soa =
      DnsBytes::NameData("ns.example") + DnsBytes::NameData("root.example") + std::string(20, 1);
  for (const uint16_t flags : {0x8180, 0x8183}) {
    const auto answer = DnsAnswer::Read(DnsBytes()
                                            .Header(1, flags, 1, 0, 1)
                                            .Question("a.example", 1)
                                            .Record("example", kDnsSoa, 60, soa)
                                            .Take(),
                                        QuestionOf("a.example", kDnsA));
    REQUIRE(answer.ok());
    CHECK(static_cast<int>(answer->rcode()) == (flags & 0xf));
    CHECK(answer->empty());
    const std::vector<uint8_t> written = WriteAnswer(ReadQuery(Ask("a.example", 1)).query, *answer, 512);
    CHECK(written[9] == 1);  // one record of authority
  }
}

TEST_CASE("an answer that does not fit is cut, and says so") {
  DnsBytes bytes;
  bytes.Header(1, 0x8180, 1, 60).Question("a.example", 1);
  for (uint8_t i = 0; i < 60; ++i) bytes.Record("a.example", 1, 5, DnsBytes::V4({192, 0, 2, i}));
  const auto answer = DnsAnswer::Read(bytes.Take(), QuestionOf("a.example", kDnsA));
  REQUIRE(answer.ok());
  CHECK(answer->addresses().size() == 60);
  const DnsQuery query = ReadQuery(Ask("a.example", 1)).query;
  const std::vector<uint8_t> cut = WriteAnswer(query, *answer, 512);
  CHECK(cut == DnsBytes().Header(7, 0x8380, 1).Question("a.example", 1).Take());
  CHECK(WriteAnswer(query, *answer, 65'535).size() > 60 * 16);
}

TEST_CASE("addresses that may not be opened are taken out of an answer") {
  auto answer = DnsAnswer::Read(DnsBytes()
                                    .Header(1, 0x8180, 1, 2)
                                    .Question("a.example", 1)
                                    .Record("a.example", 1, 5, DnsBytes::V4({10, 0, 0, 1}))
                                    .Record("a.example", 1, 5, DnsBytes::V4({192, 0, 2, 1}))
                                    .Take(),
                                QuestionOf("a.example", kDnsA));
  REQUIRE(answer.ok());
  answer->Remove(answer->addresses()[0].address);
  REQUIRE(answer->addresses().size() == 1);
  CHECK(answer->Describe(8) == std::vector<std::string>{"192.0.2.1"});
}

TEST_CASE("a time to live is shortened, and one with its highest bit set is none") {
  auto answer = DnsAnswer::Read(DnsBytes()
                                    .Header(1, 0x8180, 1, 2)
                                    .Question("a.example", 1)
                                    .Record("a.example", 1, 86'400, DnsBytes::V4({192, 0, 2, 1}))
                                    .Take(),
                                QuestionOf("a.example", kDnsA));
  REQUIRE_FALSE(answer.ok());  // two records are announced
  answer = DnsAnswer::Read(DnsBytes()
                               .Header(1, 0x8180, 1, 1)
                               .Question("a.example", 1)
                               .Record("a.example", 1, 86'400, DnsBytes::V4({192, 0, 2, 1}))
                               .Take(),
                           QuestionOf("a.example", kDnsA));
  REQUIRE(answer.ok());
  answer->ShortenTtls(3600);
  CHECK(answer->addresses()[0].ttl_s == 3600);
  answer = DnsAnswer::Read(DnsBytes()
                               .Header(1, 0x8180, 1, 1)
                               .Question("a.example", 1)
                               .Record("a.example", 1, 0xffffffff, DnsBytes::V4({192, 0, 2, 1}))
                               .Take(),
                           QuestionOf("a.example", kDnsA));
  REQUIRE(answer.ok());
  CHECK(answer->addresses()[0].ttl_s == 0);
}

TEST_CASE("an error repeats the question, and says why to who speaks EDNS") {
  const DnsQuery plain = ReadQuery(Ask("a.example", 1)).query;
  CHECK(WriteError(plain, DnsRcode::kNxDomain, DnsWhy::kBlocked, "a rule") ==
        DnsBytes().Header(7, 0x8183, 1).Question("a.example", 1).Take());
  const DnsQuery edns =
      ReadQuery(DnsBytes().Header(7, 0x0100, 1, 0, 0, 1).Question("a.example", 1).Edns(900).Take()).query;
  CHECK(WriteError(edns, DnsRcode::kNxDomain, DnsWhy::kBlocked, "a rule") ==
        DnsBytes()
            .Header(7, 0x8183, 1, 0, 0, 1)
            .Question("a.example", 1)
            .Byte(0)
            .Word(41)
            .Word(kUdpBytes)
            .Word(0)
            .Word(0)
            .Word(12)
            .Word(15)
            .Word(8)
            .Word(15)
            .Raw("a rule")
            .Take());
  CHECK(WriteError(ReadQuery(DnsBytes().Header(3, 0x0100, 0).Take()).query, DnsRcode::kFormErr) ==
        DnsBytes().Header(3, 0x8181, 0).Take());
}

TEST_CASE("answers of our own have the addresses of the family that was asked for") {
  const std::vector<policy::Address> both = {*policy::ParseAddress("127.0.0.1"),
                                             *policy::ParseAddress("::1")};
  const DnsQuery four = ReadQuery(Ask("localhost", kDnsA)).query,
                 six = ReadQuery(Ask("localhost", kDnsAaaa)).query;
  CHECK(DnsAnswer::Of(four, both, 9).Describe(8) == std::vector<std::string>{"127.0.0.1"});
  CHECK(DnsAnswer::Of(six, both, 9).Describe(8) == std::vector<std::string>{"::1"});
  const auto back = DnsAnswer::Read(WriteAnswer(six, DnsAnswer::Of(six, both, 9), 512), six.question);
  REQUIRE(back.ok());
  CHECK(Ip(*back, 0) == "::1");
  CHECK(back->addresses()[0].ttl_s == 9);
}

TEST_CASE("names of types and codes are those of the registry") {
  CHECK(DnsTypeName(kDnsAaaa) == "AAAA");
  CHECK(DnsTypeName(kDnsHttps) == "HTTPS");
  CHECK(DnsTypeName(kDnsSvcb) == "SVCB");
  CHECK(DnsTypeName(65'280) == "TYPE65280");
  CHECK(RcodeName(DnsRcode::kNxDomain) == "NXDOMAIN");
  CHECK(RcodeName(static_cast<DnsRcode>(9)) == "RCODE9");
}

TEST_CASE("bytes changed at random, and every length, crash neither side") {
  const auto question =
      DnsBytes().Header(1, 0x0100, 1, 0, 0, 1).Question("www.a.example", 1).Edns(1232).Take();
  const auto reply = DnsBytes()
                         .Header(9, 0x8180, 1, 2, 1)
                         .Question("www.example", kDnsA)
                         .Record("www.example", kDnsCname, 60, DnsBytes::NameData("c.example"))
                         .Record("c.example", kDnsA, 20, DnsBytes::V4({192, 0, 2, 2}))
                         .Record("example", kDnsTxt, 20,
                                 "\x03"
                                 "abc")
                         .Take();
  const DnsQuestion asked = QuestionOf("www.example", kDnsA);
  std::mt19937 random(20'240'501);
  for (const auto& seed : {question, reply}) {
    for (size_t size = 0; size <= seed.size(); ++size) {
      const auto part = absl::MakeConstSpan(seed).subspan(0, size);
      CHECK((ReadQuery(part).what == What::kQuestion) == (seed == question && size == seed.size()));
      CHECK(DnsAnswer::Read(part, asked).ok() == (seed == reply && size == seed.size()));
    }
    for (int i = 0; i < 20'000; ++i) {
      std::vector<uint8_t> changed = seed;
      for (unsigned n = 1 + random() % 4; n > 0; --n)
        changed[random() % changed.size()] = static_cast<uint8_t>(random());
      const ReceivedQuery got = ReadQuery(changed);
      if (got.what != What::kDrop) CHECK(WriteError(got.query, DnsRcode::kServFail).size() >= 12);
      const auto answer = DnsAnswer::Read(changed, asked);
      if (answer.ok()) CHECK(WriteAnswer(got.query, *answer, 512).size() >= 12);
    }
  }
}

}  // namespace agentmon
