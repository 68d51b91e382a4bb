#include "daemon/probe/notify_probe.h"

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/kernel/seccomp_listener.h"
#include "daemon/probe/caller.h"
#include "daemon/probe/file_call.h"
#include "daemon/probe/file_path.h"

namespace agentmon {
namespace {

// One serving thread's view: caches of its own, the queue shared. Holds what it uses: a thread that hangs
// outlives the probe.
class FileCallServer : public NotifyServer {
 public:
  FileCallServer(CallTable calls, std::shared_ptr<RecordQueue> queue, std::shared_ptr<OpenDedupe> dedupe)
      : calls_(std::move(calls)), queue_(std::move(queue)), dedupe_(std::move(dedupe)) {}

  void Capture(const Listener& listener, const seccomp_notif& request) override {
    call_ = FileCall();
    result_ = CaptureResult::kNothing;
    const MediatedCall* call = calls_.Find(request.data.arch, request.data.nr);
    if (call == nullptr || request.pid == 0) return;  // pid 0: not in a pid namespace that we see
    boot_ns_ = clock_.BootNs();
    tid_ = static_cast<pid_t>(request.pid);
    caller_ = identities_.Find(tid_);
    look_at_files_ = listener.stuck < NotifyPool::kStuckNoFiles;
    result_ = call_.Capture(*call, request, {.look_at_files = look_at_files_});
    // Killed meanwhile: the call never happens, and what was read may be of another process.
    if (!NotifyIdValid(listener.fd.get(), request.id)) result_ = CaptureResult::kNothing;
  }

  void Finish(const Listener& listener) override {
    if (result_ != CaptureResult::kCall) return;
    FileRecord record = call_.Describe(look_at_files_ ? &resolver_ : nullptr, caller_, boot_ns_);
    record.cgroup_id = listener.cgroup_id;
    if (dedupe_ != nullptr && (record.kind == v1::CREATE || record.kind == v1::OPEN_WRITE)) {
      dedupe_->OpenedForWriting(listener.cgroup_id, caller_.tgid, record.path, boot_ns_);
    }
    queue_->Push(EncodeFileRecord(record));
  }

  void Lost() override { queue_->CountLost(1); }

 private:
  const CallTable calls_;
  const std::shared_ptr<RecordQueue> queue_;
  const std::shared_ptr<OpenDedupe> dedupe_;
  SystemClock clock_;
  CallerIdentities identities_;
  PathResolver resolver_;
  // Of the request in hand.
  FileCall call_;
  CaptureResult result_ = CaptureResult::kNothing;
  CallerIdentity caller_;
  pid_t tid_ = 0;
  int64_t boot_ns_ = 0;
  bool look_at_files_ = true;
};

}  // namespace

absl::Status NotifyProbe::Attach(RecordSink& sink) {
  queue_ = RecordQueue::Create(core_, sink, options_.queue_bytes);
  NotifyPool::Options pool;
  pool.lanes = options_.lanes;
  pool.shared = options_.shared;
  pool.make_server = [calls = calls_, queue = queue_, dedupe = options_.dedupe] {
    return std::make_unique<FileCallServer>(calls, queue, dedupe);
  };
  ASSIGN_OR_RETURN(pool_, NotifyPool::Start(std::move(pool)));
  return absl::OkStatus();
}

ProbeStats NotifyProbe::Stats() const { return queue_ != nullptr ? queue_->Stats() : ProbeStats{}; }

absl::Status NotifyProbe::AddListener(uint64_t cgroup_id, UniqueFd listener) {
  return pool_->Add(cgroup_id, std::move(listener));
}

void NotifyProbe::RemoveListener(uint64_t cgroup_id) { pool_->Remove(cgroup_id); }

}  // namespace agentmon
