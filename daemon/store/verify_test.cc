#include "daemon/store/verify.h"

#include <catch2/catch.hpp>

#include "daemon/store/store_fixture.h"

namespace agentmon {
namespace {

// 5 batches of 20 events: plain and kept ones of two sessions.
void Fill(EventStore& store) {
  store.UpsertSession(MakeSession("session-1", 1000));
  store.UpsertSession(MakeSession("session-2", 1000));
  for (int batch = 0; batch < 5; ++batch) {
    for (int i = 1; i <= 20; ++i) {
      const std::string session = i % 2 == 0 ? "session-1" : "session-2";
      const int64_t wall_ns = batch * 100 + i;
      store.OnEvent(i % 5 == 0 ? MakeDenial(session, wall_ns) : MakeEvent(session, wall_ns));
    }
    REQUIRE(store.Flush(absl::Seconds(10)));
  }
}

class Tampered {
 public:
  Tampered() {
    OpenStore(Options())->Close(absl::Seconds(10));
    auto store = OpenStore(Options());
    Fill(*store);
  }
  v1::VerifyResponse After(const std::string& sql) {
    if (!sql.empty()) OtherConnection(dir_.database()).Exec(sql);
    auto store = OpenStore(Options());
    absl::StatusOr<v1::VerifyResponse> answer = store->Verify();
    INFO(answer.status().ToString());
    REQUIRE(answer.ok());
    return *answer;
  }
  // True when exactly one finding is there and it contains all of `parts`.
  bool Finds(const std::string& sql, const std::vector<std::string>& parts) {
    const v1::VerifyResponse answer = After(sql);
    CHECK_FALSE(answer.intact());
    std::string all;
    for (const std::string& finding : answer.findings()) all += finding + "\n";
    INFO(all);
    CHECK(answer.findings_size() == 1);
    bool found = true;
    for (const std::string& part : parts) {
      INFO(part);
      CHECK(all.find(part) != std::string::npos);
      found = found && all.find(part) != std::string::npos;
    }
    return found;
  }
  OtherConnection Connect() { return OtherConnection(dir_.database()); }
  const TempDir& dir() const { return dir_; }
  EventStore::Options Options() { return OptionsFor(dir_, clock_); }

