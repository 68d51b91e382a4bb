#include "daemon/store/event_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "daemon/store/verify.h"

namespace agentmon {
namespace {

constexpr absl::Duration kFreshWithin = absl::Milliseconds(250);
constexpr size_t kMostEndedOwners = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<EventStore>> EventStore::Open(Options options) {
  ASSIGN_OR_RETURN(StateDir dir, StateDir::Open(options.dir));
  std::unique_ptr<EventStore> store(new EventStore(std::move(options), std::move(dir)));
  RETURN_IF_ERROR(store->writer_.Start());
  if (const absl::Status status = store->LoadOwners(); !status.ok()) {
    LogWarning("store: owners of running sessions: ", status.message());
  }
  return store;
}

EventStore::EventStore(Options options, StateDir dir)
    : dir_(std::move(dir)),
      intake_(options.queue),
      readers_(dir_),
      writer_(dir_, *options.clock, intake_, [&] {
        options.writer.on_file_changed = [this] { readers_.OnFileChanged(); };
        options.writer.on_idle = [this] { readers_.Shrink(); };
        options.writer.on_session_ended = [this,
                                           next = options.writer.on_session_ended](const std::string& id) {
          OnSessionWritten(id);
          if (next) next(id);
        };
        return std::move(options.writer);
      }()) {}

EventStore::~EventStore() { Close(absl::Seconds(2)); }

void EventStore::Close(absl::Duration patience) {
  readers_.Shrink();
  writer_.Stop(patience);
}

void EventStore::OnEvent(const Event& event) { intake_.PushEvent(event); }

void EventStore::UpsertSession(const v1::Session& session) {
  {
    absl::MutexLock lock(&mutex_);  // before the writer can have it
    if (session.ended_ns() != 0 && unwritten_.size() < kMostEndedOwners) unwritten_[session.id()] = session;
  }
  intake_.PushSession(session);
  absl::MutexLock lock(&mutex_);
  owners_[session.id()] = session.uid();
  if (session.ended_ns() == 0) return;
  ended_.push_back(session.id());
  if (ended_.size() <= kMostEndedOwners) return;
  owners_.erase(ended_.front());
  ended_.pop_front();
}

absl::Status EventStore::LoadOwners() {
  ASSIGN_OR_RETURN(const std::vector<v1::Session> running, ListSessions(std::nullopt, false, 0));
  absl::MutexLock lock(&mutex_);
  for (const v1::Session& session : running) owners_.try_emplace(session.id(), session.uid());
  return absl::OkStatus();
}

std::optional<uint32_t> EventStore::OwnerOf(absl::string_view session) const {
  absl::MutexLock lock(&mutex_);
  const auto found = owners_.find(session);
  return found == owners_.end() ? std::nullopt : std::optional<uint32_t>(found->second);
}

absl::StatusOr<ReaderPool::Lease> EventStore::Reader() {
  if (writer_.state().trouble.empty()) Flush(kFreshWithin);
  absl::StatusOr<ReaderPool::Lease> reader = readers_.Get();
  if (!reader.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the timeline cannot be read now: ", reader.status().message()));
  }
  return reader;
}

absl::Status EventStore::Noticed(absl::Status status) {
  if (!absl::IsDataLoss(status)) return status;
  LogError("store: ", status.message());
  absl::MutexLock lock(&mutex_);
  damage_ = std::string(status.message());
  return status;
}

absl::Status EventStore::Query(const QueryOptions& options, const QueryCallback& callback) {
  ASSIGN_OR_RETURN(ReaderPool::Lease reader, Reader());
  const absl::Status status = EventQuery(*reader, options).Run(callback);
  // Known, only none of its events is written yet.
  if (absl::IsNotFound(status) && FindUnwritten(options.filter.session(), options.viewer))
    return absl::OkStatus();
  return Noticed(status);
}

void EventStore::OnSessionWritten(const std::string& id) {
  absl::MutexLock lock(&mutex_);
  unwritten_.erase(id);
}

std::vector<v1::Session> EventStore::Unwritten(Viewer viewer) const {
  std::vector<v1::Session> sessions;
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, session] : unwritten_) {
    if (!viewer.has_value() || *viewer == session.uid()) sessions.push_back(session);
  }
  return sessions;
}

std::optional<v1::Session> EventStore::FindUnwritten(absl::string_view key, Viewer viewer) const {
  for (v1::Session& session : Unwritten(viewer)) {
    if (session.id() == key || (!key.empty() && session.name() == key)) return std::move(session);
  }
  return std::nullopt;
}

absl::StatusOr<v1::Session> EventStore::FindSession(absl::string_view key, Viewer viewer) {
  absl::StatusOr<ReaderPool::Lease> opened = Reader();
  if (auto session = FindUnwritten(key, viewer)) return *std::move(session);
  if (!opened.ok()) return opened.status();
  ReaderPool::Lease reader = *std::move(opened);
  absl::StatusOr<FoundSession> found = agentmon::FindSession(*reader, key, viewer);
  if (!found.ok()) return Noticed(found.status());
  return std::move(found->session);
}

absl::StatusOr<std::vector<v1::Session>> EventStore::ListSessions(Viewer viewer, bool ended, uint32_t limit) {
  ASSIGN_OR_RETURN(ReaderPool::Lease reader, Reader());
  absl::StatusOr<std::vector<v1::Session>> sessions = agentmon::ListSessions(*reader, viewer, ended, limit);
  if (!sessions.ok()) return Noticed(sessions.status());
  // What ended meanwhile takes the place of what the database says of it.
  for (v1::Session& session : Unwritten(viewer)) {
    const auto is_this = [&](const v1::Session& known) { return known.id() == session.id(); };
    sessions->erase(std::remove_if(sessions->begin(), sessions->end(), is_this), sessions->end());
    if (ended) sessions->insert(sessions->begin(), std::move(session));
  }
  if (limit != 0 && sessions->size() > limit) sessions->resize(limit);
  return sessions;
}

absl::StatusOr<v1::VerifyResponse> EventStore::Verify(const std::function<bool()>& cancelled) {
  ASSIGN_OR_RETURN(ReaderPool::Lease reader, Reader());
  absl::StatusOr<v1::VerifyResponse> answer = Verifier(*reader).Run(cancelled);
  if (!answer.ok()) return Noticed(answer.status());
  return answer;
}

v1::StoreState EventStore::Status() const {
  const Writer::State state = writer_.state();
  v1::StoreState answer;
  answer.set_events(state.rows);
  answer.set_bytes(dir_.DatabaseBytes());
  answer.set_lost(intake_.lost());
  answer.set_waiting(intake_.waiting());
  answer.set_oldest_ns(state.oldest_ns);
  absl::MutexLock lock(&mutex_);
  if (!state.trouble.empty()) {
    answer.set_state(absl::StrCat("events wait, nothing is written: ", state.trouble));
  } else if (!state.set_aside.empty()) {
    answer.set_state(state.set_aside);
  } else {
    answer.set_state(damage_.empty() ? "ok" : damage_);
  }
  return answer;
}

uint64_t EventStore::last_seq() const { return writer_.state().last_seq; }

bool EventStore::Flush(absl::Duration timeout) { return intake_.Flush(timeout); }

}  // namespace agentmon
