#include "daemon/policy/gate.h"

#include <algorithm>
#include <functional>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/kernel/proc_fs.h"
#include "common/policy/policy_proto.h"

namespace agentmon {
namespace {

using policy::Posture;

constexpr int kDeepest = 64;
constexpr int64_t kProgramsFresh_ns = 60'000'000'000;
constexpr uint32_t kReads = policy::kOpen | policy::kRead;

bool SpeaksOfDepth(const policy::Snapshot& snapshot) {
  const auto has_depth = [](const policy::Rule& rule) { return rule.min_depth > 0 || rule.max_depth >= 0; };
  return std::any_of(
      snapshot.layers().begin(), snapshot.layers().end(), [&](const policy::CompiledLayer& layer) {
        return std::any_of(layer.document->rules.begin(), layer.document->rules.end(), has_depth);
      });
}

}  // namespace

bool Enforces(const policy::Snapshot& snapshot) {
  return std::any_of(snapshot.layers().begin() + 1, snapshot.layers().end(),
                     [](const policy::CompiledLayer& layer) {
                       return layer.posture == Posture::kEnforce || layer.posture == Posture::kIsolate;
                     });
}

Gate::Gate(std::shared_ptr<const policy::CurrentSnapshot> policy, std::vector<gid_t> groups)
    : policy_(std::move(policy)),
      groups_(std::move(groups)),
      armed_(Enforces(*policy_->Get())),
      trusted_(clock_) {}

bool Gate::enforces() const { return armed_ && Enforces(*policy_->Get()); }

Gate::Answer Gate::Judge(const policy::Snapshot& snapshot, const policy::Subject& subject) {
  const std::function<bool(absl::string_view)> trusted = [this](absl::string_view directory) {
    absl::MutexLock lock(&mutex_);
    return trusted_.Trusts(directory, groups_);
  };
  policy::EvaluateOptions options;
  options.trusted_directory = &trusted;
  const policy::Verdict verdict = policy::Evaluate(snapshot, subject, options);
  Answer answer;
  answer.stop = verdict.Stops();
  answer.by_rule = verdict.rule != nullptr;
  if (verdict.rule == nullptr && verdict.decision == policy::Decision::kAllow) return answer;
  answer.judgement = policy::ToJudgement(snapshot, verdict, subject);
  return answer;
}

Gate::Answer Gate::File(uint32_t operations, absl::string_view path, absl::string_view new_path,
                        bool directory) {
  policy::Subject subject = policy::FileSubject(operations, path, new_path);
  subject.directory = directory;
  if (absl::StartsWith(path, "/dev/")) {
    absl::MutexLock lock(&mutex_);
    subject.own_terminal = terminals_.Owns(path);
  }
  return Judge(*policy_->Get(), subject);
}

std::shared_ptr<const policy::ProtectedPlaces> Gate::Places() {
  std::shared_ptr<const policy::Snapshot> snapshot = policy_->Get();
  absl::MutexLock lock(&mutex_);
  if (places_of_ != snapshot) {
    places_ = std::make_shared<const policy::ProtectedPlaces>(policy::FindProtectedPlaces(*snapshot));
    places_of_ = std::move(snapshot);
  }
  return places_;
}

Gate::Answer Gate::Move(absl::string_view path, absl::string_view new_path) {
  Answer answer = File(policy::kRename, path, new_path, true);
  if (answer.stop) return answer;
  const std::shared_ptr<const policy::ProtectedPlaces> places = Places();
  for (const std::string& tail : places->tails) {
    for (const uint32_t operations : {kReads, uint32_t{policy::kWrite}}) {
      Answer before = File(operations, absl::StrCat(path, "/", tail));
      Answer after = File(operations, absl::StrCat(new_path, "/", tail));
      if (before.stop != after.stop) return before.stop ? before : after;
    }
  }
  return answer;
}

Gate::Answer Gate::OtherNames(uint32_t operations, absl::string_view path, const struct stat& st) {
  if (st.st_nlink < 2 || !S_ISREG(st.st_mode)) return Answer();
  const std::shared_ptr<const policy::ProtectedPlaces> places = Places();
  uint32_t stopped = 0;
  {
    absl::MutexLock lock(&inodes_mutex_);
    if (inodes_of_ != places) inodes_.Forget();
    inodes_of_ = places;
    const auto stops = [this](const std::string& name) {
      return (Stops(kReads, name) ? ProtectedInodes::kRead : 0u) |
             (Stops(policy::kWrite, name) ? ProtectedInodes::kWrite : 0u);
    };
    stopped = inodes_.StoppedOn(st, places->roots, stops, clock_.BootNs());
  }
  const uint32_t asked = ((operations & policy::kReadOps) != 0 ? ProtectedInodes::kRead : 0u) |
                         ((operations & policy::kWriteOps) != 0 ? ProtectedInodes::kWrite : 0u);
  Answer answer;
  if ((stopped & asked) == 0) return answer;
  answer.stop = true;
  answer.by_rule = true;
  answer.judgement = policy::BuiltinDenial(
      "another name of a protected file",
      absl::StrCat(absl::CHexEscape(path),
                   " is a hard link to a file that a rule protects under another name"));
  return answer;
}

Gate::Answer Gate::Exec(absl::string_view exe, absl::string_view asked,
                        absl::Span<const absl::string_view> argv, pid_t tgid) {
  const std::shared_ptr<const policy::Snapshot> snapshot = policy_->Get();
  policy::Subject subject = policy::ExecSubject(exe, argv);
  subject.file = asked;
  if (SpeaksOfDepth(*snapshot)) subject.depth = DepthOf(tgid);
  return Judge(*snapshot, subject);
}

Gate::Answer Gate::Copy(absl::string_view exe, absl::string_view original,
                        absl::Span<const absl::string_view> argv, pid_t tgid) {
  Answer answer = Exec(original, original, argv, tgid);
  if (!answer.by_rule) return Answer();
  if (answer.stop && answer.judgement.message().empty()) {
    answer.judgement.set_message(absl::StrCat(absl::CHexEscape(exe), " is a copy of ", original));
  }
  return answer;
}

Gate::Answer Gate::Interpreter(absl::string_view exe) {
  Answer answer = Judge(*policy_->Get(), policy::ExecSubject(exe, {}));
  return answer.by_rule ? answer : Answer();
}

Gate::Answer Gate::Unix(uint32_t operation, absl::string_view path) {
  return Judge(*policy_->Get(), policy::UnixSubject(operation, path));
}

bool Gate::IsProxy(const policy::Address& address, uint16_t port, uint8_t protocol) const {
  constexpr uint8_t kLoopback[] = {127, 0, 0, 1};
  return port != 0 && port == proxy_port_ && protocol == policy::kTcp &&
         policy::Reached(address) == policy::FromBytes4(kLoopback);
}

Gate::Answer Gate::Network(policy::NetworkOp operation, const policy::Address& address, uint16_t port,
                           uint8_t protocol) {
  if (IsProxy(address, port, protocol)) return Answer();
  policy::Subject subject = policy::ConnectSubject(address, port, protocol);
  subject.network_op = operation;
  return Judge(*policy_->Get(), subject);
}

std::shared_ptr<const ProgramCopies> Gate::Programs() {
  std::shared_ptr<const policy::Snapshot> snapshot = policy_->Get();
  absl::MutexLock lock(&mutex_);
  const int64_t now = clock_.BootNs();
  // A program may be replaced by another version.
  if (copies_of_ != snapshot || now >= copies_until_ns_) {
    copies_ = std::make_shared<const ProgramCopies>(*snapshot);
    copies_of_ = std::move(snapshot);
    copies_until_ns_ = now + kProgramsFresh_ns;
  }
  return copies_;
}

std::string Gate::ProgramOf(int fd, const struct stat& st) { return Programs()->OriginalOf(fd, st); }

void Gate::SetFirstProcess(pid_t pid) {
  absl::MutexLock lock(&mutex_);
  first_process_ = pid;
  terminals_.AddOf(pid);
}

void Gate::AddTerminalMaker(pid_t tgid) {
  absl::MutexLock lock(&mutex_);
  terminals_.AddMaker(tgid);
}

// 0: started by the first process. One whose parents have ended counts as deep.
int Gate::DepthOf(pid_t tgid) const {
  pid_t first;
  {
    absl::MutexLock lock(&mutex_);
    first = first_process_;
  }
  const ProcFs proc;
  for (int depth = 0; depth < kDeepest && tgid > 1; ++depth) {
    if (tgid == first) return std::max(depth - 1, 0);
    const auto stat = proc.Stat(tgid);
    if (!stat.ok()) break;
    tgid = stat->parent;
  }
  return kDeepest;
}

}  // namespace agentmon
