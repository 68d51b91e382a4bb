// Gives the system journal what of the events belongs there, never more than it and its readers can bear.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/base/task_runner.h"
#include "daemon/event/event.h"
#include "daemon/journal/journal_socket.h"

namespace agentmon {

// Core thread.
class JournalSink : public EventSink {
 public:
  using Send = std::function<void(const JournalFields& fields)>;
  using OwnerOf = std::function<std::optional<uid_t>(absl::string_view session)>;
  // Of a session, and of all sessions together, in one window; what is beyond it is counted, and the count is
  // an entry of its own at the window's end.
  static constexpr uint64_t kPerSession = 50;
  static constexpr uint64_t kInAll = 1000;
  static constexpr absl::Duration kWindow = absl::Seconds(10);

  JournalSink(TaskRunner& core, Send send, OwnerOf owner_of);
  ~JournalSink() override;
  void OnEvent(const Event& event) override;

 private:
  struct Window {
    uint64_t sent = 0;
    uint64_t left_out = 0;
  };
  void StartWindow();  // a timer runs only while something was sent
  void EndWindow();

  TaskRunner& core_;
  const Send send_;
  const OwnerOf owner_of_;
  std::map<std::string, Window> windows_;  // by session
  uint64_t sent_ = 0;
  bool window_runs_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace agentmon
