#include "daemon/store/state_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "daemon/store/store_fixture.h"

namespace agentmon {
namespace {

mode_t ModeOf(const std::string& path) {
  struct stat st;
  REQUIRE(::lstat(path.c_str(), &st) == 0);
  return st.st_mode & 07777;
}

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

}  // namespace

TEST_CASE("the state directory is made and is for its owner only") {
  TempDir dir;
  const std::string path = dir.path() + "/state";
  REQUIRE(StateDir::Open(path).ok());
  CHECK(ModeOf(path) == 0700);
  REQUIRE(::chmod(path.c_str(), 0755) == 0);
  REQUIRE(StateDir::Open(path).ok());
  CHECK(ModeOf(path) == 0700);
  CHECK(absl::IsNotFound(StateDir::Open(dir.path() + "/no/parent").status()));
}

TEST_CASE("a link, a file or somebody else's directory in place of the state directory is refused") {
  TempDir dir;
  const std::string path = dir.path() + "/state";
  WriteFile(path, "x");
  CHECK_FALSE(StateDir::Open(path).ok());
  std::filesystem::remove(path);
  std::filesystem::create_directory(dir.path() + "/elsewhere");
  std::filesystem::create_directory_symlink(dir.path() + "/elsewhere", path);
  CHECK_FALSE(StateDir::Open(path).ok());
  std::filesystem::remove(path);
  if (::geteuid() != 0) return;
  std::filesystem::create_directory(path);
  REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
  const absl::Status status = StateDir::Open(path).status();
  CHECK(absl::IsPermissionDenied(status));
  CHECK(std::string(status.message()).find("belongs to uid 65534") != std::string::npos);
}

// The locks of this process's other connections: with them lost, another program folds the log in under a
// reader, which then finds the database malformed.
TEST_CASE("a look at the database before it is opened leaves the locks of other connections") {
  TempDir dir;
  WriteFile(dir.database(), "x");
  REQUIRE(::chmod(dir.database().c_str(), 0600) == 0);
  const UniqueFd held(::open(dir.database().c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(held.valid());
  struct flock lock = {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  REQUIRE(::fcntl(held.get(), F_SETLK, &lock) == 0);
  const auto another_may_write = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      struct flock wanted = lock;
      wanted.l_type = F_WRLCK;
      const int fd = ::open(dir.database().c_str(), O_RDWR | O_CLOEXEC);
      ::_exit(::fcntl(fd, F_SETLK, &wanted) == 0 ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return status == 0;
  };
  REQUIRE_FALSE(another_may_write());
  REQUIRE(StateDir::Open(dir.path())->PrepareDatabase(kNow).ok());
  CHECK_FALSE(another_may_write());
  lock.l_type = F_UNLCK;
  REQUIRE(::fcntl(held.get(), F_SETLK, &lock) == 0);
  CHECK(another_may_write());
}

TEST_CASE("the database, its log and its shared memory are for their owner only") {
  TempDir dir;
  FakeClock clock;
  const mode_t mask = ::umask(0);
  auto store = OpenStore(OptionsFor(dir, clock));
  store->OnEvent(MakeEvent("session-1", 1));
  REQUIRE(store->Flush(absl::Seconds(10)));
  ::umask(mask);
  for (const char* suffix : {"", "-wal", "-shm"}) CHECK(ModeOf(dir.database() + suffix) == 0600);
}

TEST_CASE("what was set aside keeps its content and never replaces what was set aside before") {
  TempDir dir;
  const StateDir state = StateDir::Open(dir.path()).value();
  for (int round = 0; round < 3; ++round) {
    WriteFile(dir.database(), absl::StrCat("content ", round));
    if (round == 1) WriteFile(dir.database() + "-wal", "log 1");
    REQUIRE(state.SetAside(kNow).ok());
  }
  const std::string aside = "agentmon.db.corrupt-20270115T080000Z";
  CHECK(dir.Names("agentmon") ==
        std::vector<std::string>{aside, aside + "-2", aside + "-2-wal", aside + "-3"});
  CHECK(ReadFile(dir.path() + "/" + aside) == "content 0");
  CHECK(ReadFile(dir.path() + "/" + aside + "-2") == "content 1");
  CHECK(ReadFile(dir.path() + "/" + aside + "-2-wal") == "log 1");
}

TEST_CASE("a second daemon on a state directory is refused and told who holds it") {
  TempDir dir;
  absl::StatusOr<StateLock> first = StateLock::Acquire(dir.path());
  REQUIRE(first.ok());
  const absl::Status second = StateLock::Acquire(dir.path()).status();
  CHECK(absl::IsFailedPrecondition(second));
  CHECK(std::string(second.message()).find(absl::StrCat("pid ", ::getpid(), " since 20")) !=
        std::string::npos);
  CHECK(ModeOf(dir.path() + "/lock") == 0600);
  first = absl::UnknownError("gone");
  CHECK(StateLock::Acquire(dir.path()).ok());
}

TEST_CASE("the lock of a daemon that was killed is free") {
  TempDir dir;
  int ready[2];
  REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    absl::StatusOr<StateLock> lock = StateLock::Acquire(dir.path());
    const char byte = lock.ok() ? '1' : '0';
    if (::write(ready[1], &byte, 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte = '0';
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  REQUIRE(byte == '1');
  CHECK_FALSE(StateLock::Acquire(dir.path()).ok());
  REQUIRE(::kill(child, SIGKILL) == 0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(StateLock::Acquire(dir.path()).ok());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("a link in place of the lock is not followed") {
  TempDir dir;
  WriteFile(dir.path() + "/target", "untouched");
  std::filesystem::create_symlink(dir.path() + "/target", dir.path() + "/lock");
  CHECK_FALSE(StateLock::Acquire(dir.path()).ok());
  CHECK(ReadFile(dir.path() + "/target") == "untouched");
}

}  // namespace agentmon
