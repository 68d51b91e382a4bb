#include "daemon/policy/policies.h"

#include <errno.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/refusal.h"
#include "common/policy/policy_proto.h"
#include "daemon/policy/enforcement.h"

namespace agentmon {
namespace {

constexpr size_t kLargestKept = 8u << 20;
constexpr size_t kShownProblems = 8;
constexpr size_t kManyPatterns = 1000;
constexpr int kCompilesPerUser = 2;           // at once; the workers are kept free for others
constexpr size_t kWaitingPerUser = 1000;      // beyond those
constexpr size_t kPatternsPerUser = 100'000;  // that clients sent, in all running sessions: some 300 MB

absl::Status Busy() {
  return Refusal(absl::StatusCode::kResourceExhausted, "BUSY", "too much is being compiled at once",
                 "try again");
}

absl::Status NoSession(const std::string& session) {
  return Refusal(absl::StatusCode::kNotFound, "NO_SUCH_SESSION",
                 absl::StrCat("no running session ", session));
}

// "floor 10-company.yaml, base default"
std::string NamesOf(const policy::Snapshot& snapshot) {
  std::vector<std::string> names;
  for (const policy::CompiledLayer& layer : snapshot.layers()) {
    if (layer.kind != policy::LayerKind::kBuiltin) names.push_back(layer.name);
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

// What a reload has come to so far. Touched by one thread at a time.
struct Policies::Round {
  PolicyPlaces places;
  std::vector<Done<v1::ReloadPoliciesResponse>> waiters;
  v1::ReloadPoliciesResponse response;
  std::shared_ptr<const PolicyLibrary> library;
  absl::Status archived;
  std::map<std::string, uint64_t> choices;         // by session: the choice that was compiled
  std::map<std::string, PolicyRequest> requests;   // by session
  std::map<std::string, CompiledPolicy> compiled;  // by session
};

Policies::Policies(Deps deps, PolicyPlaces places)
    : deps_(std::move(deps)), places_(std::move(places)), judge_(deps_.clock, deps_.tree) {}

Policies::~Policies() { *alive_ = false; }

void Policies::LoadAtStart() {
  auto library = ReadPolicyLibrary(places_, HadFloor(ArchivePath()));
  if (library->ok()) {
    library_ = std::move(library);
    OnArchived(SaveArchive(*library_, ArchivePath()));
    return;
  }
  problems_ = library->Problems();
  library_ = FallbackLibrary(*library, ArchivePath(), &fallback_);
  for (const policy::Diagnostic& d : problems_) LogError(policy::FormatDiagnostic(d));
  LogError("policy files are broken: ", fallback_);
}

absl::Status Policies::SaveArchive(const PolicyLibrary& library, const std::string& path) {
  v1::PolicyArchive archive;
  ToArchive(library, archive);
  const absl::Status saved = ReplaceFile(path, archive.SerializeAsString(), 0600, Outlives::kMachine);
  if (!saved.ok()) {
    ::unlink(path.c_str());
    ::unlink((path + ".new").c_str());
  }
  return saved;
}

void Policies::OnArchived(const absl::Status& saved) {
  archive_stale_ = !saved.ok();
  if (archive_stale_) {
    LogWarning("the policies are not kept for a start with broken files: ", saved.message());
  }
}

void Policies::Reload(Done<v1::ReloadPoliciesResponse> done) {
  if (done != nullptr) waiting_.push_back(std::move(done));
  // What is being read now may have been read before the change that this call is about.
  if (round_ != nullptr)
    again_ = true;
  else
    StartRound();
}

void Policies::StartRound() {
  again_ = false;
  round_ = std::make_shared<Round>();
  round_->places = places_;
  round_->waiters.swap(waiting_);
  const bool had_floor = !library_->floor.empty() && !library_->stands_in;
  const bool posted =
      deps_.workers.TryPost([this, alive = alive_, round = round_, had_floor, archive = ArchivePath()] {
        round->library = ReadPolicyLibrary(round->places, had_floor || HadFloor(archive));
        deps_.core.Post([this, alive, round] {
          if (*alive) FinishReading(round);
        });
      });
  if (!posted) PutOff(round_);
}

void Policies::FinishReading(const std::shared_ptr<Round>& round) {
  policy::Diagnostics all;
  const auto add = [&](const PolicyFile& file) {
    all.insert(all.end(), file.diagnostics.begin(), file.diagnostics.end());
  };
  for (const PolicyFile& file : round->library->floor) add(file);
  for (const auto& [name, file] : round->library->named) add(file);
  if (!round->library->ok()) {
    all = round->library->Problems();
    Reject(*round->library);
    policy::ToProto(all, *round->response.mutable_diagnostics());
    return EndRound(round);
  }
  policy::ToProto(all, *round->response.mutable_diagnostics());
  round->response.set_ok(true);
  if (SamePolicies(*library_, *round->library)) {
    problems_.clear();
    fallback_.clear();
    round->response.set_sessions(static_cast<uint32_t>(sessions_.size()));
    if (archive_stale_) OnArchived(SaveArchive(*library_, ArchivePath()));
    return EndRound(round);
  }
  for (const auto& [session, entry] : sessions_) {
    round->requests[session] = entry.request;
    round->choices[session] = entry.choices;
  }
  const bool posted =
      deps_.workers.TryPost([this, alive = alive_, round, own = deps_.own, archive = ArchivePath()] {
        std::map<std::string, CompiledPolicy> seen;  // many sessions ask for the same
        for (const auto& [session, request] : round->requests) {
          const std::string key = absl::StrCat(request.owner.uid, "\n", request.workspace, "\n",
                                               request.choice.SerializeAsString());
          auto found = seen.find(key);
          if (found == seen.end()) {
            found = seen.emplace(key, CompileSessionPolicy(*round->library, request, own)).first;
          }
          round->compiled[session] = found->second;
        }
        round->archived = SaveArchive(*round->library, archive);
        deps_.core.Post([this, alive, round] {
          if (*alive) FinishCompiling(round);
        });
      });
  if (!posted) PutOff(round);
}

void Policies::FinishCompiling(const std::shared_ptr<Round>& round) {
  library_ = round->library;
  ++library_generation_;
  problems_.clear();
  fallback_.clear();
  uint32_t followed = 0;
  for (auto& [session, compiled] : round->compiled) {
    const auto it = sessions_.find(session);
    // One that was given another policy meanwhile is compiled again, below.
    if (it == sessions_.end() || it->second.choices != round->choices[session]) continue;
    followed += compiled.snapshot != nullptr;
    Switch(session, it->second, std::move(compiled), "the policy files changed");
  }
  // Those that began while this was being compiled.
  std::vector<std::string> late;
  for (const auto& [session, entry] : sessions_) {
    if (entry.library_generation != library_generation_) late.push_back(session);
  }
  for (const std::string& session : late) CatchUp(session);
  OnArchived(round->archived);
  LogInfo("policies reloaded: ", followed, " of ", sessions_.size(), " sessions follow");
  round->response.set_changed(true);
  round->response.set_sessions(followed);
  EndRound(round);
}

void Policies::EndRound(const std::shared_ptr<Round>& round) {
  round_.reset();
  for (const auto& done : round->waiters) done(round->response);
  if (again_) StartRound();
}

// What changed must not be forgotten because nobody had time for it.
void Policies::PutOff(const std::shared_ptr<Round>& round) {
  round_.reset();
  LogWarning("too busy to reload the policies; tried again in a second");
  for (const auto& done : round->waiters) done(Busy());
  deps_.core.PostAfter(absl::Seconds(1), [this, alive = alive_] {
    if (*alive) Reload(nullptr);
  });
}

void Policies::Reject(const PolicyLibrary& broken) {
  problems_ = broken.Problems();
  for (const policy::Diagnostic& d : problems_) LogError(policy::FormatDiagnostic(d));
  LogError("policies were not reloaded, those before are still in force");
  if (notice_ == nullptr || problems_.empty()) return;
  const std::string detail = policy::FormatDiagnostic(problems_.front());
  for (const auto& [session, entry] : sessions_) notice_(session, v1::SessionChange::POLICY_REJECTED, detail);
}

// A session that was compiled against a library that has been replaced meanwhile.
void Policies::CatchUp(const std::string& session) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  const bool posted = deps_.workers.TryPost([this, alive = alive_, session, request = it->second.request,
                                             library = library_, own = deps_.own,
                                             generation = library_generation_, choices = it->second.choices] {
    auto compiled = std::make_shared<CompiledPolicy>(CompileSessionPolicy(*library, request, own));
    deps_.core.Post([this, alive, session, compiled, generation, choices] {
      if (!*alive || generation != library_generation_) return;
      const auto entry = sessions_.find(session);
      if (entry == sessions_.end() || entry->second.choices != choices) return;
      Switch(session, entry->second, std::move(*compiled), "the policy files changed");
    });
  });
  if (!posted) {
    it->second.problem =
        "the daemon was too busy to compile the new policy; 'agentmon policy reload' tries again";
    LogWarning("session ", session, ": ", it->second.problem);
  }
}

void Policies::Switch(const std::string& session, SessionEntry& entry, CompiledPolicy compiled,
                      absl::string_view why) {
  entry.library_generation = library_generation_;
  if (compiled.snapshot == nullptr) {
    entry.problem = std::string(PolicyRefusal(compiled.diagnostics).message());
    if (notice_ != nullptr) notice_(session, v1::SessionChange::POLICY_REJECTED, entry.problem);
    return;
  }
  const std::vector<std::string> late = NeedsNewSession(*entry.current->Get(), *compiled.snapshot);
  std::string detail = absl::StrCat(why, ": ", NamesOf(*compiled.snapshot));
  if (!late.empty()) absl::StrAppend(&detail, "; needs a new session: ", absl::StrJoin(late, ", "));
  entry.problem.clear();
  entry.layers = std::move(compiled.layers);
  entry.current->Switch(std::move(compiled.snapshot));
  // The heap of a large policy goes back to the kernel.
  if (std::max(entry.sent_patterns, compiled.sent_patterns) > kManyPatterns) {
    const bool posted [[maybe_unused]] = deps_.workers.TryPost([] { ::malloc_trim(0); });
  }
  entry.sent_patterns = compiled.sent_patterns;
  ++entry.generation;
  if (notice_ != nullptr) notice_(session, v1::SessionChange::POLICY_CHANGED, detail);
}

// What root wants is not known, so nothing is what root wants.
absl::Status Policies::NoPolicies() const {
  const std::string first = problems_.empty() ? "" : policy::FormatDiagnostic(problems_.front());
  return Refusal(absl::StatusCode::kFailedPrecondition, "NO_POLICIES",
                 absl::StrCat("no session begins while the daemon's policy files are broken: ", first),
                 "have the file mended, then 'agentmon policy reload'");
}

void Policies::Prepare(uid_t uid, std::string workspace, v1::PolicyChoice choice, Done<PreparedPtr> done) {
  Compile(uid, std::move(workspace), std::move(choice), [done](absl::StatusOr<PreparedPtr> prepared) {
    if (prepared.ok() && (*prepared)->compiled.snapshot == nullptr) {
      return done(PolicyRefusal((*prepared)->compiled.diagnostics));
    }
    done(std::move(prepared));
  });
}

void Policies::Compile(uid_t uid, std::string workspace, v1::PolicyChoice choice, Done<PreparedPtr> done) {
  if (library_->stands_in) return done(NoPolicies());
  auto prepared = std::make_shared<Prepared>();
  prepared->request.choice = std::move(choice);
  prepared->request.workspace = std::move(workspace);
  prepared->library_generation = library_generation_;
  const bool posted = PostFor(
      uid,
      [prepared, uid, library = library_, own = deps_.own] {
        prepared->request.owner = LookUpOwner(uid);
        prepared->compiled = CompileSessionPolicy(*library, prepared->request, own);
      },
      [this, prepared, done] {
        const uid_t user = prepared->request.owner.uid;
        size_t patterns = prepared->compiled.sent_patterns;
        for (const auto& [session, entry] : sessions_) {
          if (entry.request.owner.uid == user) patterns += entry.sent_patterns;
        }
        if (prepared->compiled.sent_patterns > 0 && patterns > kPatternsPerUser) {
          return done(Refusal(absl::StatusCode::kResourceExhausted, "TOO_MANY_PATTERNS",
                              absl::StrCat("the policies of this user's sessions have more than ",
                                           kPatternsPerUser, " patterns"),
                              "end some sessions, or have the policy installed by root"));
        }
        done(prepared);
      });
  if (!posted) done(Busy());
}

bool Policies::PostFor(uid_t uid, Task work, Task after) {
  Turn& turn = turns_[uid];
  if (turn.waiting.size() >= kWaitingPerUser) return false;
  turn.waiting.push_back([this, alive = alive_, uid, work = std::move(work), after = std::move(after)] {
    work();
    deps_.core.Post([this, alive, uid, after] {
      if (!*alive) return;
      --turns_[uid].running;
      RunNext(uid);
      after();
    });
  });
  RunNext(uid);
  return true;
}

void Policies::RunNext(uid_t uid) {
  const auto it = turns_.find(uid);
  Turn& turn = it->second;
  while (turn.running < kCompilesPerUser && !turn.waiting.empty()) {
    // Workers that are full have work of others; its end does not wake this one, so it is tried again.
    if (!deps_.workers.TryPost(turn.waiting.front())) {
      deps_.core.PostAfter(absl::Milliseconds(50), [this, alive = alive_, uid] {
        if (*alive && turns_.count(uid) != 0) RunNext(uid);
      });
      return;
    }
    turn.waiting.pop_front();
    ++turn.running;
  }
  if (turn.running == 0 && turn.waiting.empty()) turns_.erase(it);
}

void Policies::Begin(const v1::Session& session, const PreparedPtr& prepared) {
  SessionEntry& entry = sessions_[session.id()];
  entry.request = std::move(prepared->request);
  entry.current = std::make_shared<policy::CurrentSnapshot>(std::move(prepared->compiled.snapshot));
  entry.gate = std::make_shared<Gate>(entry.current, entry.request.owner.groups);
  entry.layers = std::move(prepared->compiled.layers);
  entry.sent_patterns = prepared->compiled.sent_patterns;
  entry.library_generation = prepared->library_generation;
  entry.judged.groups = entry.request.owner.groups;
  entry.kept = session.origin() != v1::Session::WATCH;
  Keep(session.id(), entry);
  if (entry.library_generation != library_generation_) CatchUp(session.id());
}

void Policies::SetControls(const std::string& session, std::set<std::string> controls) {
  const auto it = sessions_.find(session);
  if (it != sessions_.end()) it->second.controls = std::move(controls);
}

void Policies::SetFirstProcess(const std::string& session, pid_t pid) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  it->second.judged.first_process = pid;
  it->second.judged.terminals.AddOf(pid);
  it->second.gate->SetFirstProcess(pid);
}

void Policies::Recover(const v1::Session& session) {
  SessionEntry& entry = sessions_[session.id()];
  entry.request.workspace = session.workspace();
  entry.request.owner = LookUpOwner(session.uid());
  entry.judged.groups = entry.request.owner.groups;
  entry.library_generation = library_generation_;
  entry.kept = true;
  std::string lost;
  const auto bytes = ReadRootFile(KeptPath(session.id()), kLargestKept);
  if (!bytes.ok() || !entry.request.choice.ParseFromString(*bytes)) {
    lost = "what it was started with is not known any more";
  }
  CompiledPolicy compiled;
  if (lost.empty()) {
    compiled = CompileSessionPolicy(*library_, entry.request, deps_.own);
    if (compiled.snapshot == nullptr) lost = std::string(PolicyRefusal(compiled.diagnostics).message());
  }
  if (!lost.empty()) {
    entry.problem = absl::StrCat("only reads are allowed: ", lost);
    LogError("policy of session ", session.id(), ": ", entry.problem);
    compiled.snapshot = ClosedSnapshot(*library_, entry.request, deps_.own);
  }
  entry.layers = std::move(compiled.layers);
  entry.sent_patterns = compiled.sent_patterns;
  entry.current = std::make_shared<policy::CurrentSnapshot>(std::move(compiled.snapshot));
  entry.gate = std::make_shared<Gate>(entry.current, entry.request.owner.groups);
  if (session.has_first_process()) SetFirstProcess(session.id(), session.first_process().pid());
}

void Policies::End(const std::string& session) {
  const auto it = sessions_.find(session);
  // One of an earlier daemon that ended meanwhile is not known here, and has left its choice.
  if (it == sessions_.end() || it->second.kept) ::unlink(KeptPath(session).c_str());
  if (it != sessions_.end()) sessions_.erase(it);
}

void Policies::SetPolicy(const std::string& session, v1::PolicyChoice choice, Done<bool> done) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return done(NoSession(session));
  Prepare(it->second.request.owner.uid, it->second.request.workspace, std::move(choice),
          [this, session, done](absl::StatusOr<PreparedPtr> prepared) {
            if (!prepared.ok()) return done(prepared.status());
            const auto entry = sessions_.find(session);
            if (entry == sessions_.end()) return done(NoSession(session));
            const auto late = NeedsNewSession(*entry->second.current->Get(), *(*prepared)->compiled.snapshot);
            if (!late.empty()) {
              return done(Refusal(
                  absl::StatusCode::kFailedPrecondition, "NEEDS_NEW_SESSION",
                  absl::StrCat("needs a new session, nothing was switched: ", absl::StrJoin(late, "; "))));
            }
            const absl::Status may =
                may_take_ == nullptr ? absl::OkStatus() : may_take_(*(*prepared)->compiled.snapshot);
            if (!may.ok()) return done(may);
            entry->second.request = std::move((*prepared)->request);
            ++entry->second.choices;
            Keep(session, entry->second);
            Switch(session, entry->second, std::move((*prepared)->compiled), "it was given another one");
            if ((*prepared)->library_generation != library_generation_) CatchUp(session);
            done(true);
          });
}

void Policies::Judge(Event* event) {
  if (event->has_judgement()) return;  // by who has stopped it
  const auto it = sessions_.find(event->session());
  if (it != sessions_.end()) judge_.Apply(*it->second.current->Get(), it->second.judged, event);
}

void Policies::JudgeLetGo(const policy::Snapshot* snapshot, Event* event) {
  const auto it = sessions_.find(event->session());
  if (it == sessions_.end()) return;
  const auto current = it->second.current->Get();
  judge_.Apply(snapshot == nullptr ? *current : *snapshot, it->second.judged, event, true);
}

v1::PolicyState Policies::Describe(const std::string& session, bool rules,
                                   const std::set<v1::Source>& sources) const {
  v1::PolicyState state;
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return state;
  const auto snapshot = it->second.current->Get();
  for (const policy::CompiledLayer& layer : snapshot->layers()) {
    v1::PolicyState::Layer* out = state.add_layers();
    out->set_kind(policy::ToProto(layer.kind));
    out->set_name(layer.name);
    out->set_file(layer.document->file);
    out->set_posture(policy::ToProto(layer.posture));
    out->set_rules(static_cast<uint32_t>(layer.document->rules.size()));
  }
  state.set_generation(it->second.generation);
  state.set_problem(it->second.problem);
  if (state.problem().empty() && it->second.request.owner.home.empty()) {
    state.set_problem(absl::StrCat("the user database knows no home of user ", it->second.request.owner.uid,
                                   ": rules on ~ match nothing, and the user's own policies are not read"));
  }
  state.set_not_enforced(it->second.not_enforced);
  if (!rules) return state;
  for (v1::RuleEnforcement& rule : Enforcement(*snapshot, sources, session))
    *state.add_rules() = std::move(rule);
  return state;
}

std::vector<v1::RuleEnforcement> Policies::Enforcement(const policy::Snapshot& snapshot,
                                                       const std::set<v1::Source>& sources,
                                                       const std::string& session) const {
  const auto it = sessions_.find(session);
  SessionMeans means{sources, Enforces(snapshot), {"file_read"}, {}};  // of a session that is still to be
  // Processes that are attached have no shim that proves it.
  if (judges_connects_ && sources.count(v1::NOTIFY) != 0) means.controls.insert("network");
  if (judges_network_calls_ && sources.count(v1::NOTIFY) != 0) means.controls.insert("network_calls");
  if (judges_unix_ && sources.count(v1::NOTIFY) != 0 && sources.count(v1::FANOTIFY) != 0)
    means.controls.insert("unix");
  if (it != sessions_.end()) means = {sources, it->second.gate->armed(), it->second.controls, {}};
  if (unmarked_of_ != nullptr && !session.empty()) means.unmarked = unmarked_of_(session);
  // What names stand for is told to the programs that were proven.
  if (judges_names_ && means.controls.count("network") != 0) means.controls.insert("names");
  return ListEnforcement(snapshot, means,
                         limits_of_ == nullptr ? MissingLimits() : limits_of_(session, snapshot.limits()));
}

std::string Policies::FindGap(const std::string& session, const std::set<v1::Source>& sources) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return "";
  const Gap gap = GapOf(Enforcement(*it->second.current->Get(), sources, session));
  it->second.not_enforced = gap.observed + gap.none;
  if (it->second.not_enforced == 0) return "";
  return absl::StrCat(gap.observed, gap.observed == 1 ? " rule is" : " rules are",
                      " recorded and not enforced, ", gap.none, gap.none == 1 ? " is" : " are",
                      " not even seen");
}