 private:
  TempDir dir_;
  FakeClock clock_;
};

}  // namespace

TEST_CASE("an untouched timeline is intact") {
  Tampered tampered;
  const v1::VerifyResponse answer = tampered.After("");
  CHECK(answer.intact());
  CHECK(answer.findings().empty());
  CHECK(answer.batches() >= 5);
  CHECK(answer.events() == 100);
  CHECK(answer.pruned_batches() == 0);
  CHECK(answer.head().size() == 64);
}

TEST_CASE("a changed row is found") {
  CHECK(Tampered().Finds("UPDATE events SET data = x'00' || data WHERE seq = 33",
                         {"seq 21 to 40", "session-2", "changed"}));
  CHECK(
      Tampered().Finds("UPDATE events SET pid = 1 WHERE seq = 34", {"seq 21 to 40", "session-1", "changed"}));
  CHECK(
      Tampered().Finds("UPDATE events SET wall_ns = wall_ns + 1 WHERE seq = 1", {"seq 1 to 20", "changed"}));
  CHECK(Tampered().Finds("UPDATE events SET enforced = 0 WHERE seq = 100",
                         {"seq 81 to 100", "kept", "changed"}));
}

TEST_CASE("a changed name of an executable or session is found in every batch that has it") {
  for (const char* sql : {"UPDATE strings SET value = '/bin/true'",
                          "UPDATE sessions SET id = 'other' WHERE id = 'session-1'"}) {
    INFO(sql);
    const v1::VerifyResponse answer = Tampered().After(sql);
    CHECK_FALSE(answer.intact());
    CHECK(answer.findings_size() >= 5);
  }
}

TEST_CASE("a removed row is found") {
  CHECK(Tampered().Finds("DELETE FROM events WHERE seq = 50",
                         {"seq 41 to 60", "session-1", "kept", "1 of 2 rows were removed"}));
  CHECK(Tampered().Finds("DELETE FROM events WHERE seq = 51",
                         {"seq 41 to 60", "session-2", "1 of 8 rows were removed"}));
}

TEST_CASE("an inserted row is found, wherever it stands") {
  const std::string copy = "INSERT INTO events SELECT ";
  const std::string rest =
      ", session, wall_ns, kind, pid, exe, decision, enforced, data FROM events WHERE seq = 7";
  CHECK(Tampered().Finds(copy + "500" + rest, {"1 rows were inserted", "no batch", "seq 500"}));
  CHECK(Tampered().Finds(copy + "0" + rest, {}) == true);
}

TEST_CASE("reordered rows are found") {
  CHECK(
      Tampered().Finds("UPDATE events SET seq = -1 WHERE seq = 61; UPDATE events SET seq = 61 WHERE seq = 63;"
                       "UPDATE events SET seq = 63 WHERE seq = -1",
                       {"seq 61 to 80", "changed or reordered"}));
}

TEST_CASE("a row that was moved to another session is missing in one and too much in the other") {
  const v1::VerifyResponse answer = Tampered().After(
      "UPDATE events SET session = (SELECT num FROM sessions WHERE id = 'session-1') WHERE seq = 41");
  CHECK_FALSE(answer.intact());
  CHECK(answer.findings_size() == 2);
}

TEST_CASE("a removed, changed or exchanged batch breaks the chain") {
  // Two findings: the number that is missing and the hash that does not follow; and its rows are nobody's.
  const v1::VerifyResponse removed = Tampered().After("DELETE FROM batches WHERE last_seq = 40");
  CHECK_FALSE(removed.intact());
  CHECK(removed.findings_size() == 4);
  CHECK(Tampered().Finds("UPDATE batches SET max_ns = max_ns + 1 WHERE last_seq = 60",
                         {"seq 41 to 60", "chain is broken"}));
  const v1::VerifyResponse hash =
      Tampered().After("UPDATE batches SET hash = randomblob(32) WHERE last_seq = 60");
  CHECK(hash.findings_size() == 2);
  CHECK(Tampered().Finds("UPDATE anchor SET hash = randomblob(32)", {"seq 1 to 20", "chain is broken"}));
}

TEST_CASE("rows and their batch cut off at the end change the head that was logged") {
  Tampered tampered;
  const std::string head = tampered.After("").head();
  const v1::VerifyResponse cut =
      tampered.After("DELETE FROM events WHERE seq > 80; DELETE FROM batches WHERE last_seq > 80");
  CHECK(cut.intact());
  CHECK(cut.head() != head);
}

TEST_CASE("writing goes on after somebody put rows where the next ones belong") {
  Tampered tampered;
  auto store = OpenStore(tampered.Options());
  const std::string columns = "session, wall_ns, kind, pid, exe, decision, enforced, data";
  OtherConnection(tampered.dir().database())
      .Exec("INSERT INTO events SELECT 101, " + columns + " FROM events WHERE seq = 7");
  store->OnEvent(MakeEvent("session-1", 1000));
  REQUIRE(store->Flush(absl::Seconds(10)));
  CHECK(store->Status().lost() == 0);
  CHECK(QuerySession(*store, "session-1").size() == 51);
  CHECK_FALSE(store->Verify()->intact());
}

TEST_CASE("a timeline can be verified while it is written") {
  TempDir dir;
  FakeClock clock;
  auto store = OpenStore(OptionsFor(dir, clock));
  store->UpsertSession(MakeSession("session-1", 1000));
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 500; ++i) store->OnEvent(MakeEvent("session-1", round * 1000 + i));
    const v1::VerifyResponse answer = store->Verify().value();
    REQUIRE(answer.intact());
  }
  REQUIRE(store->Flush(absl::Seconds(10)));
  CHECK(store->Verify()->events() == 10'000);
}

}  // namespace agentmon
