// The part of a subscription that the hub and the subscriber share. Internal to this folder.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/event/filter.h"
#include "daemon/stream/stream_hub.h"

namespace agentmon {

class Subscriber::Entry {
 public:
  struct Limits {
    size_t events;
    size_t bytes;
  };

  Entry(EventMatcher matcher, std::optional<uint32_t> viewer, Limits limits)
      : matcher_(std::move(matcher)), viewer_(viewer), limits_(limits) {}

  const EventMatcher& matcher() const { return matcher_; }
  std::optional<uint32_t> viewer() const { return viewer_; }

  void Give(const Event& event);
  Result Next(absl::Time deadline, size_t most, std::vector<Event>* events, uint64_t* gap);
  void End();

 private:
  struct Item {
    Event event;
    size_t bytes;
    uint64_t gap_before;
  };

  const EventMatcher matcher_;
  const std::optional<uint32_t> viewer_;
  const Limits limits_;
  absl::Mutex mutex_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t gap_ ABSL_GUARDED_BY(mutex_) = 0;  // missed after the last item
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace agentmon
