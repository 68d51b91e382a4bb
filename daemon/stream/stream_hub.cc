#include "daemon/stream/stream_hub.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "daemon/stream/subscriber_entry.h"

namespace agentmon {

void Subscriber::Entry::Give(const Event& event) {
  const size_t bytes = event.SpaceUsedLong();
  absl::MutexLock lock(&mutex_);
  if (ended_) return;
  if (items_.size() >= limits_.events || bytes_ + bytes > limits_.bytes) {
    ++gap_;
    return;
  }
  bytes_ += bytes;
  items_.push_back({event, bytes, std::exchange(gap_, 0)});
}

// A gap stands before the events that came after it, so a call ends where a gap lies between two events.
Subscriber::Result Subscriber::Entry::Next(absl::Time deadline, size_t most, std::vector<Event>* events,
                                           uint64_t* gap) {
  events->clear();
  *gap = 0;
  absl::MutexLock lock(&mutex_);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ended_ || !items_.empty() || gap_ > 0;
  };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&ready), deadline)) return Result::kTimeout;
  if (ended_) return Result::kEnded;
  *gap = items_.empty() ? std::exchange(gap_, 0) : items_.front().gap_before;
  while (!items_.empty() && events->size() < most && (events->empty() || items_.front().gap_before == 0)) {
    bytes_ -= items_.front().bytes;
    events->push_back(std::move(items_.front().event));
    items_.pop_front();
  }
  return Result::kEvents;
}

void Subscriber::Entry::End() {
  absl::MutexLock lock(&mutex_);
  ended_ = true;
}

Subscriber::~Subscriber() { entry_->End(); }

Subscriber::Result Subscriber::Next(absl::Time deadline, size_t most, std::vector<Event>* events,
                                    uint64_t* gap) {
  return entry_->Next(deadline, most, events, gap);
}

void Subscriber::Cancel() { entry_->End(); }

void StreamHub::OnStored(const Event& event, bool repeated) {
  absl::MutexLock lock(&mutex_);
  last_seq_ = std::max<uint64_t>(last_seq_, event.seq());
  if (repeated || entries_.empty()) return;
  std::optional<uint32_t> owner;
  bool owner_asked = false, any_gone = false;
  for (const std::weak_ptr<Subscriber::Entry>& weak : entries_) {
    const std::shared_ptr<Subscriber::Entry> entry = weak.lock();
    any_gone |= entry == nullptr;
    if (entry == nullptr || !entry->matcher().Matches(event)) continue;
    if (entry->viewer()) {
      if (!owner_asked && options_.owner_of) owner = options_.owner_of(event.session());
      owner_asked = true;
      if (owner != entry->viewer()) continue;
    }
    entry->Give(event);
  }
  if (!any_gone) return;
  entries_.erase(
      std::remove_if(entries_.begin(), entries_.end(), [](const auto& weak) { return weak.expired(); }),
      entries_.end());
}

absl::StatusOr<std::unique_ptr<Subscriber>> StreamHub::Subscribe(const v1::EventFilter& filter,
                                                                 std::optional<uint32_t> viewer) {
  ASSIGN_OR_RETURN(EventMatcher matcher, EventMatcher::Create(filter));
  auto entry = std::make_shared<Subscriber::Entry>(
      std::move(matcher), viewer, Subscriber::Entry::Limits{options_.max_events, options_.max_bytes});
  absl::MutexLock lock(&mutex_);
  entries_.erase(
      std::remove_if(entries_.begin(), entries_.end(), [](const auto& weak) { return weak.expired(); }),
      entries_.end());
  if (entries_.size() >= options_.max_subscribers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", options_.max_subscribers, " follow already"));
  }
  if (ended_) entry->End();
  entries_.push_back(entry);
  return std::unique_ptr<Subscriber>(new Subscriber(std::move(entry), last_seq_));
}

void StreamHub::End() {
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  for (const std::weak_ptr<Subscriber::Entry>& weak : entries_) {
    if (const std::shared_ptr<Subscriber::Entry> entry = weak.lock()) entry->End();
  }
}

size_t StreamHub::subscribers() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const auto& weak) { return !weak.expired(); }));
}

}  // namespace agentmon
