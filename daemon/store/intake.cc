#include "daemon/store/intake.h"

#include <algorithm>
#include <utility>

#include "daemon/store/row.h"

namespace agentmon {

void Intake::PushEvent(const Event& event) {
  const size_t size = event.ByteSizeLong();
  const bool kept = IsKept(event.kind(), event.judgement().decision());
  const size_t share = kept ? 10 : 9;
  absl::MutexLock lock(&mutex_);
  if (closed_ || waiting_events_ >= limits_.events / 10 * share ||
      waiting_bytes_ + size > limits_.bytes / 10 * share) {
    AddLost(event.session(), event.source(), 1);
    return;
  }
  Chunk& chunk = RoomFor(size);
  const size_t at = chunk.bytes.size();
  chunk.bytes.resize(at + size);
  event.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(chunk.bytes.data() + at));
  chunk.items.push_back({ItemType::kEvent, static_cast<uint32_t>(size)});
  ++chunk.events;
  ++queued_events_;
  ++waiting_events_;
  waiting_bytes_ += size;
  ++accepted_;
}

void Intake::PushSession(const v1::Session& session) {
  const std::string bytes = session.SerializeAsString();
  absl::MutexLock lock(&mutex_);
  if (closed_) return;
  Chunk& chunk = RoomFor(bytes.size());
  chunk.bytes += bytes;
  chunk.items.push_back({ItemType::kSession, static_cast<uint32_t>(bytes.size())});
  waiting_bytes_ += bytes.size();
  ++accepted_;
}

Intake::Chunk& Intake::RoomFor(size_t size) {
  if (chunks_.empty() || chunks_.back().items.size() >= kChunkItems ||
      chunks_.back().bytes.size() + size > kChunkBytes) {
    if (spares_.empty()) {
      chunks_.emplace_back();
      chunks_.back().bytes.reserve(kChunkBytes);
      chunks_.back().items.reserve(kChunkItems);
    } else {
      chunks_.push_back(std::move(spares_.back()));
      spares_.pop_back();
    }
  }
  return chunks_.back();
}

void Intake::AwaitFirst(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || !chunks_.empty(); };
  mutex_.AwaitWithTimeout(absl::Condition(&ready), timeout);
}

void Intake::Gather(absl::Duration window) {
  absl::MutexLock lock(&mutex_);
  const auto enough = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_ || queued_events_ >= kGatheredEvents || flush_to_ > done_;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&enough), window);
}

void Intake::Take(size_t events, std::deque<Chunk>* out) {
  absl::MutexLock lock(&mutex_);
  size_t taken = 0;
  while (!chunks_.empty() && (taken == 0 || taken + chunks_.front().events <= events)) {
    taken += chunks_.front().events;
    queued_events_ -= chunks_.front().events;
    out->push_back(std::move(chunks_.front()));
    chunks_.pop_front();
    if (taken >= events) break;
  }
}

void Intake::Forget(Chunk chunk) {
  waiting_events_ -= chunk.events;
  waiting_bytes_ -= chunk.bytes.size();
  done_ += chunk.items.size();
  if (spares_.size() >= kMostSpares || chunk.bytes.capacity() > 2 * kChunkBytes) return;
  chunk.bytes.clear();
  chunk.items.clear();
  chunk.events = 0;
  chunk.published = false;
  spares_.push_back(std::move(chunk));
}

void Intake::ReleaseSpares() {
  std::vector<Chunk> unused;
  absl::MutexLock lock(&mutex_);
  unused.swap(spares_);
}

void Intake::Done(Chunk chunk) {
  absl::MutexLock lock(&mutex_);
  Forget(std::move(chunk));
}

void Intake::GiveUp(Chunk chunk) {
  absl::MutexLock lock(&mutex_);
  Event event;
  size_t at = 0;
  for (const Item& item : chunk.items) {
    if (item.type == ItemType::kEvent) {
      const bool parsed = event.ParseFromArray(chunk.bytes.data() + at, static_cast<int>(item.size));
      AddLost(parsed ? event.session() : "", parsed ? event.source() : v1::DAEMON, 1);
    }
    at += item.size;
  }
  Forget(std::move(chunk));
}

void Intake::AddLost(const std::string& session, v1::Source source, uint64_t lost) {
  lost_ += lost;
  const auto found = losses_.find({session, source});
  if (found != losses_.end()) {
    found->second += lost;
  } else {
    losses_[{losses_.size() < kMaxLossKeys ? session : "", source}] += lost;
  }
}

void Intake::CountLost(const std::string& session, v1::Source source, uint64_t lost) {
  absl::MutexLock lock(&mutex_);
  AddLost(session, source, lost);
}

Intake::Losses Intake::TakeLosses() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(losses_, Losses());
}

void Intake::PutBack(const Losses& losses) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, count] : losses) {
    lost_ -= count;
    AddLost(key.first, key.second, count);
  }
}

bool Intake::Flush(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const uint64_t target = accepted_;
  if (done_ >= target) return true;
  flush_to_ = std::max(flush_to_, target);
  const auto done = [this, target]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return done_ >= target; };
  return mutex_.AwaitWithTimeout(absl::Condition(&done), timeout);
}

void Intake::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

bool Intake::closed() const {
  absl::MutexLock lock(&mutex_);
  return closed_;
}

bool Intake::has_losses() const {
  absl::MutexLock lock(&mutex_);
  return !losses_.empty();
}

uint64_t Intake::lost() const {
  absl::MutexLock lock(&mutex_);
  return lost_;
}

uint64_t Intake::waiting() const {
  absl::MutexLock lock(&mutex_);
  return waiting_events_;
}

}  // namespace agentmon
