#include "daemon/event/decode.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bpf/event_abi.h"

namespace agentmon {
namespace {

using Bytes = std::vector<uint8_t>;

// The record with its tail, size filled in.
template <typename Record>
Bytes Pack(Record record, const std::string& tail = "") {
  auto* header = reinterpret_cast<am_header*>(&record);
  header->size = static_cast<am_u32>(sizeof(record) + tail.size());
  Bytes bytes(header->size);
  std::memcpy(bytes.data(), &record, sizeof(record));
  std::memcpy(bytes.data() + sizeof(record), tail.data(), tail.size());
  return bytes;
}

am_header Header(am_type type, v1::Source source, am_u32 flags = 0) {
  am_header h{};
  h.type = type;
  h.source = static_cast<am_u16>(source);
  h.flags = flags;
  h.uid = 1000;
  h.boot_ns = 5000;
  h.cgroup_id = 77;
  h.start_ns = 3000;
  h.pid = 42;
  h.tid = 43;
  return h;
}

template <size_t n>
std::string Text(const char (&literal)[n]) {
  return std::string(literal, n - 1);
}

Bytes ExecRecord(am_u32 flags, const std::string& exe, const std::string& cwd, const std::string& argv,
                 am_u32 argc) {
  am_exec rec{};
  rec.h = Header(AM_EXEC, v1::PROCESS, flags);
  rec.ppid = 41;
  rec.parent_start_ns = 2000;
  rec.argc = argc;
  rec.exe_len = static_cast<am_u32>(exe.size());
  rec.cwd_len = static_cast<am_u32>(cwd.size());
  rec.filename_len = 4;
  rec.argv_len = static_cast<am_u32>(argv.size());
  rec.argv_total = rec.argv_len;
  return Pack(rec, exe + cwd + "./ls" + argv);
}

Bytes SockRecord(am_type type, int family, const char* address, int protocol) {
  am_sock rec{};
  rec.h = Header(type, v1::NETWORK);
  rec.family = static_cast<am_u16>(family);
  rec.protocol = static_cast<am_u16>(protocol);
  rec.port = 443;
  rec.cookie = 99;
  REQUIRE(inet_pton(family, address, rec.address) == 1);
  return Pack(rec);
}

Bytes UnixRecord(const std::string& cwd, const std::string& name, int type = SOCK_STREAM) {
  am_unix rec{};
  rec.h = Header(AM_UNIX_CONNECT, v1::NETWORK, AM_F_REVERSED | AM_F_AS_ASKED);
  rec.cwd_len = static_cast<am_u32>(cwd.size());
  rec.name_len = static_cast<am_u32>(name.size());
  rec.sock_type = static_cast<am_u32>(type);
  return Pack(rec, cwd + name);
}

Bytes FileRecord(v1::EventKind kind, const std::string& path, const std::string& new_path, am_u32 flags = 0) {
  am_file rec{};
  rec.h = Header(AM_FILE, v1::NOTIFY, flags);
  rec.kind = kind;
  rec.open_flags = 0x241;
  rec.mode = 0644;
  rec.uid = -1;
  rec.gid = 5;
  rec.size = 7;
  rec.path_len = static_cast<am_u32>(path.size());
  rec.new_path_len = static_cast<am_u32>(new_path.size());
  return Pack(rec, path + new_path);
}

Bytes ExitRecord(int wait_status, am_u32 flags = 0) {
  am_exit rec{};
  rec.h = Header(AM_EXIT, v1::PROCESS, flags);
  rec.wait_status = wait_status;
  rec.cpu_ns = 11;
  rec.peak_rss_bytes = 12;
  return Pack(rec);
}

Decoded Good(const Bytes& bytes, int64_t boot_to_wall_ns = 1'000'000) {
  absl::StatusOr<Decoded> decoded = Decode(bytes, boot_to_wall_ns);
  INFO(decoded.status());
  REQUIRE(decoded.ok());
  return *std::move(decoded);
}

TEST_CASE("every event says who, when and from which source") {
  const Decoded decoded = Good(ExitRecord(0));
  CHECK(decoded.cgroup_id == 77);
  CHECK(decoded.tid == 43);
  CHECK(decoded.event.process().pid() == 42);
  CHECK(decoded.event.process().start_ns() == 3000);
  CHECK(decoded.event.uid() == 1000);
  CHECK(decoded.event.boot_ns() == 5000);
  CHECK(decoded.event.wall_ns() == 1'005'000);
  CHECK(decoded.event.source() == v1::PROCESS);
  CHECK(decoded.event.count() == 1);
  CHECK(decoded.event.count_is() == v1::EXACT);
  CHECK_FALSE(decoded.event.as_asked());
}

TEST_CASE("an exec has its path turned round and its arguments split") {
  const Event event =
      Good(ExecRecord(AM_F_REVERSED, Text("ls\0bin\0usr\0"), Text(""), Text("ls\0\0-l x\0"), 3)).event;
  CHECK(event.kind() == v1::EXEC);
  CHECK(event.exe() == "/usr/bin/ls");
  CHECK(event.exec().cwd() == "/");
  CHECK(event.exec().filename() == "./ls");
  CHECK(event.parent().pid() == 41);
  CHECK(event.parent().start_ns() == 2000);
  REQUIRE(event.exec().argv_size() == 3);
  CHECK(event.exec().argv(0) == "ls");
  CHECK(event.exec().argv(1).empty());
  CHECK(event.exec().argv(2) == "-l x");
  CHECK(event.exec().argv_bytes() == 9);
  CHECK_FALSE(event.exec().argv_cut());
}

TEST_CASE("a cut argument list keeps the beginning of its last argument") {
  const Event event =
      Good(ExecRecord(AM_F_REVERSED | AM_F_ARGV_CUT, Text("ls\0"), "", Text("ls\0abc"), 9)).event;
  CHECK(event.exec().argv_cut());
  REQUIRE(event.exec().argv_size() == 2);
  CHECK(event.exec().argv(1) == "abc");
}

TEST_CASE("a path whose outermost part is missing says so, the other one stays whole") {
  std::string deep;
  for (int i = 0; i < 20; ++i) deep += std::string(200, 'd') + '\0';
  const Event event =
      Good(ExecRecord(AM_F_REVERSED | AM_F_PATH_CUT, Text("ls\0bin\0"), deep, Text("ls\0"), 1)).event;
  CHECK(event.cut());
  CHECK(event.exe() == "/bin/ls");
  CHECK(event.exec().cwd().substr(0, 5) == ".../d");
}

TEST_CASE("exits are told as status or signal") {
  CHECK(Good(ExitRecord(7 << 8)).event.exit().status() == 7);
  CHECK(Good(ExitRecord(7 << 8)).event.exit().signal() == 0);
  const v1::Exit dead = Good(ExitRecord(11 | 0x80, AM_F_CORE)).event.exit();
  CHECK(dead.signal() == 11);
  CHECK(dead.status() == 0);
  CHECK(dead.core_dumped());
  CHECK(dead.cpu_ns() == 11);
  CHECK(dead.peak_rss_bytes() == 12);
}

TEST_CASE("a fork has its child") {
  am_fork rec{};
  rec.h = Header(AM_FORK, v1::PROCESS);
  rec.child_pid = 50;
  rec.child_start_ns = 4500;
  const Event event = Good(Pack(rec)).event;
  CHECK(event.kind() == v1::FORK);
  CHECK(event.fork().child().pid() == 50);
  CHECK(event.fork().child().start_ns() == 4500);
}

TEST_CASE("file records carry what was asked for") {
  const Event event = Good(FileRecord(v1::RENAME, "/a", "/b", AM_F_AS_ASKED | AM_F_FIRST_ONLY)).event;
  CHECK(event.kind() == v1::RENAME);
  CHECK(event.file().path() == "/a");
  CHECK(event.file().new_path() == "/b");
  CHECK(event.file().open_flags() == 0x241);
  CHECK(event.file().mode() == 0644);
  CHECK(event.file().uid() == -1);
  CHECK(event.file().gid() == 5);
  CHECK(event.file().size() == 7);
  CHECK(event.as_asked());
  CHECK(event.count_is() == v1::AT_LEAST);
  CHECK_FALSE(Decode(FileRecord(v1::EXEC, "/a", ""), 0).ok());
  CHECK_FALSE(Decode(FileRecord(v1::CONNECT, "/a", ""), 0).ok());
}

TEST_CASE("addresses are shown as text, IPv4 inside IPv6 as IPv4") {
  CHECK(Good(SockRecord(AM_CONNECT, AF_INET, "10.1.2.3", IPPROTO_TCP)).event.net().address() == "10.1.2.3");
  CHECK(Good(SockRecord(AM_SEND, AF_INET6, "2001:db8::1", IPPROTO_UDP)).event.net().address() ==
        "2001:db8::1");
  CHECK(Good(SockRecord(AM_BIND, AF_INET6, "::ffff:10.1.2.3", IPPROTO_TCP)).event.net().address() ==
        "10.1.2.3");
  CHECK(Good(SockRecord(AM_LISTEN, AF_INET6, "::", IPPROTO_TCP)).event.net().address() == "::");
  const v1::Net net = Good(SockRecord(AM_SEND, AF_INET, "10.1.2.3", 132)).event.net();
  CHECK(net.protocol() == "132");
  CHECK(net.port() == 443);
  CHECK(net.flow() == 99);
}

TEST_CASE("a TCP connect is in progress until its result, other protocols have none") {
  CHECK(Good(SockRecord(AM_CONNECT, AF_INET, "1.1.1.1", IPPROTO_TCP)).event.net().result() ==
        v1::Net::IN_PROGRESS);
  CHECK(Good(SockRecord(AM_CONNECT, AF_INET, "1.1.1.1", IPPROTO_UDP)).event.net().result() ==
        v1::Net::NOT_KNOWN);
  am_sock_result rec{};
  rec.sock.h = Header(AM_SOCK_RESULT, v1::NETWORK);
  rec.sock.family = AF_INET;
  rec.sock.protocol = IPPROTO_TCP;
  rec.sock.cookie = 99;
  CHECK(Good(Pack(rec)).event.net().result() == v1::Net::OK);
  rec.error = ECONNREFUSED;
  const Event failed = Good(Pack(rec)).event;
  CHECK(failed.kind() == v1::CONNECT);
  CHECK(failed.net().result() == v1::Net::FAILED);
  CHECK(failed.net().error() == ECONNREFUSED);
  CHECK(failed.net().flow() == 99);
}

TEST_CASE("names of unix sockets are absolute or abstract") {
  CHECK(Good(UnixRecord("", "/run/s")).event.unix().path() == "/run/s");
  CHECK(Good(UnixRecord("", Text("/run/s\0junk"))).event.unix().path() == "/run/s");
  CHECK(Good(UnixRecord(Text("b\0a\0"), "../s")).event.unix().path() == "/a/b/../s");
  CHECK(Good(UnixRecord("", "s")).event.unix().path() == "/s");
  const v1::Unix abstract = Good(UnixRecord("", Text("\0a\0\xff"))).event.unix();
  CHECK(abstract.path() == Text("@a\0\xff"));
  CHECK(abstract.abstract());
  CHECK(Good(UnixRecord("", "/run/s", SOCK_DGRAM)).event.unix().datagram());
  CHECK(Good(UnixRecord("", "")).event.unix().path().empty());
  CHECK(Good(UnixRecord("", "/s")).event.as_asked());
}

std::vector<Bytes> AllRecords() {
  am_fork fork{};
  fork.h = Header(AM_FORK, v1::PROCESS);
  am_sock_result result{};
  result.sock.h = Header(AM_SOCK_RESULT, v1::NETWORK);
  result.sock.family = AF_INET;
  return {ExecRecord(AM_F_REVERSED, Text("ls\0bin\0"), Text("b\0a\0"), Text("ls\0-l\0"), 2),
          Pack(fork),
          ExitRecord(1),
          FileRecord(v1::RENAME, "/a", "/b"),
          SockRecord(AM_CONNECT, AF_INET6, "::1", IPPROTO_TCP),
          Pack(result),
          UnixRecord(Text("b\0a\0"), "s")};
}

TEST_CASE("a record that is shorter than it says is refused") {
  for (const Bytes& record : AllRecords()) {
    Good(record);
    for (size_t length = 0; length < record.size(); ++length) {
      const Bytes cut(record.begin(), record.begin() + static_cast<long>(length));
      REQUIRE_FALSE(Decode(cut, 0).ok());
      if (length < sizeof(am_header)) continue;
      Bytes honest = cut;  // its own size says the same
      const am_u32 size = static_cast<am_u32>(length);
      std::memcpy(honest.data() + offsetof(am_header, size), &size, sizeof(size));
      REQUIRE_FALSE(Decode(honest, 0).ok());
    }
    Bytes longer = record;
    longer.resize(record.size() + 100, 0xee);
    Good(longer);
  }
}

TEST_CASE("lengths beyond the record and unknown types and sources are refused") {
  Bytes exec = AllRecords()[0];
  for (size_t field : {offsetof(am_exec, exe_len), offsetof(am_exec, cwd_len),
                       offsetof(am_exec, filename_len), offsetof(am_exec, argv_len)}) {
    for (am_u32 length : {0x1000u, 0x7fffffffu, 0xffffffffu}) {
      Bytes bad = exec;
      std::memcpy(bad.data() + field, &length, sizeof(length));
      CHECK_FALSE(Decode(bad, 0).ok());
    }
  }
  for (am_u16 value : {0, 12, 255, 65535}) {
    Bytes bad = exec;
    std::memcpy(bad.data() + offsetof(am_header, type), &value, sizeof(value));
    CHECK_FALSE(Decode(bad, 0).ok());
    bad = exec;
    std::memcpy(bad.data() + offsetof(am_header, source), &value, sizeof(value));
    CHECK_FALSE(Decode(bad, 0).ok());
  }
}

TEST_CASE("any bytes are safe") {
  std::mt19937 random(1);
  size_t decoded = 0;
  for (int round = 0; round < 50'000; ++round) {
    for (Bytes record : AllRecords()) {
      const size_t changes = 1 + random() % 4;
      for (size_t i = 0; i < changes; ++i) record[random() % record.size()] = static_cast<uint8_t>(random());
      record.resize(random() % (record.size() + 1));
      decoded += Decode(record, INT64_MAX).ok();
    }
  }
  CHECK(decoded < 50'000 * 7);
}

}  // namespace
}  // namespace agentmon
