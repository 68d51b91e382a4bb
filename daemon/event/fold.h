// Repetition, folded where it arises: the first of a repeated act goes on at once, the others are
// counted and go on as one event per window. The sum of counts is always the number of acts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "daemon/event/event.h"
#include "daemon/event/process_key.h"

namespace agentmon {

// Core thread. Never folded: exec, fork, exit, what was denied in truth, the daemon's own events.
class Folder : public EventSink {
 public:
  struct Options {
    absl::Duration window = absl::Seconds(10);
    size_t max_keys = 65'536;  // beyond it events go on unfolded
  };

  explicit Folder(EventSink& out) : Folder(out, Options()) {}
  Folder(EventSink& out, Options options)
      : out_(out), window_ns_(absl::ToInt64Nanoseconds(options.window)), max_keys_(options.max_keys) {}

  // Windows also end by the times of events that come in.
  void OnEvent(const Event& event) override;
  // Sends on what windows that have ended by then have counted. For a timer.
  void Flush(int64_t now_boot_ns);
  // Sends on and forgets what is counted of a session, or of all.
  void EndSession(absl::string_view session);
  void EndAll();

  size_t keys() const { return keys_; }
  // What is counted and was not sent on yet; valid until the next call. `changes` is another number whenever
  // it is something else.
  std::vector<const Event*> Pending() const;
  uint64_t changes() const { return changes_; }

 private:
  struct Owner {
    std::string session;
    ProcessKey process;

    friend bool operator==(const Owner& a, const Owner& b) {
      return a.process == b.process && a.session == b.session;
    }
    template <typename H>
    friend H AbslHashValue(H state, const Owner& owner) {
      return H::combine(std::move(state), owner.session, owner.process);
    }
  };
  struct Entry {
    int64_t window_end_ns = 0;
    std::unique_ptr<Event> counted;  // the last repetition, with the sum of counts; null = none yet
  };
  using Entries = absl::flat_hash_map<std::string, Entry>;

  static Owner OwnerOf(const Event& event) { return {event.session(), ProcessKey::From(event.process())}; }
  void EndProcess(const Owner& owner);
  void SendCounted(Entries& entries);
  void Count(Entry& entry, const Event& event);

  EventSink& out_;
  const int64_t window_ns_;
  const size_t max_keys_;
  absl::flat_hash_map<Owner, Entries> owners_;
  size_t keys_ = 0;
  uint64_t changes_ = 0;
  int64_t next_flush_ns_ = INT64_MAX;
};

}  // namespace agentmon