std::string Policies::FindUnenforceable(const std::string& session,
                                        const std::set<v1::Source>& sources) const {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return "";
  const auto snapshot = it->second.current->Get();
  return agentmon::FindUnenforceable(*snapshot, Enforcement(*snapshot, sources, session));
}

std::shared_ptr<Gate> Policies::GateOf(const std::string& session) const {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? nullptr : it->second.gate;
}

std::shared_ptr<const policy::Snapshot> Policies::SnapshotOf(const std::string& session) const {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? nullptr : it->second.current->Get();
}

absl::StatusOr<v1::GetPolicyResponse> Policies::Layers(const std::string& session) const {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return NoSession(session);
  v1::GetPolicyResponse response;
  for (const policy::LayerInput& layer : it->second.layers) {
    v1::PolicyLayer* out = response.add_layers();
    out->set_kind(policy::ToProto(layer.kind));
    policy::ToProto(*layer.document, *out->mutable_document());
  }
  return response;
}

PolicyRequest Policies::RequestOf(const std::string& session) const {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? PolicyRequest() : it->second.request;
}

std::vector<std::string> Policies::Problems() const {
  std::vector<std::string> lines;
  for (const policy::Diagnostic& d : problems_) {
    if (lines.size() == kShownProblems) {
      lines.push_back(absl::StrCat("and ", problems_.size() - kShownProblems, " more"));
      break;
    }
    lines.push_back(policy::FormatDiagnostic(d));
  }
  if (lines.empty()) {
    if (archive_stale_) {
      lines.push_back(
          "the policies in force could not be kept for a start with broken files; 'agentmon policy reload' "
          "tries again");
    }
    return lines;
  }
  lines.insert(lines.begin(), fallback_.empty() ? "policy files are broken; those before are still in force"
                                                : absl::StrCat("policy files are broken; ", fallback_));
  return lines;
}

std::string Policies::KeptPath(const std::string& session) const {
  return absl::StrCat(deps_.own.runtime_dir, "/policies/", session);
}

void Policies::Keep(const std::string& session, SessionEntry& entry) {
  if (!entry.kept) return;
  const std::string directory = deps_.own.runtime_dir + "/policies";
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return LogWarning("make ", directory, " failed");
  const absl::Status kept =
      ReplaceFile(KeptPath(session), entry.request.choice.SerializeAsString(), 0600, Outlives::kProcess);
  if (!kept.ok())
    LogWarning("the policy of session ", session, " will not outlive the daemon: ", kept.message());
}

}  // namespace agentmon
