// What one serving thread makes of the calls that a session's filter sends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "daemon/enforce/file_broker.h"
#include "daemon/event/event.h"
#include "daemon/probe/call_table.h"
#include "daemon/probe/exec_call.h"
#include "daemon/probe/exec_permits.h"
#include "daemon/probe/exec_verifier.h"
#include "daemon/probe/file_call.h"
#include "daemon/probe/file_path.h"
#include "daemon/probe/network_broker.h"
#include "daemon/probe/notify_pool.h"
#include "daemon/probe/open_dedupe.h"
#include "daemon/probe/record_queue.h"
#include "daemon/probe/served_broker.h"
#include "daemon/probe/unix_broker.h"

namespace agentmon {

// Holds what it uses: a thread that hangs outlives the probe. Shared by the threads, but for the call table.
struct CallServerDeps {
  CallTable calls;
  std::shared_ptr<RecordQueue> queue;
  std::shared_ptr<OpenDedupe> dedupe;      // may be null
  std::shared_ptr<ExecPermits> permits;    // may be null
  std::shared_ptr<ExecVerifier> verifier;  // may be null
  UnixMeans unix_means;
  NetworkMeans network;
  ServedMeans served;
  bool tells_execs = false;  // what is let go is told as asked: there is no other source of processes
};

// Where nothing is stopped every call goes on. Else: calls that change names or files are performed by the
// broker; opens and execs are judged here and go on, and the fanotify source asks again about the object that
// they reach; refused calls fail. Whatever cannot be judged fails.
class CallServer : public NotifyServer {
 public:
  explicit CallServer(CallServerDeps deps)
      : deps_(std::move(deps)),
        unix_broker_(deps_.unix_means),
        network_(deps_.network),
        served_(deps_.served, deps_.queue, deps_.dedupe) {}
  NotifyAnswer Capture(const Listener& listener, const seccomp_notif& request) override;
  void Finish(const Listener& listener) override;
  void Lost() override { deps_.queue->CountLost(1); }

 private:
  NotifyAnswer CaptureFile(const Listener& listener, const MediatedCall& call, const seccomp_notif& request);
  NotifyAnswer Mediate(const Listener& listener, const MediatedCall& call, const seccomp_notif& request);
  NotifyAnswer Exec(const Listener& listener, const MediatedCall& call, const seccomp_notif& request);
  NotifyAnswer CaptureExec(const Listener& listener, const MediatedCall& call, const seccomp_notif& request);
  // program: null where it is not looked at, lying behind a server, and may be a loader.
  Gate::Answer JudgePayload(const Listener& listener, const FoundObject* program,
                            absl::Span<const absl::string_view> argv);
  NotifyAnswer NameSocket(const Listener& listener, const SocketCall& call, const seccomp_notif& request);
  NotifyAnswer Network(const Listener& listener, const SocketCall& call, const seccomp_notif& request);
  void TellExec(const MediatedCall& call, const seccomp_notif& request);
  void KeepExec(const ExecCall& exec, const std::string& asked, const FoundObject& object);
  bool PrepareToAct();
  NotifyAnswer Refuse(const Listener& listener, const seccomp_notif& request);
  void KeepStop(Event event, v1::Judgement judgement, const char* mechanism, int error);
  void Push(const Listener& listener, const Event& event);
  void FinishFile(const Listener& listener);

  const CallServerDeps deps_;
  SystemClock clock_;
  const ProcFs proc_;
  CallerIdentities identities_;
  PathResolver resolver_;
  FileBroker broker_;
  UnixBroker unix_broker_;
  NetworkBroker network_;
  ServedBroker served_;
  bool may_act_ = false, prepared_ = false;
  // Of the request in hand.
  enum class Kept { kNothing, kCall, kBrokered, kEvent, kNetwork };
  Kept kept_ = Kept::kNothing;
  FileCall call_;
  BrokeredCall called_;  // of an exec: whose names they are
  BrokerResult result_;
  Event event_;
  std::vector<Event> network_events_;
  uint32_t event_flags_ = 0;  // AM_F_*
  uint64_t start_ns_ = 0;     // of the caller, where the event tells it
  CallerIdentity caller_;
  pid_t tid_ = 0;
  int64_t boot_ns_ = 0;
  bool look_at_files_ = true;
};

}  // namespace agentmon
