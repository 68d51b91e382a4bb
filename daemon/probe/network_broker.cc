#include "daemon/probe/network_broker.h"

#include <linux/audit.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "bpf/event_abi.h"
#include "common/policy/policy_proto.h"
#include "daemon/probe/caller_socket.h"
#include "daemon/probe/destination.h"
#include "daemon/probe/event_record.h"
#include "daemon/probe/socket_message.h"
#include "daemon/probe/socket_work.h"

namespace agentmon {
namespace {

int FlagsOf(const SocketCall& call, const seccomp_notif& request) {
  if (call.act == SocketAct::kConnect) return 0;
  return static_cast<int>(request.data.args[call.act == SocketAct::kSendMessage ? 2 : 3]);
}

// Where nothing is stopped: as far as it can be read, and only what a call names in its arguments. It is not
// known yet how it ends.
JudgedNetwork Observe(const SocketCall& call, const seccomp_notif& request, const CallerIdentity& caller) {
  JudgedNetwork out;
  if (call.act != SocketAct::kConnect && call.act != SocketAct::kSendTo) return out;
  const auto& args = request.data.args;
  SocketMessage message;
  const auto tid = static_cast<pid_t>(request.pid);
  if (ReadSocketName(tid, args[call.address], static_cast<int>(args[call.length]), &message) != 0) return out;
  const CallerSocket socket = TakeSocket(tid, caller.tgid, static_cast<int>(args[0]));
  if (!socket.fd.valid() || !socket.inet()) return out;
  const bool begins =
      call.act == SocketAct::kConnect || (socket.stream() && (FlagsOf(call, request) & MSG_FASTOPEN) != 0);
  if (socket.stream() && !begins) return out;
  const Destination to = DestinationOf(socket, begins, message.name);
  if (to.kind != Destination::Kind::kAddress) return out;
  out.events.push_back(DescribeDestination(socket, to, begins ? v1::CONNECT : v1::SEND));
  out.as_asked = true;
  return out;
}

NotifyAnswer AnswerOf(int64_t result) {
  if (result < 0) return {false, static_cast<int>(-result)};
  return {false, 0, result};
}

// May go on without being judged: no name that the call could be given meanwhile would lead anywhere.
bool MayGoOn(const CallerSocket& socket, const SocketCall& call, const seccomp_notif& request,
             const CallerIdentity& caller) {
  const bool nameless = socket.inet() && socket.type == SOCK_STREAM && call.act != SocketAct::kConnect &&
                        (FlagsOf(call, request) & MSG_FASTOPEN) == 0;
  return (!socket.inet() || nameless) && OwnsItsTable(caller.tgid);
}

}  // namespace

JudgedNetwork NetworkBroker::Handle(const SocketCall& call, const seccomp_notif& request,
                                    const Listener& listener, const CallerIdentity& caller,
                                    int64_t boot_ns) const {
  if (!listener.closed()) return Observe(call, request, caller);
  JudgedNetwork out;
  CallerSocket socket =
      TakeSocket(static_cast<pid_t>(request.pid), caller.tgid, static_cast<int>(request.data.args[0]));
  if (!socket.fd.valid() || socket.domain < 0) {
    out.answer = {false, socket.fd.valid() ? ENOTSOCK : socket.error};
    return out;
  }
  if (MayGoOn(socket, call, request, caller)) return out;
  const bool waits = socket.stream();
  const auto work =
      std::make_shared<SocketWork>(call, request, listener.shared_from_this(), caller, std::move(socket));
  if (!waits) {
    const int64_t result = work->Run(false);
    if (result != -EAGAIN || !work->MayWait()) {
      out.answer = AnswerOf(result);
      out.events = work->TakeEvents(result);
      return out;
    }
  }
  CallWaiters::Call later;
  later.listener = listener.shared_from_this();
  later.request = request;
  later.tgid = caller.tgid;
  later.perform = [work] { return work->Run(true); };
  later.interrupted = [work] { return work->Interrupted(); };
  later.finish = [work, queue = means_.queue, caller, tid = request.pid, boot_ns,
                  told = !listener.gate->proving(), cgroup_id = listener.cgroup_id](int64_t result) {
    const std::vector<Event> events = work->TakeEvents(result);
    if (!told) return;
    for (const Event& event : events) {
      queue->Push(EncodeEventRecord(
          {v1::NOTIFY, boot_ns, cgroup_id, static_cast<uint32_t>(caller.tgid), tid, caller.uid, 0, 0},
          event));
    }
  };
  if (means_.waiters->Start(std::move(later))) {
    out.answer.later = true;
  } else {
    out.answer = {false, EAGAIN};  // as when ports are short
  }
  return out;
}

}  // namespace agentmon
