#include "daemon/probe/record_queue.h"

#include <cstring>

#include <catch2/catch.hpp>

#include "bpf/event_abi.h"
#include "daemon/probe/file_record.h"
#include "tests/fake/fake_task_runner.h"

namespace agentmon {
namespace {

struct Collector : RecordSink {
  std::vector<std::string> paths;
  void OnRecord(absl::Span<const uint8_t> record) override {
    am_file file;
    std::memcpy(&file, record.data(), sizeof(file));
    REQUIRE(file.h.size == record.size());
    paths.emplace_back(reinterpret_cast<const char*>(record.data()) + sizeof(file), file.path_len);
  }
};

std::vector<uint8_t> Named(const std::string& path) {
  FileRecord record;
  record.path = path;
  return EncodeFileRecord(record);
}

}  // namespace

TEST_CASE("records arrive in order, the first at once and the rest together") {
  FakeTaskRunner core;
  Collector sink;
  auto queue = RecordQueue::Create(core, sink, 1 << 20);
  queue->Push(Named("/a"));
  core.RunPosted();
  CHECK(sink.paths == std::vector<std::string>{"/a"});
  queue->Push(Named("/b"));
  queue->Push(Named("/c"));
  core.RunPosted();
  CHECK(sink.paths.size() == 1);
  core.Advance(RecordQueue::kDrainInterval);
  CHECK(sink.paths == std::vector<std::string>{"/a", "/b", "/c"});
  core.Advance(absl::Seconds(1));
  queue->Push(Named("/d"));
  core.RunPosted();
  CHECK(sink.paths.size() == 4);
  CHECK(queue->Stats().records == 4);
  CHECK(queue->Stats().lost == 0);
}

TEST_CASE("a full queue drops and counts") {
  FakeTaskRunner core;
  Collector sink;
  auto queue = RecordQueue::Create(core, sink, 2 * Named("/a").size());
  for (int i = 0; i < 5; ++i) queue->Push(Named("/a"));
  core.RunPosted();
  CHECK(sink.paths.size() == 2);
  CHECK(queue->Stats().lost == 3);
}

TEST_CASE("a task that is posted when the queue goes does nothing") {
  FakeTaskRunner core;
  Collector sink;
  auto queue = RecordQueue::Create(core, sink, 1 << 20);
  queue->Push(Named("/a"));
  queue.reset();
  core.RunPosted();
  CHECK(sink.paths.empty());
}

TEST_CASE("a long path keeps its innermost part and is marked as cut") {
  FileRecord record;
  record.path = "/out/" + std::string(AM_PATH_MAX, 'x');
  record.new_path = "/new";
  const std::vector<uint8_t> bytes = EncodeFileRecord(record);
  am_file file;
  std::memcpy(&file, bytes.data(), sizeof(file));
  CHECK(file.path_len == AM_PATH_MAX);
  CHECK(file.new_path_len == 4);
  CHECK((file.h.flags & AM_F_PATH_CUT) != 0);
  CHECK(bytes.size() == sizeof(file) + AM_PATH_MAX + 4);
  CHECK(bytes[sizeof(file)] == 'x');
}

}  // namespace agentmon
