#include "daemon/store/writer.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "daemon/store/schema.h"

namespace agentmon {
namespace {

constexpr size_t kBatchEvents = 8192;
constexpr absl::Duration kFirstRetry = absl::Milliseconds(100);
constexpr absl::Duration kLongestRetry = absl::Seconds(2);
constexpr absl::Duration kAgeCheck = absl::Hours(1);
// With nothing to write, but trouble or a log that could not be cut; more often would be felt on a battery.
constexpr absl::Duration kIdleRetry = absl::Seconds(10);
// In trouble new events are looked at this often, to give them to the subscribers.
constexpr absl::Duration kTroublePause = absl::Milliseconds(20);

// How long the log may become before it is folded in: fewer times cost less, but the limit covers the log
// too.
uint64_t LogPages(uint64_t max_bytes) {
  return std::clamp<uint64_t>(max_bytes / 16 / kPageBytes, 100, 10'000);
}

}  // namespace

Writer::Writer(const StateDir& dir, const Clock& clock, Intake& intake, Options options)
    : dir_(dir),
      clock_(clock),
      intake_(intake),
      options_(std::move(options)),
      backoff_(kFirstRetry),
      limits_(options_.retention) {}

Writer::~Writer() { Stop(absl::Seconds(2)); }

absl::Status Writer::Start() {
  const absl::Status status = EnsureOpen();
  if (absl::IsFailedPrecondition(status)) return status;
  if (status.ok()) {
    UpdateState();
  } else {
    OnFailure(status, false);
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void Writer::Stop(absl::Duration patience) {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    stop_by_ = absl::Now() + patience;
  }
  intake_.Close();
  thread_.join();
}

Writer::State Writer::state() const {
  absl::MutexLock lock(&mutex_);
  return state_;
}

void Writer::SetRetention(uint64_t max_bytes, absl::Duration max_age) {
  absl::MutexLock lock(&mutex_);
  limits_.max_bytes = max_bytes;
  limits_.max_age = max_age;
}

RetentionLimits Writer::limits() const {
  absl::MutexLock lock(&mutex_);
  return limits_;
}

absl::Duration Writer::SleepTime() const {
  const bool has_work = !pending_.empty() || intake_.has_losses();
  if (has_work)
    return InTrouble() ? std::max(retry_at_ - absl::Now(), absl::ZeroDuration()) : absl::ZeroDuration();
  if (InTrouble() || log_stays_) return kIdleRetry;
  return idle_done_ ? kAgeCheck : options_.idle_after;
}

void Writer::Run() {
  while (true) {
    intake_.AwaitFirst(SleepTime());
    if (InTrouble()) {
      absl::SleepFor(kTroublePause);
    } else {
      intake_.Gather(options_.gather);
    }
    const bool closed = intake_.closed();
    intake_.Take(InTrouble() ? SIZE_MAX : kBatchEvents, &pending_);
    if (!pending_.empty() || intake_.has_losses()) {
      Work();
    } else {
      Idle();
    }
    absl::MutexLock lock(&mutex_);
    const bool out_of_patience = InTrouble() && absl::Now() > stop_by_;
    if (closed && (pending_.empty() || out_of_patience)) break;
  }
  if (!pending_.empty()) LogError("store: ", intake_.waiting(), " events were not written: ", trouble_);
  for (Intake::Chunk& chunk : pending_) intake_.GiveUp(std::move(chunk));
  pending_.clear();
  LogHead(true);
  if (file_ != nullptr && !file_->database().Checkpoint())
    LogWarning("store: the write-ahead log was not folded in");
  retention_.reset();
  file_.reset();
}

void Writer::Work() {
  idle_done_ = log_stays_ = false;
  if (InTrouble() && absl::Now() < retry_at_) {
    PublishWaiting();
    return;
  }
  const absl::Status status = WriteBatch();
  if (!status.ok()) {
    PublishWaiting();
    return;
  }
  retention_->SetLimits(limits());
  const absl::StatusOr<bool> pruned = retention_->AfterBatch();
  if (!pruned.ok()) {
    OnFailure(pruned.status(), true);
  } else if (*pruned) {
    UpdateState();
  }
  LogHead(false);
}

void Writer::Idle() {
  if (InTrouble()) {
    const absl::Status status = EnsureOpen();
    if (!status.ok()) return OnFailure(status, false);
    OnSuccess();
  }
  if (file_ != nullptr) {
    retention_->SetLimits(limits());
    const absl::Status status = retention_->WhenIdle();
    if (!status.ok()) {
      OnFailure(status, true);
    } else {
      UpdateState();
    }
  }
  if (file_ != nullptr) {
    log_stays_ = !file_->database().Checkpoint();  // somebody reads: again later
    file_->sessions().DropStrings();
    file_->database().ReleaseMemory();
  }
  events_ = std::vector<Event>();
  intake_.ReleaseSpares();
  if (options_.on_idle) options_.on_idle();
  ::malloc_trim(0);
  idle_done_ = true;
}

absl::Status Writer::EnsureOpen() {
  if (file_ != nullptr && dir_.DatabaseInode() == inode_) return absl::OkStatus();
  if (file_ != nullptr) LogError("store: ", dir_.database_path(), " was taken away; a new one is made");
  retention_.reset();
  file_.reset();
  ASSIGN_OR_RETURN(OpenedDatabase opened, OpenForWriting(dir_, clock_.Wall()));
  if (!opened.set_aside.empty()) {
    set_aside_ = opened.set_aside;
    tell_set_aside_ = true;
  }
  absl::StatusOr<std::unique_ptr<BatchWriter>> file =
      BatchWriter::Create(std::move(opened.database), last_seq_);
  if (absl::IsDataLoss(file.status())) {
    SetAside(file.status());
    return absl::UnavailableError(set_aside_);
  }
  if (!file.ok()) return file.status();
  file_ = *std::move(file);
  const std::string checkpoint = absl::StrCat("PRAGMA wal_autocheckpoint=", LogPages(limits().max_bytes));
  RETURN_IF_ERROR(file_->database().Exec(checkpoint.c_str()));
  last_seq_ = logged_seq_ = file_->head().last_seq;
  retention_ = std::make_unique<Retention>(*file_, clock_, limits());
  inode_ = dir_.DatabaseInode();
  replay_sessions_ = true;
  if (options_.on_file_changed) options_.on_file_changed();
  return absl::OkStatus();
}

absl::Status Writer::WriteBatch() {
  absl::Status status = EnsureOpen();
  if (status.ok() && dir_.LogBytes() > options_.max_log_bytes && !file_->database().Checkpoint()) {
    status = absl::UnavailableError(absl::StrCat("the write-ahead log has ", dir_.LogBytes() >> 20,
                                                 " MB: another program reads the database for too long"));
  }
  if (status.ok()) status = file_->Begin();
  if (!status.ok()) {
    OnFailure(status, false);
    return status;
  }
  size_t chunks = 0;
  for (size_t events = 0;
       chunks < pending_.size() && (chunks == 0 || events + pending_[chunks].events <= kBatchEvents);
       ++chunks) {
    events += pending_[chunks].events;
  }
  const Intake::Losses losses = intake_.TakeLosses();
  status = PutAll(chunks, losses);
  if (status.ok()) status = file_->Commit();
  if (!status.ok()) {
    intake_.PutBack(losses);
    OnFailure(status, true);
    return status;
  }
  last_seq_ = file_->head().last_seq;
  tell_set_aside_ = false;
  OnSuccess();
  UpdateState();  // before anybody is told that the events are stored
  Published(chunks);
  return absl::OkStatus();
}

absl::Status Writer::PutAll(size_t chunks, const Intake::Losses& losses) {
  used_events_ = 0;
  ended_in_batch_.clear();
  if (replay_sessions_) {
    v1::Session session;
    for (const auto& [id, bytes] : live_sessions_) {
      if (session.ParseFromString(bytes)) RETURN_IF_ERROR(file_->PutSession(session, bytes));
    }
  }
  for (size_t i = 0; i < chunks; ++i) RETURN_IF_ERROR(PutChunk(pending_[i]));
  return PutLosses(losses);
}

Event& Writer::NextEvent() {
  if (used_events_ == events_.size()) events_.emplace_back();
  return events_[used_events_++];
}

absl::Status Writer::PutChunk(const Intake::Chunk& chunk) {
  const char* at = chunk.bytes.data();
  v1::Session session;
  for (const Intake::Item& item : chunk.items) {
    const absl::string_view bytes(at, item.size);
    at += item.size;
    if (item.type == Intake::ItemType::kEvent) {
      Event& event = NextEvent();
      if (!event.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
        return absl::InternalError("event");
      RETURN_IF_ERROR(file_->PutEvent(event));
    } else if (session.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      RETURN_IF_ERROR(file_->PutSession(session, bytes));
      live_sessions_.erase(session.id());
      if (session.ended_ns() == 0) live_sessions_[session.id()] = std::string(bytes);
      if (session.ended_ns() != 0) ended_in_batch_.push_back(session.id());
    }
  }
  return absl::OkStatus();
}

absl::Status Writer::PutLosses(const Intake::Losses& losses) {
  for (const auto& [key, lost] : losses) RETURN_IF_ERROR(PutLoss(key.first, key.second, "store", lost));
  // How many events went with what was set aside nobody knows; that there is a break can be told.
  if (!tell_set_aside_) return absl::OkStatus();
  return PutLoss("", v1::DAEMON, absl::StrCat("store: ", set_aside_), 0);
}

absl::Status Writer::PutLoss(const std::string& session, v1::Source source, const std::string& where,
                             uint64_t lost) {
  Event& event = NextEvent();
  event.Clear();
  event.set_kind(v1::LOSS);
  event.set_session(session);
  event.set_source(v1::DAEMON);
  event.set_wall_ns(absl::ToUnixNanos(clock_.Wall()));
  event.set_boot_ns(clock_.BootNs());
  event.set_count(1);
  event.mutable_loss()->set_source(source);
  event.mutable_loss()->set_where(where);
  event.mutable_loss()->set_lost(lost);
  return file_->PutEvent(event);
}

// After a commit: gives the events, now with their numbers, to the subscribers.
void Writer::Published(size_t chunks) {
  for (const std::string& id : ended_in_batch_) {
    if (options_.on_session_ended) options_.on_session_ended(id);
  }
  size_t next = 0;
  for (size_t i = 0; i < chunks; ++i) {
    Intake::Chunk& chunk = pending_.front();
    for (size_t n = 0; n < chunk.events && options_.on_stored; ++n) {
      options_.on_stored(events_[next++], chunk.published);
    }
    intake_.Done(std::move(chunk));
    pending_.pop_front();
  }
  while (next < used_events_ && options_.on_stored) options_.on_stored(events_[next++], false);
}

// In trouble: gives what waits to the subscribers without numbers, each event once.
void Writer::PublishWaiting() {
  Event event;
  for (Intake::Chunk& chunk : pending_) {
    if (chunk.published || !options_.on_stored) continue;
    const char* at = chunk.bytes.data();
    for (const Intake::Item& item : chunk.items) {
      const bool is_event = item.type == Intake::ItemType::kEvent;
      if (is_event && event.ParseFromArray(at, static_cast<int>(item.size))) options_.on_stored(event, false);
      at += item.size;
    }
    chunk.published = true;
  }
}

void Writer::OnFailure(const absl::Status& status, bool in_transaction) {
  if (file_ != nullptr && in_transaction) file_->Rollback();
  const bool only_busy = !in_transaction && absl::IsUnavailable(status);
  if (!only_busy) {
    retention_.reset();
    file_.reset();
  }
  if (absl::IsDataLoss(status) && in_transaction) SetAside(status);
  // A bug, or rows that somebody put in. Opening anew gets over the latter; what still fails must not
  // hold up all that comes after it.
  internal_errors_ = absl::IsInternal(status) ? internal_errors_ + 1 : 0;
  if (internal_errors_ >= 3 && !pending_.empty()) {
    LogError("store: ", pending_.front().events, " events cannot be stored and are dropped");
    intake_.GiveUp(std::move(pending_.front()));
    pending_.pop_front();
  }
  if (trouble_.empty()) {
    backoff_ = kFirstRetry;
    LogError("store: events wait: ", status.message());
  }
  trouble_ = std::string(status.message());
  retry_at_ = absl::Now() + backoff_;
  backoff_ = std::min(backoff_ * 2, kLongestRetry);
  UpdateState();
}

void Writer::SetAside(const absl::Status& why) {
  const absl::StatusOr<std::string> aside = dir_.SetAside(clock_.Wall());
  set_aside_ = aside.ok()
                   ? absl::StrCat("damaged database (", why.message(), ") set aside as ", *aside)
                   : absl::StrCat("damaged database (", why.message(), "), ", aside.status().message());
  tell_set_aside_ = true;
  LogError("store: ", set_aside_);
}

void Writer::OnSuccess() {
  replay_sessions_ = false;
  internal_errors_ = 0;
  if (!InTrouble()) return;
  trouble_.clear();
  LogInfo("store: events are written again; ", intake_.lost(), " were lost so far");
}

void Writer::UpdateState() {
  State state;
  state.trouble = trouble_;
  state.set_aside = set_aside_;
  state.last_seq = last_seq_;
  if (file_ != nullptr) {
    state.rows = file_->sessions().rows();
    state.oldest_ns = retention_->OldestNs();
  }
  absl::MutexLock lock(&mutex_);
  if (file_ == nullptr) {
    state.rows = state_.rows;
    state.oldest_ns = state_.oldest_ns;
  }
  state_ = std::move(state);
}

void Writer::LogHead(bool now) {
  if (file_ == nullptr) return;
  const BatchWriter::Head& head = file_->head();
  if (head.last_seq == logged_seq_ || (!now && absl::Now() - head_logged_ < absl::Minutes(1))) return;
  head_logged_ = absl::Now();
  logged_seq_ = head.last_seq;
  LogInfo("store: chain head: batch ", head.number, " seq ", head.last_seq, " sha256 ",
          absl::BytesToHexString(head.hash));
}

}  // namespace agentmon
