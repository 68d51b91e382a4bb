// Judges connects and datagrams of sessions to unix sockets, and has the kernel go where was judged.
// docs/enforcement.md, "Unix sockets".
#pragma once

#include <linux/seccomp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/enforce/caller_credentials.h"
#include "daemon/enforce/caller_lookup.h"
#include "daemon/enforce/socket_aliases.h"
#include "daemon/event/event.h"
#include "daemon/policy/gate.h"
#include "daemon/probe/caller.h"
#include "daemon/probe/unix_call.h"
#include "daemon/probe/unix_owner.h"
#include "daemon/probe/unix_permits.h"

namespace agentmon {

// What the threads share.
struct UnixMeans {
  std::shared_ptr<UnixPermits> permits;  // null: the kernel cannot judge, and nothing is asked
  std::shared_ptr<SocketAliases> aliases;
  std::shared_ptr<UnixOwner> owner;  // null: what a session serves itself is judged like the rest
  std::string
      canary;  // "@...": abstract names that begin so are let go without a permit while a session is proven
};

struct UnixOutcome {
  bool named = false;    // a unix socket: the event is to be kept
  bool stopped = false;  // with EACCES; else the call goes on, and ends as its permit says
  bool as_asked = false;
  Event event;
  v1::Judgement judgement;  // of what stopped it, without enforced, mechanism and error
};

// Of one that the kernel has refused because nobody was asked about it.
v1::Judgement DescribeUnjudgedSocket();

// One thread's own; that thread has called PrepareToActForCallers(). May wait for a file system.
class UnixBroker {
 public:
  explicit UnixBroker(const UnixMeans& means) : means_(means) {}

  // request: unanswered. All that it does not stop may go on: without a permit the kernel refuses it.
  UnixOutcome Handle(const SocketCall& call, const seccomp_notif& request, uint64_t cgroup_id, Gate& gate);
  // The caller is gone, or its call failed before it got anywhere.
  void Forget(pid_t tid) { means_.permits->Forget(tid); }
  bool active() const { return means_.permits != nullptr; }

 private:
  struct Call;
  bool IsCanary(absl::string_view name) const;
  void JudgeAbstract(Call& call);
  void JudgePath(Call& call);
  void JudgeSocket(Call& call, const FoundObject& object);
  bool Stops(Call& call, const std::string& path) const;
  // Whoever made it confined itself: rules are about what lies outside of the session.
  bool IsOwn(const Call& call) const;

  const UnixMeans means_;
  KnownCredentials known_;
  CallerIdentities identities_;
};

}  // namespace agentmon
