#include "daemon/probe/call_server.h"

#include <fcntl.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bpf/event_abi.h"
#include "common/base/log.h"
#include "common/kernel/refused_calls.h"
#include "common/kernel/seccomp_listener.h"
#include "common/policy/policy_proto.h"
#include "common/policy/rule.h"
#include "daemon/probe/event_record.h"
#include "daemon/probe/exec_call.h"

namespace agentmon {

NotifyAnswer CallServer::Capture(const Listener& listener, const seccomp_notif& request) {
  kept_ = Kept::kNothing;
  event_flags_ = 0;
  start_ns_ = 0;
  if (request.pid == 0) return {!listener.closed(), EACCES};  // not in a pid namespace that we see
  boot_ns_ = clock_.BootNs();
  tid_ = static_cast<pid_t>(request.pid);
  if (const SocketCall* call = deps_.calls.FindSocket(request.data.arch, request.data.nr); call != nullptr)
    return network_.active() ? Network(listener, *call, request) : NameSocket(listener, *call, request);
  const MediatedCall* call = deps_.calls.Find(request.data.arch, request.data.nr);
  if (call == nullptr) return Refuse(listener, request);
  caller_ = identities_.Find(tid_);
  NotifyAnswer answer;
  if (call->act == FileAct::kExec) {
    answer = Exec(listener, *call, request);
  } else {
    answer = CaptureFile(listener, *call, request);
  }
  // Killed meanwhile: the call never happens, and what was read may be of another process. What the broker
  // has done is done.
  if (kept_ != Kept::kBrokered && !NotifyIdValid(listener.fd.get(), request.id)) kept_ = Kept::kNothing;
  return answer;
}

NotifyAnswer CallServer::Refuse(const Listener& listener, const seccomp_notif& request) {
  const RefusedCall* refused = FindRefusedCall(request.data.arch, request.data.nr,
                                               reinterpret_cast<const uint64_t*>(request.data.args));
  if (refused == nullptr) return {!listener.closed(), EPERM};
  if (listener.gate != nullptr && listener.gate->proving()) return {false, refused->error};
  caller_ = identities_.Find(tid_);
  Event event;
  event.set_kind(v1::CALL);
  event.mutable_call()->set_name(refused->name);
  for (const auto argument : request.data.args) event.mutable_call()->add_args(argument);
  event.mutable_call()->set_arch(request.data.arch);
  KeepStop(std::move(event),
           policy::BuiltinDenial(absl::StrCat("calls of ", CallFamilyName(refused->family)),
                                 absl::StrCat(refused->name, " is refused in a session")),
           "seccomp", refused->error);
  return {false, refused->error};
}

NotifyAnswer CallServer::CaptureFile(const Listener& listener, const MediatedCall& call,
                                     const seccomp_notif& request) {
  const bool closed = listener.closed();
  call_ = FileCall();
  look_at_files_ = listener.stuck < NotifyPool::kStuckNoFiles;
  // Whether O_CREAT makes a file the broker finds out by itself.
  const CaptureResult captured = call_.Capture(call, request, {.look_at_files = look_at_files_ && !closed});
  // openat2: its flags lie in memory that other threads of the caller can change. Programs that use it fall
  // back.
  if (closed && call.act == FileAct::kOpenHow) return {false, ENOSYS};
  if (closed && call_.cut()) return {false, ENAMETOOLONG};
  if (captured != CaptureResult::kCall) {
    // Unreadable is EFAULT; what another thread puts there meanwhile must not be reached unjudged.
    if (closed && !call_.changes_nothing()) return {false, call.fd >= 0 ? EBADF : EFAULT};
    return {};
  }
  kept_ = Kept::kCall;
  if (closed) return Mediate(listener, call, request);
  call_.FindBases(call, request);
  return {};
}

bool CallServer::PrepareToAct() {
  if (prepared_) return may_act_;
  prepared_ = true;
  const absl::Status prepared = PrepareToActForCallers();
  may_act_ = prepared.ok();
  if (!may_act_) LogError("file calls of sessions fail: ", prepared.message());
  return may_act_;
}

// Whatever cannot be judged goes on without a permit, and the kernel refuses it where it names a unix socket.
NotifyAnswer CallServer::NameSocket(const Listener& listener, const SocketCall& call,
                                    const seccomp_notif& request) {
  if (!unix_broker_.active() || listener.gate == nullptr || !PrepareToAct()) return {};
  UnixOutcome outcome = unix_broker_.Handle(call, request, listener.cgroup_id, *listener.gate);
  if (!outcome.named) return {};
  if (!NotifyIdValid(listener.fd.get(), request.id)) {
    unix_broker_.Forget(tid_);
    return {};
  }
  if (!listener.gate->proving()) {
    caller_ = identities_.Find(tid_);
    event_ = std::move(outcome.event);
    event_flags_ = outcome.as_asked ? AM_F_AS_ASKED : 0;
    kept_ = Kept::kEvent;
    if (outcome.stopped) KeepStop(std::move(event_), std::move(outcome.judgement), "notify", EACCES);
  }
  if (outcome.stopped) return {false, EACCES};
  return {};
}

// Of a caller that is gone nothing is told, unless it was performed.
NotifyAnswer CallServer::Network(const Listener& listener, const SocketCall& call,
                                 const seccomp_notif& request) {
  caller_ = identities_.Find(tid_);
  JudgedNetwork judged = network_.Handle(call, request, listener, caller_, boot_ns_);
  const bool told = listener.gate == nullptr || !listener.gate->proving();
  if (judged.answer.later || !told || judged.events.empty()) return judged.answer;
  if (judged.as_asked && !NotifyIdValid(listener.fd.get(), request.id)) return judged.answer;
  network_events_ = std::move(judged.events);
  event_flags_ = judged.as_asked ? AM_F_AS_ASKED : 0;
  kept_ = Kept::kNetwork;
  return judged.answer;
}

NotifyAnswer CallServer::Mediate(const Listener& listener, const MediatedCall& call,
                                 const seccomp_notif& request) {
  if (!PrepareToAct()) return {false, EACCES};
  BrokeredCall brokered = call_.ForBroker(call, request);
  brokered.cgroup_id = listener.cgroup_id;
  brokered.tgid = caller_.tgid;
  if (served_.Meets(brokered)) {
    kept_ = Kept::kNothing;  // it is recorded when it is done
    return served_.Begin(listener.shared_from_this(), request,
                         {call_, std::move(brokered), caller_, boot_ns_});
  }
  Gate::Answer answer;
  const FileJudge judge = JudgeOfGate(*listener.gate, caller_.tgid, &answer);
  result_ = broker_.Handle(brokered, judge);
  if (result_.path.empty()) call_.FindBases(call, request);
  kept_ = result_.only_reads ? Kept::kNothing : Kept::kBrokered;
  if (result_.only_reads) return {};
  if (result_.answer == BrokerAnswer::kStopped) {
    KeepStop(StoppedFileEvent(call_, brokered, result_), std::move(answer.judgement), "broker",
             result_.error);
  } else if (result_.answer == BrokerAnswer::kContinue && deps_.dedupe != nullptr && !result_.path.empty()) {
    // Before it goes on: the fanotify source meets the same open at once.
    deps_.dedupe->OpenedForWriting(listener.cgroup_id, caller_.tgid, result_.path, boot_ns_);
  }
  if (result_.answer == BrokerAnswer::kContinue) return {};
  return {false, result_.error};
}

NotifyAnswer CallServer::Exec(const Listener& listener, const MediatedCall& call,
                              const seccomp_notif& request) {
  const bool armed = listener.gate != nullptr && listener.gate->armed();
  if (!armed && !deps_.tells_execs) return {};
  NotifyAnswer answer;
  if (!listener.closed() && deps_.tells_execs) {
    TellExec(call, request);
  } else if (listener.closed()) {
    answer = CaptureExec(listener, call, request);
  } else if (deps_.verifier != nullptr && !deps_.verifier->PermitAny(tid_, caller_.tgid)) {
    answer = {false, EAGAIN};
  }
  // What ended before its permit was written takes none away.
  if (deps_.verifier != nullptr && !NotifyIdValid(listener.fd.get(), request.id))
    deps_.verifier->Forget(tid_);
  return answer;
}

namespace {

Gate::Answer NamelessProgram() {
  Gate::Answer answer;
  answer.stop = true;
  answer.judgement =
      policy::BuiltinDenial("nameless programs", "a program that has no name any more cannot be judged");
  return answer;
}

Gate::Answer ServedProgram() {
  Gate::Answer answer;
  answer.stop = true;
  answer.judgement =
      policy::BuiltinDenial("programs for a loader, behind a server",
                            "what a loader is given on a mount behind a server cannot be judged");
  return answer;
}

// Of a file that may be a known one, by its size; else nothing is opened.
UniqueFd OpenContent(const FoundObject& object, const ProgramCopies& known) {
  if (!S_ISREG(object.st.st_mode) || !known.KnowsSize(object.st.st_size)) return {};
  return UniqueFd(
      open(absl::StrCat("/proc/self/fd/", object.fd.get()).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

}  // namespace

NotifyAnswer CallServer::CaptureExec(const Listener& listener, const MediatedCall& call,
                                     const seccomp_notif& request) {
  ExecCall exec;
  if (!agentmon::CaptureExec(call, request, &exec)) return {false, EFAULT};
  called_.cgroup_id = listener.cgroup_id;
  called_.tid = tid_;
  called_.tgid = caller_.tgid;
  const bool served = served_.Meets(called_, exec.name);  // its mount's keeper asks about the file
  const CallerBase base = OpenCallerBase(tid_, caller_.tgid, exec.name);
  ExecPermit permit{caller_.tgid, base.error == 0 ? AskedPath(base) : "", exec.argv};
  const std::vector<absl::string_view> argv(exec.argv.begin(), exec.argv.end());
  FoundObject object;
  object.error = EACCES;
  Gate::Answer answer;
  if (served) {
    answer = JudgePayload(listener, nullptr, argv);
  } else if (base.error == 0) {
    object = FindObject(base, exec.follow);
  }
  if (object.error == 0) {
    answer = listener.gate->Exec(object.path, permit.asked, argv, caller_.tgid);
    if (!answer.stop) answer = JudgePayload(listener, &object, argv);
    if (!answer.stop && object.st.st_nlink == 0) answer = NamelessProgram();
  }
  if (answer.stop) {
    Event event;
    event.set_kind(v1::EXEC);
    event.set_exe(served ? permit.asked : object.path);
    event.mutable_exec()->set_filename(permit.asked);
    for (const std::string& word : exec.argv) event.mutable_exec()->add_argv(word);
    event.mutable_exec()->set_argv_cut(exec.argv_cut);
    KeepStop(std::move(event), std::move(answer.judgement), "notify", EACCES);
    return {false, EACCES};
  }
  if (deps_.verifier != nullptr && !deps_.verifier->Permit(tid_, caller_.tgid, exec.argv, exec.argv_cut))
    return {false, EAGAIN};
  if (deps_.tells_execs) KeepExec(exec, permit.asked, object);
  if (deps_.permits != nullptr) deps_.permits->Put(tid_, std::move(permit));
  return {};
}

void CallServer::TellExec(const MediatedCall& call, const seccomp_notif& request) {
  ExecCall exec;
  if (!agentmon::CaptureExec(call, request, &exec)) return;
  const CallerBase base = OpenCallerBase(tid_, caller_.tgid, exec.name);
  if (base.error == 0) KeepExec(exec, AskedPath(base), FindObject(base, exec.follow));
}

// Shells try one directory after another: what cannot be started is nothing to tell.
void CallServer::KeepExec(const ExecCall& exec, const std::string& asked, const FoundObject& object) {
  constexpr mode_t kAnyExecute = 0111;
  if (object.error != 0 || !S_ISREG(object.st.st_mode) || (object.st.st_mode & kAnyExecute) == 0) return;
  event_ = Event();
  event_.set_kind(v1::EXEC);
  event_.set_exe(object.path);
  event_.mutable_exec()->set_filename(asked);
  for (const std::string& word : exec.argv) event_.mutable_exec()->add_argv(word);
  event_.mutable_exec()->set_argv_cut(exec.argv_cut);
  start_ns_ = 0;
  if (const auto own = proc_.Stat(caller_.tgid); own.ok()) {
    start_ns_ = own->start_ns();
    event_.mutable_parent()->set_pid(own->parent);
    if (const auto parent = proc_.Stat(own->parent); parent.ok())
      event_.mutable_parent()->set_start_ns(parent->start_ns());
  }
  event_flags_ = AM_F_AS_ASKED;
  kept_ = Kept::kEvent;
}

// A loader that is given a program opens it as any file: nothing asks about an exec of it then.
Gate::Answer CallServer::JudgePayload(const Listener& listener, const FoundObject* program,
                                      absl::Span<const absl::string_view> argv) {
  const size_t payload = LoaderPayload(argv);
  if (payload == 0) return {};
  const std::shared_ptr<const ProgramCopies> known = listener.gate->Programs();
  if (program != nullptr && !IsLoaderName(program->path)) {
    const UniqueFd content = OpenContent(*program, *known);
    if (!content.valid() || !known->IsLoader(content.get(), program->st)) return {};
  }
  const CallerName name{AT_FDCWD, std::string(argv[payload])};
  // It is opened as any file, and nobody asks for its content then.
  if (served_.Meets(called_, name)) return ServedProgram();
  const CallerBase base = OpenCallerBase(tid_, caller_.tgid, name);
  if (base.error != 0) return {};
  const FoundObject object = FindObject(base, true);
  if (object.error != 0) return {};
  if (object.st.st_nlink == 0) return NamelessProgram();
  argv.remove_prefix(payload);
  Gate::Answer answer = listener.gate->Exec(object.path, AskedPath(base), argv, caller_.tgid);
  if (answer.stop) return answer;
  const UniqueFd content = OpenContent(object, *known);
  const std::string original = content.valid() ? known->OriginalOf(content.get(), object.st) : "";
  return original.empty() ? answer : listener.gate->Copy(object.path, original, argv, caller_.tgid);
}

void CallServer::KeepStop(Event event, v1::Judgement judgement, const char* mechanism, int error) {
  judgement.set_enforced(true);
  judgement.set_mechanism(mechanism);
  judgement.set_error(error);
  *event.mutable_judgement() = std::move(judgement);
  event_ = std::move(event);
  kept_ = Kept::kEvent;
}

void CallServer::Finish(const Listener& listener) {
  if (kept_ == Kept::kNothing) return;
  if (kept_ == Kept::kNetwork) {
    for (const Event& event : network_events_) Push(listener, event);
  } else if (kept_ == Kept::kEvent) {
    Push(listener, event_);
  } else {
    FinishFile(listener);
  }
}

void CallServer::Push(const Listener& listener, const Event& event) {
  deps_.queue->Push(
      EncodeEventRecord({v1::NOTIFY, boot_ns_, listener.cgroup_id, static_cast<uint32_t>(caller_.tgid),
                         static_cast<uint32_t>(tid_), caller_.uid, start_ns_, event_flags_},
                        event));
}

void CallServer::FinishFile(const Listener& listener) {
  const bool brokered = kept_ == Kept::kBrokered;
  FileRecord record = brokered ? BrokeredRecord(call_, caller_, boot_ns_, result_)
                               : call_.Describe(look_at_files_ ? &resolver_ : nullptr, caller_, boot_ns_);
  record.cgroup_id = listener.cgroup_id;
  if (!brokered && deps_.dedupe != nullptr && (record.kind == v1::CREATE || record.kind == v1::OPEN_WRITE)) {
    deps_.dedupe->OpenedForWriting(listener.cgroup_id, caller_.tgid, record.path, boot_ns_);
  }
  deps_.queue->Push(EncodeFileRecord(record));
}

}  // namespace agentmon
