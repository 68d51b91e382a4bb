#include "daemon/probe/lsm_probe.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bpf/lsm_numbers.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/policy/evaluate.h"
#include "common/policy/policy_proto.h"
#include "daemon/event/decode.h"
#include "daemon/event/process_key.h"
#include "daemon/probe/event_record.h"

namespace agentmon {
namespace {

constexpr size_t kMaxRecord = sizeof(am_denied) + 2 * AM_PATH_MAX;
constexpr size_t kTurn = 1024;  // records of one turn of the core, which has other work too
constexpr size_t kNoLimit = AM_LSM_RING_BYTES;
// A program that began before a policy was switched may still look into the old one; what it then allows it
// judges again, but it must not find half of it for longer than needed.
constexpr absl::Duration kOldPolicyStays = absl::Seconds(2);
// Attaching and detaching makes the kernel wait until no processor runs the hook any more: from one session
// to the next the programs stay.
constexpr absl::Duration kStaysAttached = absl::Seconds(60);
static_assert(uint32_t{KIND_EXEC} == v1::EXEC);
static_assert(uint32_t{KIND_UNIX_CONNECT} == v1::UNIX_CONNECT && uint32_t{KIND_UNIX_SEND} == v1::UNIX_SEND &&
              uint32_t{KIND_SIGNAL} == v1::SIGNAL && uint32_t{KIND_CALL} == v1::CALL);
constexpr char kMechanism[] = "bpf_lsm";

absl::Status Put(int map, const void* key, const void* value, absl::string_view what) {
  if (bpf_map_update_elem(map, key, value, BPF_ANY) == 0) return absl::OkStatus();
  if (errno == E2BIG) return absl::ResourceExhaustedError(absl::StrCat(what, ": no room for more"));
  return ErrnoStatus(errno, what);
}

// Where looking at a name may wait for a server, or numbers of inodes are not one file's alone.
bool HasOwnInodes(absl::string_view fs_type) {
  for (const absl::string_view other :
       {"fuse", "nfs", "cifs", "smb", "9p", "ceph", "afs", "autofs", "btrfs", "overlay"}) {
    if (absl::StartsWith(fs_type, other)) return false;
  }
  return true;
}

bool IsBelow(absl::string_view path, absl::string_view mount_point) {
  if (mount_point == "/") return true;
  return absl::StartsWith(path, mount_point) &&
         (path.size() == mount_point.size() || path[mount_point.size()] == '/');
}

// The mount that a path lies on: the last of those with the longest mount point.
const Mount* MountOf(const std::vector<Mount>& mounts, absl::string_view path) {
  const Mount* found = nullptr;
  for (const Mount& mount : mounts) {
    if (IsBelow(path, mount.mount_point) &&
        (found == nullptr || mount.mount_point.size() >= found->mount_point.size()))
      found = &mount;
  }
  return found;
}

// The kernel's own number of a device: what stat answers is not it everywhere.
uint32_t DeviceOf(const Mount& mount) {
  unsigned major = 0, minor = 0;
  if (std::sscanf(mount.device.c_str(), "%u:%u", &major, &minor) != 2) return 0;
  return major << 20 | minor;
}

policy::DefaultFor DefaultOf(v1::EventKind kind) {
  switch (kind) {
    case v1::EXEC:
      return policy::DefaultFor::kCommand;
    case v1::OPEN:
      return policy::DefaultFor::kFileRead;
    case v1::UNIX_CONNECT:
    case v1::UNIX_SEND:
      return policy::DefaultFor::kUnixSocket;
    case v1::SIGNAL:
      return policy::DefaultFor::kSignal;
    default:
      return policy::DefaultFor::kFileWrite;
  }
}

constexpr const char* kCalls[] = {"ptrace", "mount", "move_mount", "umount2", "bpf", "finit_module"};

// Who it was about; the first process of all and kernel threads have no session either.
void DescribeTarget(const am_denied& denied, absl::string_view text, Event& event) {
  am_key key{};
  if (text.size() == sizeof(key)) std::memcpy(&key, text.data(), sizeof(key));
  if (event.kind() == v1::CALL) {
    event.mutable_call()->set_name(denied.open_flags < std::size(kCalls) ? kCalls[denied.open_flags] : "");
    return;
  }
  v1::Signal& signal = *event.mutable_signal();
  signal.set_signal(static_cast<int32_t>(denied.open_flags));
  signal.mutable_target()->set_pid(static_cast<int32_t>(key.pid));
  signal.mutable_target()->set_start_ns(static_cast<int64_t>(key.start_ns));
}

// Fills in what was done to which object; the subject borrows the event.
policy::Subject Describe(const am_denied& denied, absl::string_view text, Event& event) {
  event.set_kind(static_cast<v1::EventKind>(denied.kind));
  if (event.kind() == v1::SIGNAL || event.kind() == v1::CALL) {
    DescribeTarget(denied, text, event);
    return policy::SignalSubject(event.signal().signal(), LsmSignalTarget(denied.rank));
  }
  if (event.kind() == v1::UNIX_CONNECT || event.kind() == v1::UNIX_SEND) {
    v1::Unix& socket = *event.mutable_unix();
    socket.set_path(text.data(), text.size());
    socket.set_abstract(absl::StartsWith(text, "@"));
    socket.set_datagram(denied.open_flags != 0);
    return policy::UnixSubject(event.kind() == v1::UNIX_CONNECT ? policy::kUnixConnect : policy::kUnixSendto,
                               socket.path());
  }
  if (event.kind() == v1::EXEC) {
    event.set_exe(RecordPath(text, denied.h.flags));
    event.mutable_exec()->set_filename(event.exe());
    return policy::ExecSubject(event.exe(), {});
  }
  v1::File& file = *event.mutable_file();
  file.set_path(RecordPath(text.substr(0, denied.path_len), denied.h.flags));
  if (denied.new_path_len != 0) file.set_new_path(RecordPath(text.substr(denied.path_len), denied.h.flags));
  file.set_open_flags(denied.open_flags);
  return policy::FileSubject(
      event.kind() == v1::OPEN ? policy::kOpen | policy::kRead : uint32_t{policy::kWrite}, file.path());
}

}  // namespace

absl::StatusOr<std::unique_ptr<LsmProbe>> LsmProbe::Create(TaskRunner& core, Options options) {
  std::unique_ptr<LsmProbe> probe(new LsmProbe(core, std::move(options)));
  ASSIGN_OR_RETURN(probe->hooks_, LsmHooks::Create(probe->options_.pins, probe->options_.session_level));
  ASSIGN_OR_RETURN(probe->reader_,
                   RingReader::Create(probe->hooks_->map(LsmHooks::kDenials), AM_LSM_RING_BYTES, kMaxRecord));
  // Numbers of an earlier daemon's policies are not given again.
  uint32_t id = 0;
  for (const uint32_t* from = nullptr;
       bpf_map_get_next_key(probe->hooks_->map(LsmHooks::kPolicies), from, &id) == 0; from = &id) {
    probe->next_policy_ = std::max(probe->next_policy_, id + 1);
    probe->policies_[id];
  }
  return probe;
}

LsmProbe::~LsmProbe() {
  *alive_ = false;
  if (sink_ != nullptr) core_.UnwatchFd(hooks_->map(LsmHooks::kDenials));
  // Those of sessions that go on stay, and those that nobody has asked for yet.
  if (hooks_ != nullptr && sessions_.empty() && knows_earlier_) hooks_->Detach();
}

absl::Status LsmProbe::Attach(RecordSink& sink) {
  RETURN_IF_ERROR(core_.WatchFd(hooks_->map(LsmHooks::kDenials), [this] { Consume(kTurn); }));
  sink_ = &sink;
  return absl::OkStatus();
}

ProbeStats LsmProbe::Stats() const {
  ProbeStats stats;
  stats.records = records_;
  const uint32_t which = 0;
  uint64_t lost = 0;
  if (bpf_map_lookup_elem(hooks_->map(LsmHooks::kLost), &which, &lost) == 0) stats.lost = lost;
  stats.lost += hooks_->Skipped() + unowned_;
  return stats;
}

absl::Status LsmProbe::Write(uint32_t id, const Session& session, Written* written) {
  ASSIGN_OR_RETURN(const LsmPolicy policy, CompileLsm(*written->snapshot, hooks_->key(), options_.spare));
  for (const auto& [place, node] : policy.nodes) {
    am_lsm_key key{};
    key.hash = place.second;
    key.policy = id;
    key.kind = place.first;
    written->nodes.push_back(key);
    RETURN_IF_ERROR(Put(hooks_->map(LsmHooks::kNodes), &key, &node, "write a rule for the kernel"));
  }
  if (hooks_->Runs(kLsmUnix))
    RETURN_IF_ERROR(
        Put(hooks_->map(LsmHooks::kNames), &id, policy.names.get(), "write rules on sockets for the kernel"));
  RETURN_IF_ERROR(WriteAliases(id, policy, session, written));
  return Put(hooks_->map(LsmHooks::kPolicies), &id, &policy.head, "write a policy for the kernel");
}

// What rules name is held by inode too, and the root of each mount, so that an object is found where its file
// system has it.
absl::Status LsmProbe::WriteAliases(uint32_t id, const LsmPolicy& policy, const Session& session,
                                    Written* written) {
  std::vector<std::string> paths;
  for (const Mount& mount : session.mounts) {
    if (mount.root == "/") paths.push_back(mount.mount_point);
  }
  paths.insert(paths.end(), policy.roots.begin(), policy.roots.end());
  for (const std::string& path : paths) {
    const Mount* mount = MountOf(session.mounts, path);
    if (mount == nullptr || !HasOwnInodes(mount->fs_type)) continue;
    const std::vector<uint64_t> segments = LsmSegments(hooks_->key(), path);
    if (segments.size() > AM_LSM_ALIAS_DEPTH) continue;
    open_how how{};
    how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS;
    const UniqueFd fd(
        static_cast<int>(syscall(SYS_openat2, session.root.get(), path.c_str(), &how, sizeof(how))));
    struct stat st {};
    // Not there yet: its name holds it.
    if (!fd.valid() || fstat(fd.get(), &st) != 0) continue;
    am_lsm_inode key{};
    key.ino = st.st_ino;
    key.dev = DeviceOf(*mount);
    key.policy = id;
    am_lsm_alias alias{};
    alias.hash = LsmPathHash(segments);
    alias.depth = segments.size();
    std::copy(segments.begin(), segments.end(), alias.segment);
    written->aliases.push_back(key);
    RETURN_IF_ERROR(Put(hooks_->map(LsmHooks::kAliases), &key, &alias, "write an inode for the kernel"));
  }
  return absl::OkStatus();
}

absl::Status LsmProbe::Switch(uint64_t cgroup_id, Session& session) {
  Written written;
  written.snapshot = session.gate->snapshot();
  const uint32_t id = next_policy_++;
  absl::Status status = Write(id, session, &written);
  if (status.ok()) {
    am_lsm_session value{};
    value.policy = id;
    status = Put(hooks_->map(LsmHooks::kSessions), &cgroup_id, &value, "tell the kernel of a session");
  }
  policies_[id] = std::move(written);
  if (!status.ok()) {
    Erase(id);
    return status;
  }
  if (const uint32_t old = session.policy; old != 0) {
    core_.PostAfter(kOldPolicyStays, [this, alive = alive_, old] {
      if (*alive) Erase(old);
    });
  }
  session.policy = id;
  return absl::OkStatus();
}

void LsmProbe::Erase(uint32_t id) {
  const auto it = policies_.find(id);
  if (it == policies_.end()) return;
  for (const am_lsm_key& key : it->second.nodes) bpf_map_delete_elem(hooks_->map(LsmHooks::kNodes), &key);
  for (const am_lsm_inode& key : it->second.aliases)
    bpf_map_delete_elem(hooks_->map(LsmHooks::kAliases), &key);
  bpf_map_delete_elem(hooks_->map(LsmHooks::kPolicies), &id);
  bpf_map_delete_elem(hooks_->map(LsmHooks::kNames), &id);
  policies_.erase(it);
}

absl::Status LsmProbe::AddSession(uint64_t cgroup_id, pid_t pid, std::shared_ptr<Gate> gate) {
  Session session;
  session.gate = std::move(gate);
  ASSIGN_OR_RETURN(session.mounts, ReadMountinfo(absl::StrCat("/proc/", pid, "/mountinfo")));
  session.root.Reset(open(absl::StrCat("/proc/", pid, "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!session.root.valid()) return ErrnoStatus(errno, "open the session's root");
  RETURN_IF_ERROR(hooks_->Attach());
  ++added_;
  const absl::Status status = Switch(cgroup_id, session);
  if (status.ok()) {
    sessions_[cgroup_id] = std::move(session);
  } else if (sessions_.empty()) {
    DetachLater();
  }
  return status;
}

absl::Status LsmProbe::PolicyChanged(uint64_t cgroup_id) {
  const auto it = sessions_.find(cgroup_id);
  return it == sessions_.end() ? absl::OkStatus() : Switch(cgroup_id, it->second);
}

void LsmProbe::RemoveSession(uint64_t cgroup_id) {
  Drain();
  const auto it = sessions_.find(cgroup_id);
  if (it == sessions_.end()) return;
  bpf_map_delete_elem(hooks_->map(LsmHooks::kSessions), &cgroup_id);
  Erase(it->second.policy);
  sessions_.erase(it);
  if (sessions_.empty()) DetachLater();
}

bool LsmProbe::StopsSockets(uint64_t cgroup_id) const {
  return sessions_.count(cgroup_id) != 0 && hooks_->Runs(kLsmUnix);
}

bool LsmProbe::StopsSignals(uint64_t cgroup_id) const {
  return sessions_.count(cgroup_id) != 0 && hooks_->Runs(kLsmProcess);
}

void LsmProbe::DetachLater() {
  core_.PostAfter(kStaysAttached, [this, alive = alive_, added = added_] {
    if (*alive && sessions_.empty() && added_ == added) hooks_->Detach();
  });
}

void LsmProbe::KeepOwn() {
  std::vector<uint64_t> gone;
  uint64_t cgroup = 0;
  for (const uint64_t* from = nullptr;
       bpf_map_get_next_key(hooks_->map(LsmHooks::kSessions), from, &cgroup) == 0; from = &cgroup) {
    if (sessions_.count(cgroup) == 0) gone.push_back(cgroup);
  }
  for (const uint64_t dead : gone) bpf_map_delete_elem(hooks_->map(LsmHooks::kSessions), &dead);
  hooks_->DetachOthers();
  knows_earlier_ = true;
  if (sessions_.empty()) DetachLater();
  // Entries of policies that an earlier daemon has written: by their keys, since what they were of is not
  // known.
  const auto is_old = [this](uint32_t policy) {
    const auto it = policies_.find(policy);
    return it == policies_.end() || it->second.snapshot == nullptr;
  };
  std::vector<am_lsm_key> nodes;
  std::vector<am_lsm_inode> aliases;
  am_lsm_key node{};
  for (const am_lsm_key* from = nullptr;
       bpf_map_get_next_key(hooks_->map(LsmHooks::kNodes), from, &node) == 0; from = &node) {
    if (is_old(node.policy)) nodes.push_back(node);
  }
  am_lsm_inode inode{};
  for (const am_lsm_inode* from = nullptr;
       bpf_map_get_next_key(hooks_->map(LsmHooks::kAliases), from, &inode) == 0; from = &inode) {
    if (is_old(inode.policy)) aliases.push_back(inode);
  }
  std::vector<uint32_t> ids;
  for (const auto& [id, written] : policies_) {
    if (written.snapshot == nullptr) ids.push_back(id);
  }
  core_.PostAfter(kOldPolicyStays, [this, alive = alive_, nodes, aliases, ids] {
    if (!*alive) return;
    for (const am_lsm_key& key : nodes) bpf_map_delete_elem(hooks_->map(LsmHooks::kNodes), &key);
    for (const am_lsm_inode& key : aliases) bpf_map_delete_elem(hooks_->map(LsmHooks::kAliases), &key);
    for (const uint32_t id : ids) Erase(id);
  });
}

void LsmProbe::Drain() { Consume(kNoLimit); }

void LsmProbe::Consume(size_t limit) {
  if (sink_ == nullptr) return;
  reader_->Read(limit, [this](absl::Span<const uint8_t> bytes) { OnDenial(bytes); });
}

v1::Judgement LsmProbe::JudgementOf(const am_denied& denied, const policy::Subject& subject,
                                    const Gate& gate) const {
  if (denied.layer == AM_LSM_TOO_DEEP) {
    return policy::BuiltinDenial("a path that is too deep",
                                 absl::StrCat("paths of more than ", AM_LSM_DEPTH, " names are not judged"));
  }
  if (denied.layer == AM_LSM_OUTSIDE) {
    if (denied.kind == KIND_EXEC)
      return policy::BuiltinDenial("nameless programs",
                                   "a program that has no name any more cannot be judged");
    return denied.kind == KIND_CALL && denied.open_flags == AM_LSM_CALL_PTRACE
               ? policy::BuiltinDenial("processes outside of the session",
                                       "what runs outside of the session is not debugged from inside")
               : policy::BuiltinDenial("what holds the session",
                                       "this would change the host, or lead out of the session");
  }
  const auto it = policies_.find(denied.policy);
  policy::Verdict verdict;
  if (it == policies_.end() || it->second.snapshot == nullptr ||
      denied.layer >= it->second.snapshot->layers().size()) {
    // The daemon that wrote this policy is gone, and the one of now may have changed.
    const std::shared_ptr<const policy::Snapshot> current = gate.snapshot();
    verdict = policy::Evaluate(*current, subject, {});
    if (verdict.Stops() && verdict.layer >= 0) return policy::ToJudgement(*current, verdict, subject);
    return policy::BuiltinDenial("a rule of an earlier policy", "it was stopped while the daemon was away");
  }
  const policy::Snapshot& snapshot = *it->second.snapshot;
  // The kernel has of these what the engine has said of each signal, and no rules.
  if (denied.kind == KIND_SIGNAL) {
    verdict = policy::Evaluate(snapshot, subject, {});
    return policy::ToJudgement(snapshot, verdict, subject);
  }
  const policy::CompiledLayer& layer = snapshot.layers()[denied.layer];
  const bool by_rule = denied.rank > 0 && denied.rank <= layer.document->rules.size();
  const policy::DefaultFor what = DefaultOf(static_cast<v1::EventKind>(denied.kind));
  verdict.layer = static_cast<int>(denied.layer);
  verdict.posture = layer.posture;
  verdict.rule = by_rule ? &layer.rule(denied.rank - 1) : nullptr;
  verdict.reason = absl::StrCat("default for ", policy::DefaultName(what));
  verdict.decision = by_rule ? verdict.rule->decision : layer.defaults[static_cast<size_t>(what)];
  return policy::ToJudgement(snapshot, verdict, subject);
}

void LsmProbe::OnDenial(absl::Span<const uint8_t> bytes) {
  am_denied denied;
  if (bytes.size() < sizeof(denied)) return;
  std::memcpy(&denied, bytes.data(), sizeof(denied));
  if (bytes.size() - sizeof(denied) < size_t{denied.path_len} + denied.new_path_len) return;
  ++records_;
  const auto session = sessions_.find(denied.h.cgroup_id);
  if (session == sessions_.end()) {  // it ended while there was no daemon: nobody knows any more whose it was
    ++unowned_;
    return;
  }
  const Gate& gate = *session->second.gate;
  if (gate.proving()) return;
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof(denied),
                               denied.path_len + denied.new_path_len);
  Event event;
  const policy::Subject subject = Describe(denied, text, event);
  v1::Judgement& judgement = *event.mutable_judgement();
  judgement = JudgementOf(denied, subject, gate);
  if (denied.kind == KIND_EXEC && denied.open_flags == AM_LSM_MAPPED && judgement.message().empty())
    judgement.set_message("it was to be mapped as code");
  judgement.set_enforced(true);
  judgement.set_mechanism(kMechanism);
  judgement.set_error(static_cast<int32_t>(denied.error));
  EventOrigin origin{
      v1::LSM,     static_cast<int64_t>(denied.h.boot_ns), denied.h.cgroup_id, denied.h.pid, denied.h.tid,
      denied.h.uid};
  origin.start_ns = denied.h.start_ns;
  sink_->OnRecord(EncodeEventRecord(origin, event));
}

}  // namespace agentmon
