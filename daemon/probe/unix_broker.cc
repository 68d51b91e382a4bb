#include "daemon/probe/unix_broker.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/kernel/pid_fd.h"
#include "common/policy/policy_proto.h"
#include "common/policy/rule.h"
#include "daemon/probe/file_path.h"

namespace agentmon {
namespace {

constexpr int64_t kPermitFor_ns = 10'000'000'000;

// What a connect's socket is, 0 = not known; sends on others than datagram sockets name nobody.
int TypeOf(pid_t tgid, int fd) {
  const auto process = PidFd::Open(tgid);
  if (!process.ok()) return 0;
  const auto taken = process->TakeFd(fd);
  int type = 0;
  socklen_t size = sizeof(type);
  return taken.ok() && getsockopt(taken->get(), SOL_SOCKET, SO_TYPE, &type, &size) == 0 ? type : 0;
}

// Of the call as the kernel makes it, where the name leads to no socket.
int ErrorOfPath(int error) { return error == EBADF ? ENOENT : error; }

}  // namespace

v1::Judgement DescribeUnjudgedSocket() {
  v1::Judgement out = policy::BuiltinDenial("unix sockets that were not judged",
                                            "nobody was asked about this call, or its name came too late");
  out.set_enforced(true);
  out.set_mechanism("cgroup_bpf");
  out.set_error(EACCES);
  return out;
}

struct UnixBroker::Call {
  const SocketCall& call;
  const UnixCall& asked;
  pid_t tid, tgid;
  Gate& gate;
  UnixOutcome& outcome;
  am_unix_permit permit;
  bool permitted = false;
  const struct stat* file = nullptr;  // of the socket; null: an abstract one
  int type = 0;                       // of the caller's socket as it was looked at; 0 = not known

