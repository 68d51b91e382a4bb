#include "daemon/probe/served_broker.h"

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "bpf/event_abi.h"
#include "common/base/log.h"
#include "common/policy/rule.h"
#include "daemon/probe/event_record.h"

namespace agentmon {
namespace {

// A call on its way.
struct Made {
  ServedCall asked;
  std::shared_ptr<const Listener> listener;
  UniqueFd socket;
  Gate::Answer answer;
  BrokerResult result;
};

int64_t Follow(Made& made, OpenDedupe* dedupe) {
  const ServedCall& asked = made.asked;
  const FileJudge judge = JudgeOfGate(*made.listener->gate, asked.caller.tgid, &made.answer);
  const int error = FollowMadeCall(made.socket.get(), judge, &made.result);
  if (error == EINTR) return -EINTR;
  if (error != 0) {
    made.result = BrokerResult();
    made.result.error = error;
  }
  if (made.result.answer != BrokerAnswer::kContinue) return -made.result.error;
  // Before it goes on: the mount's keeper meets the same open at once.
  if (dedupe != nullptr && !made.result.only_reads && !made.result.path.empty())
    dedupe->OpenedForWriting(asked.brokered.cgroup_id, asked.caller.tgid, made.result.path, asked.boot_ns);
  return CallWaiters::kGoesOn;
}

void Record(const Made& made, RecordQueue& queue) {
  const ServedCall& asked = made.asked;
  if (made.result.only_reads) return;
  if (made.result.answer == BrokerAnswer::kStopped) {
    Event event = StoppedFileEvent(asked.call, asked.brokered, made.result);
    v1::Judgement& judgement = *event.mutable_judgement();
    judgement = made.answer.judgement;
    judgement.set_enforced(true);
    judgement.set_mechanism("broker");
    judgement.set_error(made.result.error);
    queue.Push(EncodeEventRecord(
        {v1::NOTIFY, asked.boot_ns, asked.brokered.cgroup_id, static_cast<uint32_t>(asked.caller.tgid),
         static_cast<uint32_t>(asked.brokered.tid), asked.caller.uid, 0, 0},
        event));
    return;
  }
  FileRecord record = BrokeredRecord(asked.call, asked.caller, asked.boot_ns, made.result);
  record.cgroup_id = asked.brokered.cgroup_id;
  queue.Push(EncodeFileRecord(record));
}

}  // namespace

FileJudge JudgeOfGate(Gate& gate, pid_t tgid, Gate::Answer* answer) {
  FileJudge judge;
  judge.stops = [&gate, tgid, answer](uint32_t operations, absl::string_view path, absl::string_view new_path,
                                      bool directory) {
    if (absl::EndsWith(path, "/ptmx")) gate.AddTerminalMaker(tgid);
    *answer = operations == policy::kRename && directory ? gate.Move(path, new_path)
                                                         : gate.File(operations, path, new_path, directory);
    return answer->stop;
  };
  judge.stops_other_names = [&gate, answer](uint32_t operations, absl::string_view path,
                                            const struct stat& object) {
    Gate::Answer other = gate.OtherNames(operations, path, object);
    if (other.stop) *answer = std::move(other);
    return answer->stop;
  };
  return judge;
}

Event StoppedFileEvent(const FileCall& call, const BrokeredCall& brokered, const BrokerResult& result) {
  Event event;
  event.set_kind(result.existed && call.kind() == v1::CREATE ? v1::OPEN_WRITE : call.kind());
  event.mutable_file()->set_path(result.path);
  event.mutable_file()->set_new_path(result.new_path);
  event.mutable_file()->set_open_flags(brokered.open_flags);
  event.mutable_file()->set_mode(brokered.mode);
  return event;
}

FileRecord BrokeredRecord(const FileCall& call, const CallerIdentity& caller, int64_t boot_ns,
                          const BrokerResult& result) {
  FileRecord record = call.Describe(nullptr, caller, boot_ns);
  if (!result.path.empty()) {
    record.path = result.path;
    record.new_path = result.new_path;
  }
  if (result.existed && record.kind == v1::CREATE) record.kind = v1::OPEN_WRITE;
  // Performed and done: no attempt any more.
  if (result.answer == BrokerAnswer::kDone && result.error == 0) record.flags &= ~AM_F_AS_ASKED;
  return record;
}

bool ServedBroker::Meets(const BrokeredCall& call, const CallerName& name) const {
  return means_.places != nullptr && means_.places->Meets(call.cgroup_id, call.tid, call.tgid, name);
}

bool ServedBroker::Meets(const BrokeredCall& call) const {
  const bool two_names = call.act == FileAct::kRename || call.act == FileAct::kLink;
  return Meets(call, call.name) || (two_names && Meets(call, call.new_name));
}

NotifyAnswer ServedBroker::Begin(std::shared_ptr<const Listener> listener, const seccomp_notif& request,
                                 ServedCall call) const {
  auto made = std::make_shared<Made>();
  auto socket = means_.maker->Begin(call.brokered);
  if (!socket.ok()) {
    LogError("a file call on a mount behind a server fails: ", socket.status().message());
    return {false, EIO};
  }
  made->asked = std::move(call);
  made->listener = listener;
  made->socket = *std::move(socket);
  CallWaiters::Call later;
  later.listener = std::move(listener);
  later.request = request;
  later.tgid = made->asked.caller.tgid;
  later.until_killed = true;
  later.perform = [made, dedupe = dedupe_] { return Follow(*made, dedupe.get()); };
  later.interrupted = [] { return EINTR; };
  later.finish = [made, queue = queue_](int64_t) { Record(*made, *queue); };
  if (means_.waiters->Start(std::move(later))) {
    NotifyAnswer answer;
    answer.later = true;
    return answer;
  }
  return {false, EAGAIN};
}

}  // namespace agentmon
