#include "daemon/resolver/hosts_file.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

std::string All(const std::vector<policy::Address>* addresses) {
  std::string text;
  if (addresses == nullptr) return "none";
  for (const policy::Address& address : *addresses) absl::StrAppend(&text, policy::ToString(address), " ");
  return text;
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  REQUIRE(::chmod((path + ".new").c_str(), 0644) == 0);
  REQUIRE(::rename((path + ".new").c_str(), path.c_str()) == 0);
}

}  // namespace

TEST_CASE("names of a hosts file have all their addresses, comments and odd lines are passed over") {
  const HostTable table = ParseHosts(
      "127.0.0.1 localhost\n::1\tLocalHost ip6-localhost # the host\n# 10.0.0.1 no\n10.0.0.1\n"
      "not-an-address name\n192.0.2.1 a.Example. b.example\r\n192.0.2.2 a.example\n192.0.2.2 a.example\n"
      "192.0.2.3 bad..name good.example");
  CHECK(All(&table.at("localhost")) == "127.0.0.1 ::1 ");
  CHECK(All(&table.at("ip6-localhost")) == "::1 ");
  CHECK(All(&table.at("a.example")) == "192.0.2.1 192.0.2.2 ");
  CHECK(All(&table.at("b.example")) == "192.0.2.1 ");
  CHECK(All(&table.at("good.example")) == "192.0.2.3 ");
  CHECK(table.size() == 5);
}

TEST_CASE("a hosts file is read again when it has changed, and its end is noticed") {
  char name[] = "/tmp/hosts-test-XXXXXX";
  REQUIRE(::mkdtemp(name) != nullptr);
  const std::string path = absl::StrCat(name, "/hosts");
  HostsFile hosts(path);
  CHECK(All(hosts.Find("a.example")) == "none");
  Write(path, "192.0.2.1 a.example\n");
  CHECK(All(hosts.Find("a.example")) == "192.0.2.1 ");
  Write(path, "192.0.2.2 a.example\n");
  CHECK(All(hosts.Find("a.example")) == "192.0.2.2 ");
  Write(path, "192.0.2.3 a.example\n");
  REQUIRE(::chmod(path.c_str(), 0666) == 0);  // anybody could lead names to this host
  CHECK(All(hosts.Find("a.example")) == "none");
  REQUIRE(::unlink(path.c_str()) == 0);
  CHECK(All(hosts.Find("a.example")) == "none");
  REQUIRE(::rmdir(name) == 0);
}

}  // namespace agentmon
