#include "daemon/event/pending_counts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

namespace agentmon {
namespace {

struct Folder {
  char path[32] = "/tmp/agentmon-pending-XXXXXX";
  Folder() { REQUIRE(mkdtemp(path) != nullptr); }
  ~Folder() { rmdir(path); }
  std::string File() const { return std::string(path) + "/counts"; }
};

Event Counted(uint64_t count) {
  Event event;
  event.set_session("s1");
  event.set_count(count);
  event.mutable_file()->set_path(std::string("/a\0b", 4));
  return event;
}

TEST_CASE("what one daemon keeps the next one takes, once") {
  Folder folder;
  const Event a = Counted(3), b = Counted(40'000);
  REQUIRE(PendingCounts(folder.File()).Keep({&a}).ok());
  REQUIRE(PendingCounts(folder.File()).Keep({&a, &b}).ok());
  struct stat st {};
  REQUIRE(stat(folder.File().c_str(), &st) == 0);
  CHECK((st.st_mode & 0777) == 0600);
  const std::vector<Event> taken = PendingCounts(folder.File()).Take();
  REQUIRE(taken.size() == 2);
  CHECK(taken[0].count() == 3);
  CHECK(taken[1].count() == 40'000);
  CHECK(taken[1].file().path() == std::string("/a\0b", 4));
  CHECK(PendingCounts(folder.File()).Take().empty());
}

TEST_CASE("nothing to keep leaves no file, and a file that was cut off gives what is whole") {
  Folder folder;
  const Event a = Counted(3), b = Counted(4);
  PendingCounts counts(folder.File());
  REQUIRE(counts.Keep({&a, &b}).ok());
  struct stat st {};
  REQUIRE(stat(folder.File().c_str(), &st) == 0);
  REQUIRE(truncate(folder.File().c_str(), st.st_size - 1) == 0);
  CHECK(counts.Take().size() == 1);
  REQUIRE(counts.Keep({&a}).ok());
  REQUIRE(counts.Keep({}).ok());
  CHECK(access(folder.File().c_str(), F_OK) != 0);
  CHECK(PendingCounts("").Keep({&a}).ok());
  CHECK(PendingCounts("").Take().empty());
}

}  // namespace
}  // namespace agentmon
