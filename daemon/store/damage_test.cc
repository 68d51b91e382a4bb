// A database that is damaged, or that is none, when the store opens it or while it writes.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/store/store_fixture.h"

namespace agentmon {
namespace {

// A directory with a good database of 500 events.
class Damaged {
 public:
  Damaged() {
    auto store = Open();
    store->UpsertSession(MakeSession("session-1", 1000));
    for (int i = 0; i < 500; ++i) store->OnEvent(MakeEvent("session-1", i));
    REQUIRE(store->Flush(absl::Seconds(10)));
  }

  std::unique_ptr<EventStore> Open() { return OpenStore(OptionsFor(dir_, clock_)); }
  const TempDir& dir() const { return dir_; }
  std::string database() const { return dir_.database(); }

  // The store works on an empty database, and says that and where the other one is.
  void CheckSetAside(const std::string& what) {
    INFO(what);
    auto store = Open();
    CHECK(store->Status().state().find("set aside as agentmon.db.corrupt-") != std::string::npos);
    store->UpsertSession(MakeSession("session-2", 1000));
    store->OnEvent(MakeEvent("session-2", 1));
    REQUIRE(store->Flush(absl::Seconds(10)));
    const std::vector<Event> events = QuerySession(*store, "*");
    REQUIRE(events.size() == 2);
    const Event& loss = events[events[0].kind() == v1::LOSS ? 0 : 1];
    CHECK(loss.loss().where().find("set aside as agentmon.db.corrupt-") != std::string::npos);
    CHECK(store->Verify()->intact());
    CHECK(dir_.Names(".corrupt-").size() >= 1);
    store.reset();
    CHECK(Open()->Status().state() == "ok");
  }

