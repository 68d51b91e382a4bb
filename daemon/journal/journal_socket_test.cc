#include "daemon/journal/journal_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

// A journald that reads only when asked to.
class Receiver {
 public:
  Receiver() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    char folder[] = "/tmp/journal-test-XXXXXX";
    folder_ = ::mkdtemp(folder);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, path().c_str());
    REQUIRE(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  ~Receiver() {
    ::unlink(path().c_str());
    ::rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/socket"; }
  std::string Read() {
    char buffer[65536];
    const ssize_t n = ::read(socket_.get(), buffer, sizeof(buffer));
    return n < 0 ? "" : std::string(buffer, static_cast<size_t>(n));
  }

 private:
  std::string folder_;
  UniqueFd socket_;
};

}  // namespace

TEST_CASE("a value with a line break is written with its length") {
  const std::string length("\x03\0\0\0\0\0\0\0", 8);
  CHECK(EncodeJournalEntry({{"A", "b"}, {"C", "d\ne"}}) == absl::StrCat("A=b\nC\n", length, "d\ne\n"));
}

TEST_CASE("a value of any length fits a datagram") {
  CHECK(EncodeJournalEntry({{"A", std::string(1 << 20, 'x')}}).size() == 4096 + 3);
}

TEST_CASE("a line of the log is an entry with its priority") {
  Receiver journald;
  const auto socket = JournalSocket::Open(journald.path());
  REQUIRE(socket.ok());
  (*socket)->SendLine(LogLevel::kWarning, "said");
  CHECK(journald.Read() == "MESSAGE=said\nPRIORITY=4\nSYSLOG_IDENTIFIER=agentmond\n");
}

TEST_CASE("a journald that does not read holds nobody up, and what it did not take is counted") {
  Receiver journald;
  const auto socket = JournalSocket::Open(journald.path());
  REQUIRE(socket.ok());
  for (int i = 0; i < 10'000 && (*socket)->dropped() == 0; ++i) (*socket)->SendLine(LogLevel::kInfo, "said");
  CHECK((*socket)->dropped() == 1);
  while (!journald.Read().empty()) continue;
  (*socket)->SendLine(LogLevel::kInfo, "again");
  CHECK_THAT(journald.Read(), Catch::Matchers::Contains("again"));
  CHECK((*socket)->dropped() == 1);
}

TEST_CASE("a descriptor is the journal's stream when the variable names its device and inode") {
  const UniqueFd file(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  struct stat st {};
  REQUIRE(::fstat(file.get(), &st) == 0);
  CHECK(IsJournalStream(file.get(), absl::StrCat(st.st_dev, ":", st.st_ino).c_str()));
  CHECK_FALSE(IsJournalStream(file.get(), absl::StrCat(st.st_dev, ":", st.st_ino + 1).c_str()));
  CHECK_FALSE(IsJournalStream(file.get(), "nonsense"));
  CHECK_FALSE(IsJournalStream(file.get(), nullptr));
}

}  // namespace agentmon
