// What the store's tests share: a directory that goes away, events, and a store in them.
#pragma once

#include <sqlite3.h>
#include <stdlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "daemon/store/event_store.h"
#include "tests/fake/fake_clock.h"

namespace agentmon {

class TempDir {
 public:
  TempDir() {
    SetLogLevel(LogLevel::kError);
    char name[] = "/tmp/agentmon-store-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string database() const { return path_ + "/agentmon.db"; }

  // Names in the directory that contain `part`, sorted.
  std::vector<std::string> Names(const std::string& part) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      if (entry.path().filename().string().find(part) != std::string::npos)
        names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}
inline void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << content;
}
inline void Overwrite(const std::string& path, size_t at, const std::string& bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file << bytes;
}

// Another program that has the database open.
class OtherConnection {
 public:
  explicit OtherConnection(const std::string& path) {
    REQUIRE(sqlite3_open(path.c_str(), &db_) == SQLITE_OK);
    sqlite3_busy_timeout(db_, 5000);
  }
  ~OtherConnection() { sqlite3_close_v2(db_); }
  void Exec(const std::string& sql) {
    char* message = nullptr;
    const int code = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, &message);
    INFO(sql << ": " << (message == nullptr ? "" : message));
    REQUIRE(code == SQLITE_OK);
  }
  std::string Text(const std::string& sql) {
    std::string value;
    const auto take = [](void* out, int, char** columns, char**) {
      *static_cast<std::string*>(out) = columns[0] == nullptr ? "" : columns[0];
      return 0;
    };
    const int code = sqlite3_exec(db_, sql.c_str(), take, &value, nullptr);
    INFO(sql << ": " << sqlite3_errmsg(db_));
    REQUIRE(code == SQLITE_OK);
    return value;
  }
  int64_t Number(const std::string& sql) { return std::stoll("0" + Text(sql)); }

 private:
  sqlite3* db_ = nullptr;
};

inline Event MakeEvent(const std::string& session, int64_t wall_ns, v1::EventKind kind = v1::OPEN) {
  Event event;
  event.set_session(session);
  event.set_wall_ns(wall_ns);
  event.set_boot_ns(wall_ns);
  event.set_kind(kind);
  event.mutable_process()->set_pid(100);
  event.mutable_process()->set_start_ns(12345);
  event.set_exe("/usr/bin/cat");
  event.set_uid(1000);
  event.set_source(v1::FANOTIFY);
  event.set_count(1);
  event.mutable_file()->set_path(absl::StrCat("/home/ann/file-", wall_ns));
  return event;
}

inline Event MakeDenial(const std::string& session, int64_t wall_ns) {
  Event event = MakeEvent(session, wall_ns);
  event.mutable_judgement()->set_decision(v1::DENY);
  event.mutable_judgement()->set_enforced(true);
  return event;
}

inline v1::Session MakeSession(const std::string& id, uint32_t uid, int64_t started_ns = 1,
                               const std::string& name = "") {
  v1::Session session;
  session.set_id(id);
  session.set_uid(uid);
  session.set_name(name);
  session.set_started_ns(started_ns);
  session.set_state(v1::Session::RUNNING);
  session.set_workspace("/home/ann");
  return session;
}

inline EventStore::Options OptionsFor(const TempDir& dir, const Clock& clock) {
  EventStore::Options options;
  options.dir = dir.path();
  options.clock = &clock;
  options.writer.gather = absl::Milliseconds(1);
  options.writer.retention.max_age = options.writer.retention.kept_max_age = absl::InfiniteDuration();
  return options;
}

inline std::unique_ptr<EventStore> OpenStore(EventStore::Options options) {
  absl::StatusOr<std::unique_ptr<EventStore>> store = EventStore::Open(std::move(options));
  INFO(store.status().ToString());
  REQUIRE(store.ok());
  return *std::move(store);
}

// A query waits only a moment for what was sent before; a loaded machine may need more.
inline void FlushUnlessInTrouble(EventStore& store) {
  if (store.Status().state().find("events wait") != 0) store.Flush(absl::Seconds(10));
}

inline std::vector<Event> QueryAll(EventStore& store, QueryOptions options) {
  FlushUnlessInTrouble(store);
  std::vector<Event> events;
  const absl::Status status = store.Query(options, [&](std::vector<Event> chunk) {
    CHECK(chunk.size() <= kQueryChunk);
    for (Event& event : chunk) events.push_back(std::move(event));
    return true;
  });
  INFO(status.ToString());
  REQUIRE(status.ok());
  return events;
}

inline std::vector<Event> QuerySession(EventStore& store, const std::string& session, uint32_t limit = 0) {
  QueryOptions options;
  options.filter.set_session(session);
  options.limit = limit;
  return QueryAll(store, options);
}

// Looks at `condition` until it holds or ten seconds have passed.
template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time until = absl::Now() + absl::Seconds(10);
  while (!condition()) {
    if (absl::Now() > until) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

}  // namespace agentmon
