#include "daemon/probe/open_judge.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "bpf/event_abi.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/policy/rule.h"
#include "common/policy/subject.h"
#include "daemon/probe/event_record.h"
#include "daemon/probe/file_record.h"

namespace agentmon {
namespace {

constexpr int64_t kFallsAsleep_ns = 1'000'000'000;
constexpr long kFirstPause_ns = 20'000;
constexpr long kLongestPause_ns = 2'000'000;
constexpr uint32_t kReads = policy::kOpen | policy::kRead;
constexpr uint32_t kLists = kReads | policy::kList;

// Its user may write to it, now or after a chmod of its own: then a name that comes to mean it may be opened
// for writing, and the answer for reading is not the answer.
bool MayBeWritten(const struct stat& st, uid_t uid) {
  return uid == 0 || st.st_uid == uid || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

// /proc/TID/syscall. The question is there before its asker sleeps: until then the kernel says "running",
// which is no answer about its call.
bool ReadWaitingCall(pid_t tid, char* text, size_t size) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/syscall", tid);
  const UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return false;
  const int64_t until_ns = SystemClock().BootNs() + kFallsAsleep_ns;
  for (timespec pause{0, kFirstPause_ns};; pause.tv_nsec = std::min(2 * pause.tv_nsec, kLongestPause_ns)) {
    const ssize_t n = pread(fd.get(), text, size - 1, 0);
    if (n <= 0) return false;
    text[n] = '\0';
    if (text[0] != 'r') return true;
    if (static_cast<int64_t>(SystemClock().BootNs()) >= until_ns) return false;
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

int FlagsOfWaitingOpen(pid_t tid) {
  char text[256];
  if (!ReadWaitingCall(tid, text, sizeof(text))) return O_RDWR;
  long number = -1;
  unsigned long long args[3] = {};
  if (sscanf(text, "%ld %llx %llx %llx", &number, &args[0], &args[1], &args[2]) != 4) return O_RDWR;
  // A 32-bit call's number means another call here, and none of these: it counts as one that writes.
  switch (number) {
#ifdef SYS_open
    case SYS_open:
      return static_cast<int>(args[1]);
    case SYS_creat:
      return O_CREAT | O_WRONLY | O_TRUNC;
#endif
    case SYS_openat:
      return static_cast<int>(args[2]);
    case SYS_execve:
    case SYS_execveat:
      return O_RDONLY;
    default:
      return O_RDWR;
  }
}

namespace {

uint32_t OperationsOfWaitingOpen(pid_t tid) {
  const int flags = FlagsOfWaitingOpen(tid);
  const bool empties = (flags & O_TRUNC) != 0;
  if ((flags & O_ACCMODE) == O_RDONLY) return empties ? kReads | policy::kWrite : kReads;
  return (flags & O_ACCMODE) == O_RDWR ? kReads | policy::kWrite : policy::kWrite;
}

}  // namespace

bool OpenJudge::Decide(const FanotifyEvent& event, CallerIdentities& callers) {
  record_ = ignore_ = false;
  stopped_.reset();
  asker_.tid = event.pid;
  asker_.boot_ns = SystemClock().BootNs();
  if (event.pid == 0 || event.path.empty()) {
    records_.queue->CountLost(1);
    return false;
  }
  asker_.identity = callers.Find(event.pid);
  if (asker_.identity.tgid == getpid()) return true;
  record_ = event.closed_after_write;
  if (event.asks_exec) return DecideExec(event);
  if (!event.asks_open) return true;
  snapshot_ = gate_->snapshot();
  return event.directory ? DecideList(event) : DecideOpen(event);
}

void OpenJudge::Tell(const FanotifyEvent& event) {
  if (stopped_.has_value()) {
    records_.queue->Push(EncodeEventRecord(
        {v1::FANOTIFY, asker_.boot_ns, cgroup_id_, static_cast<uint32_t>(asker_.identity.tgid),
         static_cast<uint32_t>(asker_.tid), asker_.identity.uid},
        *stopped_));
  }
  if (record_) Record(event);
}

void OpenJudge::Finish(const FanotifyEvent& event, FanotifyGroup& group) {
  Tell(event);
  const std::shared_ptr<const policy::Snapshot> snapshot = std::move(snapshot_);
  if (!ignore_) return;
  group.IgnoreOpens(event.fd, event.directory);
  if (gate_->snapshot() != snapshot) group.ForgetIgnored();  // the policy was switched meanwhile
}

// Of the file nothing is known but its path: whether it has other names its server would have to say.
bool OpenJudge::DecideServedOpen(const FanotifyEvent& event) {
  const uint32_t operations = OperationsOfWaitingOpen(asker_.tid);
  Gate::Answer answer = gate_->File(operations, event.path);
  if (answer.stop) return StopOpen(event, operations, std::move(answer));
  record_ = records_.dedupe == nullptr || !records_.dedupe->TakeOpenedForWriting(
                                              cgroup_id_, asker_.identity.tgid, event.path, asker_.boot_ns);
  return true;
}

bool OpenJudge::DecideOpen(const FanotifyEvent& event) {
  if (event.served) return DecideServedOpen(event);
  struct stat st {};
  if (fstat(event.fd, &st) != 0) return false;
  Gate::Answer answer = gate_->File(kReads, event.path);
  const bool writing_differs =
      MayBeWritten(st, asker_.identity.uid) && gate_->Stops(policy::kWrite, event.path) != answer.stop;
  // Which of the two it is, is asked only where one of them would be stopped.
  const bool other_name = gate_->OtherNames(kReads | policy::kWrite, event.path, st).stop;
  uint32_t operations = kReads;
  if (answer.stop || writing_differs || other_name) {
    operations = OperationsOfWaitingOpen(asker_.tid);
    answer = gate_->File(operations, event.path);
    if (!answer.stop && other_name) answer = gate_->OtherNames(operations, event.path, st);
  }
  if (answer.stop) return StopOpen(event, operations, std::move(answer));
  const bool for_writing =
      records_.dedupe != nullptr &&
      records_.dedupe->TakeOpenedForWriting(cgroup_id_, asker_.identity.tgid, event.path, asker_.boot_ns);
  if (for_writing) return true;
  record_ = true;
  // A file of several names may be a protected one by another.
  ignore_ = !writing_differs && st.st_nlink == 1;
  return true;
}

// Programs look into every directory on their way: only what a rule names is stopped, and only that is told.
bool OpenJudge::DecideList(const FanotifyEvent& event) {
  Gate::Answer answer = gate_->File(kLists, event.path, {}, true);
  if (answer.stop && answer.by_rule) return StopOpen(event, kLists, std::move(answer));
  ignore_ = true;
  return true;
}

// A program that a rule names is that program under every name.
Gate::Answer OpenJudge::JudgeCopy(const FanotifyEvent& event, const ExecPermits::Use& use,
                                  absl::Span<const absl::string_view> argv) {
  Gate::Answer answer;
  struct stat st {};
  if (event.served && event.fd < 0) return answer;  // of a size that no such program has
  if (fstat(event.fd, &st) != 0) {
    answer.stop = true;
    return answer;
  }
  const std::string program = gate_->ProgramOf(event.fd, st);
  if (program.empty()) return answer;
  const bool interpreter = use.permit != nullptr && !use.first;
  if (!interpreter) return gate_->Copy(event.path, program, argv, asker_.identity.tgid);
  answer = gate_->Interpreter(program);
  if (answer.stop && answer.judgement.message().empty())
    answer.judgement.set_message(absl::StrCat(absl::CHexEscape(event.path), " is a copy of ", program));
  return answer;
}

bool OpenJudge::DecideExec(const FanotifyEvent& event) {
  const ExecPermits::Use use =
      records_.permits != nullptr ? records_.permits->Take(asker_.tid) : ExecPermits::Use();
  Gate::Answer answer;
  std::vector<absl::string_view> argv;
  if (use.permit != nullptr && !use.first) {
    answer = gate_->Interpreter(event.path);
  } else {
    if (use.permit != nullptr) argv.assign(use.permit->argv.begin(), use.permit->argv.end());
    answer =
        gate_->Exec(event.path, use.permit != nullptr ? use.permit->asked : "", argv, asker_.identity.tgid);
  }
  if (!answer.stop) answer = JudgeCopy(event, use, argv);
  if (!answer.stop) return true;
  Event stopped;
  stopped.set_kind(v1::EXEC);
  stopped.set_exe(event.path);
  stopped.mutable_exec()->set_filename(event.path);
  for (const absl::string_view word : argv) stopped.mutable_exec()->add_argv(std::string(word));
  KeepStop(std::move(stopped), std::move(answer));
  return false;
}

void OpenJudge::Record(const FanotifyEvent& event) {
  FileRecord record;
  record.source = v1::FANOTIFY;
  record.kind = event.closed_after_write ? v1::WRITE : v1::OPEN;
  record.flags = AM_F_FIRST_ONLY;
  record.boot_ns = asker_.boot_ns;
  record.cgroup_id = cgroup_id_;
  record.pid = static_cast<uint32_t>(asker_.identity.tgid);
  record.tid = static_cast<uint32_t>(asker_.tid);
  record.caller_uid = asker_.identity.uid;
  record.path = event.path;
  records_.queue->Push(EncodeFileRecord(record));
}

bool OpenJudge::StopOpen(const FanotifyEvent& event, uint32_t operations, Gate::Answer answer) {
  Event stopped;
  stopped.set_kind((operations & policy::kWrite) != 0 ? v1::OPEN_WRITE : v1::OPEN);
  stopped.mutable_file()->set_path(event.path);
  KeepStop(std::move(stopped), std::move(answer));
  return false;
}

void OpenJudge::KeepStop(Event event, Gate::Answer answer) {
  if (gate_->proving()) return;
  v1::Judgement& judgement = *event.mutable_judgement();
  judgement = std::move(answer.judgement);
  judgement.set_enforced(true);
  judgement.set_mechanism("fanotify");
  judgement.set_error(EPERM);
  stopped_ = std::move(event);
}

}  // namespace agentmon
