#include "daemon/journal/journal_sink.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/journal/event_entry.h"

namespace agentmon {

JournalSink::JournalSink(TaskRunner& core, Send send, OwnerOf owner_of)
    : core_(core), send_(std::move(send)), owner_of_(std::move(owner_of)) {}

JournalSink::~JournalSink() {
  *alive_ = false;
  EndWindow();
}

void JournalSink::OnEvent(const Event& event) {
  if (!BelongsInJournal(event)) return;
  StartWindow();
  Window& window = windows_[event.session()];
  if (window.sent >= kPerSession || sent_ >= kInAll) {
    ++window.left_out;
    return;
  }
  ++window.sent;
  ++sent_;
  send_(JournalEntryOf(event, owner_of_(event.session())));
}

void JournalSink::StartWindow() {
  if (std::exchange(window_runs_, true)) return;
  core_.PostAfter(kWindow, [this, alive = alive_] {
    if (*alive) EndWindow();
  });
}

void JournalSink::EndWindow() {
  for (const auto& [session, window] : windows_) {
    if (window.left_out == 0) continue;
    send_({{"MESSAGE",
            absl::StrCat("session ", session, ": ", window.left_out,
                         " more entries were left out; agentmon timeline --session ", session, " has them")},
           {"PRIORITY", absl::StrCat(static_cast<int>(LogLevel::kWarning))},
           {"SYSLOG_IDENTIFIER", kJournalIdentifier},
           {"SESSION", session},
           {"LEFT_OUT", absl::StrCat(window.left_out)}});
  }
  windows_.clear();
  sent_ = 0;
  window_runs_ = false;
}

}  // namespace agentmon
