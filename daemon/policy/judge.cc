#include "daemon/policy/judge.h"

#include <fcntl.h>

#include <functional>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/policy/evaluate.h"
#include "common/policy/policy_proto.h"
#include "daemon/policy/resolved_path.h"

namespace agentmon {
namespace {

using policy::RuleKind;
using policy::Subject;

constexpr int kDeepest = 64;

// 0 = no operation that rules speak of.
uint32_t FileOperations(const Event& event) {
  const int flags = static_cast<int>(event.file().open_flags());
  switch (event.kind()) {
    case v1::OPEN:
      return policy::kOpen | policy::kRead;
    case v1::OPEN_WRITE:
      return (flags & O_ACCMODE) != O_RDONLY ? policy::OperationsOfOpen(flags) : policy::kWrite;
    case v1::CREATE:
      return policy::kCreate | policy::kWrite;
    case v1::WRITE:
    case v1::TRUNCATE:
      return policy::kWrite;
    case v1::DELETE:
      return policy::kDelete;
    case v1::RENAME:
      return policy::kRename;
    case v1::LINK:
      return policy::kLink;
    case v1::SYMLINK:
      return policy::kSymlink;
    case v1::CHMOD:
      return policy::kChmod;
    case v1::CHOWN:
      return policy::kChown;
    case v1::MKDIR:
      return policy::kMkdir;
    case v1::RMDIR:
      return policy::kRmdir;
    case v1::MKNOD:
      return policy::kMknod;
    default:
      return 0;
  }
}

uint32_t UnixOperation(v1::EventKind kind) {
  switch (kind) {
    case v1::UNIX_CONNECT:
      return policy::kUnixConnect;
    case v1::UNIX_SEND:
      return policy::kUnixSendto;
    case v1::BIND:
      return policy::kUnixBind;
    case v1::LISTEN:
      return policy::kUnixListen;
    default:
      return 0;
  }
}

// Calls that act on what the last link of their name leads to, where only the name is known.
bool FollowsLastLink(const Event& event) {
  switch (event.kind()) {
    case v1::UNIX_CONNECT:
    case v1::UNIX_SEND:
      return !event.unix().abstract();
    case v1::OPEN_WRITE:
    case v1::TRUNCATE:
    case v1::CHMOD:
    case v1::CHOWN:
      return event.as_asked();
    default:
      return false;
  }
}

std::optional<Subject> OfFile(const Event& event, SessionTerminals& terminals) {
  const uint32_t operations = FileOperations(event);
  if (operations == 0) return std::nullopt;
  const v1::File& file = event.file();
  // The target of a symbolic link is not reached by making it.
  Subject subject = policy::FileSubject(operations, file.path(),
                                        event.kind() == v1::SYMLINK ? absl::string_view() : file.new_path());
  // What a rename moves is gone by now; a directory reaches most.
  subject.directory = event.kind() == v1::RENAME || event.kind() == v1::RMDIR;
  if (absl::StartsWith(file.path(), "/dev/")) {
    if (absl::EndsWith(file.path(), "/ptmx")) terminals.AddMaker(event.process().pid());
    subject.own_terminal = terminals.Owns(file.path());
  }
  return subject;
}

}  // namespace

std::optional<policy::Subject> NetworkSubject(const Event& event) {
  // Of listening no rule speaks.
  if (event.kind() != v1::CONNECT && event.kind() != v1::SEND) return std::nullopt;
  const v1::Net& net = event.net();
  Subject subject;
  subject.kind = RuleKind::kNetwork;
  subject.network_op = event.kind() == v1::SEND ? policy::NetworkOp::kSend : policy::NetworkOp::kConnect;
  subject.address = policy::ParseAddress(net.address());
  subject.name = net.name();
  subject.port = static_cast<uint16_t>(net.port());
  subject.protocol = net.protocol() == "tcp" ? policy::kTcp : net.protocol() == "udp" ? policy::kUdp : 0;
  return subject;
}

// 0: the first process, and what it started. A child that did not exec counts like one that did.
int Judge::DepthOf(const Event& event, pid_t first_process) const {
  if (first_process == 0 || event.process().pid() == first_process) return 0;
  ProcessKey at = ProcessKey::From(event.parent());
  for (int depth = 0; depth < kDeepest; ++depth) {
    if (at.pid == first_process || at.pid == 0) return depth;
    const ProcessTree::Node* node = tree_.Find(at.pid, at.start_ns, event.boot_ns());
    if (node == nullptr) return depth;
    at = node->parent;
  }
  return kDeepest;
}

void Judge::Apply(const policy::Snapshot& snapshot, JudgedSession& session, Event* event, bool went_through) {
  std::optional<Subject> subject;
  std::vector<absl::string_view> argv;
  std::string asked;
  if (event->has_exec()) {
    const v1::Exec& exec = event->exec();
    argv.assign(exec.argv().begin(), exec.argv().end());
    subject = policy::ExecSubject(event->exe(), argv);
    asked = exec.filename().empty() || exec.filename()[0] == '/'
                ? exec.filename()
                : absl::StrCat(exec.cwd(), "/", exec.filename());
    subject->file = asked;
    subject->depth = DepthOf(*event, session.first_process);
  } else if (event->has_file()) {
    subject = OfFile(*event, session.terminals);
  } else if (event->has_unix()) {
    if (const uint32_t operation = UnixOperation(event->kind()); operation != 0) {
      subject = policy::UnixSubject(operation, event->unix().path());
    }
  } else if (event->has_net()) {
    subject = NetworkSubject(*event);
  }
  if (!subject.has_value()) return;
  const std::function<bool(absl::string_view)> trusted = [&](absl::string_view directory) {
    return trusted_.Trusts(directory, session.groups);
  };
  policy::EvaluateOptions options;
  options.trusted_directory = &trusted;
  policy::Verdict verdict = policy::Evaluate(snapshot, *subject, options);
  const std::string real = FollowsLastLink(*event) && verdict.decision != policy::Decision::kDeny
                               ? ResolvedPath(subject->path, event->process().pid())
                               : std::string();
  if (!real.empty() && real != subject->path) {
    Subject there = *subject;
    there.path = real;
    policy::Verdict other = policy::Evaluate(snapshot, there, options);
    if (policy::Strictness(other.decision) > policy::Strictness(verdict.decision)) {
      verdict = std::move(other);
      subject = there;
    }
  }
  const bool plain = verdict.rule == nullptr && verdict.decision == policy::Decision::kAllow;
  if (plain || (went_through && verdict.Stops())) {
    event->mutable_judgement()->set_decision(v1::ALLOW);
    return;
  }
  *event->mutable_judgement() = policy::ToJudgement(snapshot, verdict, *subject);
  // Which socket it was that another name led to.
  if (event->has_unix() && subject->path == real) event->mutable_unix()->set_path(real);
}

}  // namespace agentmon