  void Permit(absl::string_view name) {
    permit.length = static_cast<uint32_t>(name.size());
    std::copy(name.begin(), name.end(), permit.name);
    permitted = true;
  }
  void Fail(int error) {
    permit.error = static_cast<uint32_t>(error);
    permitted = true;
  }
};

bool UnixBroker::IsOwn(const Call& call) const {
  if (means_.owner == nullptr) return false;
  const uint64_t session = call.permit.cgroup_id;
  if (call.file == nullptr && call.type == 0) return false;
  return call.file != nullptr
             ? means_.owner->IsOwn(session, *call.file)
             : means_.owner->IsOwnAbstract(session, absl::string_view(call.asked.name).substr(1), call.type);
}

bool UnixBroker::Stops(Call& call, const std::string& path) const {
  call.outcome.event.mutable_unix()->set_path(path);
  const uint32_t operation =
      call.call.act == SocketAct::kConnect ? policy::kUnixConnect : policy::kUnixSendto;
  Gate::Answer answer = call.gate.Unix(operation, path);
  if (answer.stop && IsOwn(call)) {
    answer = Gate::Answer();
    // The same abstract name is somebody else's for a socket of another type, such as a thread puts in its
    // place.
    if (call.file == nullptr) call.permit.type = static_cast<uint32_t>(call.type);
    call.outcome.event.mutable_judgement()->set_decision(v1::ALLOW);
  }
  call.outcome.stopped = answer.stop;
  call.outcome.judgement = std::move(answer.judgement);
  return call.outcome.stopped;
}

UnixOutcome UnixBroker::Handle(const SocketCall& call, const seccomp_notif& request, uint64_t cgroup_id,
                               Gate& gate) {
  UnixOutcome outcome;
  const auto tid = static_cast<pid_t>(request.pid);
  // What an earlier call has not used is void, also for calls that name no unix socket as far as we see.
  means_.permits->Forget(tid);
  UnixCall asked;
  if (!ReadUnixCall(call, request, &asked)) return outcome;
  if (gate.proving() && IsCanary(asked.name)) return outcome;
  const pid_t tgid = identities_.Find(tid).tgid;
  Call made{call, asked, tid, tgid, gate, outcome, {}, false};
  made.permit.cgroup_id = cgroup_id;
  made.permit.uses = asked.uses;
  made.permit.after = asked.more ? EAGAIN : 0;
  outcome.named = true;
  const bool connects = call.act == SocketAct::kConnect;
  outcome.event.set_kind(connects ? v1::UNIX_CONNECT : v1::UNIX_SEND);
  made.type = connects ? TypeOf(tgid, asked.fd) : SOCK_DGRAM;
  outcome.event.mutable_unix()->set_datagram(made.type == SOCK_DGRAM);
  if (asked.name[0] == '\0') {
    JudgeAbstract(made);
  } else {
    JudgePath(made);
  }
  if (!made.permitted || outcome.stopped) return outcome;
  made.permit.until_ns = static_cast<uint64_t>(SystemClock().BootNs() + kPermitFor_ns);
  means_.permits->Put(tid, made.permit);
  return outcome;
}

bool UnixBroker::IsCanary(absl::string_view name) const {
  return !means_.canary.empty() && name[0] == '\0' &&
         absl::StartsWith(name.substr(1), absl::string_view(means_.canary).substr(1));
}

void UnixBroker::JudgeAbstract(Call& call) {
  call.outcome.event.mutable_unix()->set_abstract(true);
  if (!Stops(call, absl::StrCat("@", absl::string_view(call.asked.name).substr(1))))
    call.Permit(call.asked.name);
}

void UnixBroker::JudgePath(Call& call) {
  const CallerBase base = OpenCallerBase(call.tid, call.tgid, {AT_FDCWD, call.asked.name});
  const auto credentials = known_.Of(call.permit.cgroup_id, call.tid);
  FoundObject object;
  object.error = EACCES;
  if (base.error != 0) {
    object.error = ErrorOfPath(base.error);
  } else if (credentials.ok()) {
    if (const ActingFor acting(*credentials); acting.Took()) object = FindObject(base, true);
  }
  if (object.error != 0) {
    call.outcome.as_asked = true;
    call.outcome.event.mutable_unix()->set_path(base.error == 0 ? AskedPath(base) : call.asked.name);
    return call.Fail(object.error);
  }
  call.file = &object.st;
  if (Stops(call, object.path)) return;
  if (S_ISSOCK(object.st.st_mode)) return JudgeSocket(call, object);
  // The kernel asks for the right to write before it looks what it is.
  int error = ECONNREFUSED;
  const ActingFor acting(*credentials);
  if (!acting.Took() || faccessat(object.fd.get(), "", W_OK, AT_EMPTY_PATH | AT_EACCESS) != 0) error = EACCES;
  call.Fail(error);
}

// A socket may have been moved, linked or mounted elsewhere since it was bound; what rules say of the name
// that its server gave it counts too.
void UnixBroker::JudgeSocket(Call& call, const FoundObject& object) {
  const auto stop = [&](absl::string_view rule, absl::string_view why) {
    call.outcome.stopped = true;
    call.outcome.judgement = policy::BuiltinDenial(rule, why);
  };
  const auto name = means_.aliases->NameFor(call.permit.cgroup_id, call.tid, object.fd.get(), object.st);
  if (!name.ok()) {
    LogWarning("a unix socket of a session cannot be reached: ", name.status().message());
    return stop("sockets that cannot be held", "the kernel cannot be led to just the socket that was judged");
  }
  if (absl::StartsWith(name->bound, "/")) {
    const FoundObject there = FindObject(OpenCallerBase(call.tid, call.tgid, {AT_FDCWD, name->bound}), true);
    const std::string& bound = there.error == 0 ? there.path : name->bound;
    if (bound != object.path && Stops(call, bound)) return;
    call.outcome.event.mutable_unix()->set_path(object.path);
  } else if (object.st.st_nlink > 1 && call.gate.enforces()) {
    return stop("sockets with several names", "which of its names a rule would have to look at is not known");
  }
  call.Permit(absl::StrCat(name->path, absl::string_view("\0", 1)));
}

}  // namespace agentmon