 private:
  TempDir dir_;
  FakeClock clock_;
};

}  // namespace

TEST_CASE("an undamaged database is not set aside") {
  Damaged good;
  auto store = good.Open();
  CHECK(store->Status().state() == "ok");
  CHECK(QuerySession(*store, "session-1").size() == 500);
  CHECK(good.dir().Names(".corrupt-").empty());
}

TEST_CASE("a database with an overwritten header is set aside unchanged") {
  Damaged damaged;
  Overwrite(damaged.database(), 0, "garbagegarbage!!");
  const std::string content = ReadFile(damaged.database());
  damaged.CheckSetAside("header");
  CHECK(ReadFile(damaged.dir().path() + "/" + damaged.dir().Names(".corrupt-")[0]) == content);
}

TEST_CASE("a database with garbage in the middle is set aside") {
  for (const size_t page : {1u, 2u, 5u, 9u}) {
    Damaged damaged;
    REQUIRE(std::filesystem::file_size(damaged.database()) > (page + 1) * 8192);
    std::string garbage;
    for (int i = 0; i < 8192; ++i) garbage += static_cast<char>(i * 7919 >> 3);
    Overwrite(damaged.database(), page * 8192, garbage);
    damaged.CheckSetAside(absl::StrCat("page ", page + 1));
  }
}

TEST_CASE("a database that was cut short is set aside") {
  for (const size_t size : {5000u, 100u, 8192u, 40'000u}) {
    Damaged damaged;
    std::filesystem::resize_file(damaged.database(), size);
    damaged.CheckSetAside(absl::StrCat("cut to ", size));
  }
}

TEST_CASE("an empty file is a new database") {
  Damaged damaged;
  WriteFile(damaged.database(), "");
  auto store = damaged.Open();
  CHECK(store->Status().state() == "ok");
  CHECK(damaged.dir().Names(".corrupt-").empty());
}

TEST_CASE("an empty database does not cost the log that belongs to it") {
  Damaged damaged;
  std::string log;
  {
    auto store = damaged.Open();
    store->OnEvent(MakeEvent("session-1", 1000));
    REQUIRE(store->Flush(absl::Seconds(10)));
    log = ReadFile(damaged.database() + "-wal");
    REQUIRE_FALSE(log.empty());
  }
  WriteFile(damaged.database(), "");
  WriteFile(damaged.database() + "-wal", log);
  damaged.CheckSetAside("empty with a log");
  CHECK(ReadFile(damaged.dir().path() + "/" + damaged.dir().Names(".corrupt-")[0]) == log);
}

TEST_CASE("garbage in place of the log is set aside and the database is kept") {
  Damaged damaged;
  WriteFile(damaged.database() + "-wal", std::string(100'000, 'g'));
  auto store = damaged.Open();
  CHECK(store->Status().state().find(
            "agentmon.db-wal was no write-ahead log; set aside as agentmon.db.corrupt-") == 0);
  CHECK(QuerySession(*store, "session-1").size() == 500);
  REQUIRE(damaged.dir().Names(".corrupt-").size() == 1);
  CHECK(ReadFile(damaged.dir().path() + "/" + damaged.dir().Names(".corrupt-")[0]) ==
        std::string(100'000, 'g'));
}

TEST_CASE("the log of a killed daemon is read, torn end and all") {
  Damaged damaged;
  std::string database, log;
  {
    auto store = damaged.Open();
    store->OnEvent(MakeEvent("session-1", 1000));
    REQUIRE(store->Flush(absl::Seconds(10)));
    database = ReadFile(damaged.database());
    log = ReadFile(damaged.database() + "-wal");
  }
  WriteFile(damaged.database(), database);
  WriteFile(damaged.database() + "-wal", log + std::string(5000, 'x'));
  auto store = damaged.Open();
  CHECK(store->Status().state() == "ok");
  CHECK(QuerySession(*store, "session-1").size() == 501);
}

TEST_CASE("a directory, a fifo or a second link in place of the database is set aside") {
  Damaged damaged;
  std::filesystem::remove(damaged.database());
  std::filesystem::create_directory(damaged.database());
  damaged.CheckSetAside("directory");
  std::filesystem::remove(damaged.database());
  REQUIRE(::mkfifo(damaged.database().c_str(), 0600) == 0);
  damaged.CheckSetAside("fifo");
  std::filesystem::create_hard_link(damaged.database(), damaged.dir().path() + "/second-link");
  const std::string content = ReadFile(damaged.database());
  damaged.CheckSetAside("second link");
  CHECK(ReadFile(damaged.dir().path() + "/second-link") == content);
}

TEST_CASE("a link in place of the database, log or shared memory is neither followed nor written through") {
  for (const char* suffix : {"", "-wal", "-shm"}) {
    Damaged damaged;
    const std::string target = damaged.dir().path() + "/target", name = damaged.database() + suffix;
    std::filesystem::remove(name);
    WriteFile(target, "untouched");
    std::filesystem::create_symlink(target, name);
    damaged.CheckSetAside(absl::StrCat("link at ", suffix));
    CHECK(ReadFile(target) == "untouched");
  }
}

TEST_CASE("a dangling link in place of the database does not create its target") {
  Damaged damaged;
  std::filesystem::remove(damaged.database());
  std::filesystem::create_symlink(damaged.dir().path() + "/target", damaged.database());
  damaged.CheckSetAside("dangling");
  CHECK_FALSE(std::filesystem::exists(damaged.dir().path() + "/target"));
}

TEST_CASE("another program's database is set aside") {
  Damaged damaged;
  std::filesystem::remove(damaged.database());
  OtherConnection(damaged.database()).Exec("CREATE TABLE recipes(name); INSERT INTO recipes VALUES('soup')");
  damaged.CheckSetAside("foreign");
  OtherConnection aside(damaged.dir().path() + "/" + damaged.dir().Names(".corrupt-")[0]);
  CHECK(aside.Text("SELECT name FROM recipes") == "soup");
}

TEST_CASE("a database without one of its tables is set aside") {
  for (const char* table : {"batches", "anchor", "sessions", "events"}) {
    Damaged damaged;
    OtherConnection(damaged.database()).Exec(absl::StrCat("DROP TABLE ", table));
    damaged.CheckSetAside(table);
  }
}

TEST_CASE("a database of a newer agentmon is refused, named, and left alone") {
  Damaged damaged;
  OtherConnection(damaged.database()).Exec("PRAGMA user_version=999999");
  const std::string content = ReadFile(damaged.database());
  FakeClock clock;
  const absl::Status status = EventStore::Open(OptionsFor(damaged.dir(), clock)).status();
  CHECK(absl::IsFailedPrecondition(status));
  const std::string message(status.message());
  CHECK(message.find("has schema 999999, this agentmond knows schemas up to 1: install") !=
        std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
  CHECK(ReadFile(damaged.database()) == content);
  CHECK(damaged.dir().Names(".corrupt-").empty());
}

TEST_CASE("a database that is open to others is closed to them") {
  Damaged damaged;
  REQUIRE(::chmod(damaged.database().c_str(), 0666) == 0);
  auto store = damaged.Open();
  CHECK(QuerySession(*store, "session-1").size() == 500);
  struct stat st;
  REQUIRE(::stat(damaged.database().c_str(), &st) == 0);
  CHECK((st.st_mode & 07777) == 0600);
}

TEST_CASE("a database, log or shared memory of somebody else's or without a mode is set aside as it is") {
  for (const char* suffix : {"", "-wal", "-shm"}) {
    const auto check = [&](mode_t mode, uid_t owner, const std::string& told) {
      Damaged damaged;
      const std::string name = damaged.database() + suffix;
      if (!std::filesystem::exists(name)) WriteFile(name, "");
      REQUIRE(::chmod(name.c_str(), mode) == 0);
      REQUIRE(::chown(name.c_str(), owner, static_cast<gid_t>(-1)) == 0);
      auto store = damaged.Open();
      INFO(store->Status().state());
      CHECK(store->Status().state().find(absl::StrCat("agentmon.db", suffix, told, "; set aside as ")) !=
            std::string::npos);
      const std::vector<std::string> aside = damaged.dir().Names(".corrupt-");
      const auto same = std::find_if(aside.begin(), aside.end(), [&](const std::string& n) {
        struct stat st;
        REQUIRE(::stat((damaged.dir().path() + "/" + n).c_str(), &st) == 0);
        return (st.st_mode & 07777) == mode && st.st_uid == owner;
      });
      CHECK(same != aside.end());
      struct stat st;
      REQUIRE(::stat(damaged.database().c_str(), &st) == 0);
      CHECK((st.st_mode & 07777) == 0600);
      CHECK(st.st_uid == ::geteuid());
    };
    for (const mode_t mode : {0, 0400, 0066}) {
      check(mode, ::geteuid(),
            absl::StrFormat(" had mode %04o, so that its owner could not read and write it", mode));
    }
    if (::geteuid() == 0) check(0600, 65534, " belonged to uid 65534");
  }
}

TEST_CASE(
    "damage that shows while writing sets the database aside, goes on counting and keeps running sessions") {
  Damaged damaged;
  auto store = damaged.Open();
  store->UpsertSession(MakeSession("running", 1000));
  v1::Session ended = MakeSession("over", 1000);
  ended.set_ended_ns(5);
  store->UpsertSession(ended);
  REQUIRE(store->Flush(absl::Seconds(10)));
  // The next insert finds pages of a table where the index is said to be.
  OtherConnection(damaged.database())
      .Exec(
          "PRAGMA writable_schema=ON; UPDATE sqlite_master SET rootpage = 3 WHERE name = 'events_time';"
          "PRAGMA schema_version=4711");
  uint64_t sent = 0;
  REQUIRE(Eventually([&] {
    store->OnEvent(MakeEvent("running", static_cast<int64_t>(++sent)));
    store->Flush(absl::Milliseconds(200));
    return store->Status().state().find("set aside as") != std::string::npos;
  }));
  REQUIRE(store->Flush(absl::Seconds(10)));
  const std::vector<Event> events = QuerySession(*store, "running");
  REQUIRE_FALSE(events.empty());
  CHECK(events[0].seq() > 500);
  CHECK(store->Status().lost() == 0);
  CHECK(store->FindSession("running", 1000)->uid() == 1000);
  CHECK(absl::IsNotFound(store->FindSession("over", 1000).status()));
  CHECK(store->Verify()->intact());
}

TEST_CASE("a database that is taken away while the daemon runs is replaced by a new one") {
  Damaged damaged;
  auto store = damaged.Open();
  store->OnEvent(MakeEvent("session-1", 1000));
  REQUIRE(store->Flush(absl::Seconds(10)));
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(damaged.database() + suffix);
  store->OnEvent(MakeEvent("session-1", 1001));
  REQUIRE(store->Flush(absl::Seconds(10)));
  const std::vector<Event> events = QuerySession(*store, "*");
  REQUIRE(events.size() == 1);
  CHECK(events[0].seq() == 502);
  CHECK(std::filesystem::exists(damaged.database()));
}

}  // namespace agentmon
