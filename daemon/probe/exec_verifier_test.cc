#include "daemon/probe/exec_verifier.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "bpf/siphash.h"

namespace agentmon {
namespace {

using Words = std::vector<std::string>;

// Of the authors of SipHash: key 00 01 .. 0f.
const PermitKey kKey{{0x0706050403020100, 0x0f0e0d0c0b0a0908}};

TEST_CASE("the hash is SipHash-2-4 of all arguments with their NULs") {
  am_sip sip;
  am_sip_start(&sip, kKey.words[0], kKey.words[1]);
  am_sip_word(&sip, 0x0706050403020100);
  CHECK(am_sip_end(&sip, 0xff0e0d0c0b0a0908, 15) == 0xa129ca6149be45e5);
  CHECK(MakePermit(kKey, 1, Words{"x"}, false).tail_hash == 0x726fdb47dd0e0e31);  // of nothing
  CHECK(MakePermit(kKey, 1, Words{}, false).all_hash == 0x74f839c593dc67fd);      // of one NUL
}

TEST_CASE("arguments that differ only in where one ends have different permits") {
  const am_permit one = MakePermit(kKey, 1, Words{"git", "push", "origin"}, false);
  const am_permit other = MakePermit(kKey, 1, Words{"git", "push origin"}, false);
  CHECK(one.all_bytes == other.all_bytes);
  CHECK(one.all_hash != other.all_hash);
}

TEST_CASE("no arguments are one empty argument") {
  const am_permit none = MakePermit(kKey, 1, Words{}, false);
  const am_permit empty = MakePermit(kKey, 1, Words{""}, false);
  CHECK(none.all_bytes == 1);
  CHECK(none.all_hash == empty.all_hash);
  CHECK(none.tail_bytes == 0);
}

TEST_CASE("more than is kept is cut, and says so") {
  const am_permit permit = MakePermit(kKey, 1, Words{std::string(AM_ARGV_MAX, 'a'), "b"}, false);
  CHECK(permit.all_bytes == AM_ARGV_MAX);
  CHECK(permit.tail_bytes == 0);
  CHECK(permit.flags == AM_PERMIT_CUT);
  CHECK(MakePermit(kKey, 1, Words{"a", "b"}, true).all_bytes == 4);
}

}  // namespace
}  // namespace agentmon
