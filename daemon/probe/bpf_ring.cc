#include "daemon/probe/bpf_ring.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bpf/iterators.skel.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "daemon/probe/bpf_load.h"

namespace agentmon {
namespace {

// While records come the consumer looks by itself, without being woken, at this distance.
constexpr absl::Duration kPollEvery = absl::Milliseconds(2);
// After the ring was armed it looks once more at once, and once much later: a program may have read
// "not armed" just before and submitted just after, possibly preempted in between.
constexpr absl::Duration kLastLook = absl::Seconds(1);
// Records of one turn of the core, which has other work too.
constexpr size_t kTurn = 16'384;
constexpr size_t kNoLimit = AM_RING_BYTES;
// The longest record is an exec with three paths and its arguments.
constexpr size_t kMaxRecord = sizeof(am_exec) + 3 * AM_PATH_MAX + AM_ARGV_MAX;

absl::StatusOr<UniqueFd> MakeMap(bpf_map_type type, const char* name, uint32_t key_bytes,
                                 uint32_t value_bytes, uint32_t entries, uint32_t flags = 0) {
  LIBBPF_OPTS(bpf_map_create_opts, options);
  options.map_flags = flags;
  UniqueFd fd(bpf_map_create(type, name, key_bytes, value_bytes, entries, &options));
  if (!fd.valid()) return BpfError(errno, absl::StrCat("make the BPF map ", name));
  return fd;
}

}  // namespace

absl::StatusOr<uint32_t> CgroupLevel(int cgroup_fd) {
  ASSIGN_OR_RETURN(auto skeleton, LoadSkeleton<iterators_bpf>("cgroup iterator", [](iterators_bpf* s) {
                     bpf_program__set_autoload(s->progs.list_tasks, false);
                     return absl::OkStatus();
                   }));
  bpf_iter_link_info info{};
  info.cgroup.cgroup_fd = static_cast<uint32_t>(cgroup_fd);
  info.cgroup.order = BPF_CGROUP_ITER_SELF_ONLY;
  LIBBPF_OPTS(bpf_iter_attach_opts, options);
  options.link_info = &info;
  options.link_info_len = sizeof(info);
  UniqueLink link(bpf_program__attach_iter(skeleton->progs.cgroup_level, &options));
  if (link == nullptr) return BpfError(errno, "attach the cgroup iterator");
  UniqueFd iter(bpf_iter_create(bpf_link__fd(link.get())));
  if (!iter.valid()) return BpfError(errno, "start the cgroup iterator");
  uint32_t level = 0;
  if (read(iter.get(), &level, sizeof(level)) != sizeof(level))
    return BpfError(errno, "read the cgroup's level");
  return level;
}

absl::StatusOr<std::unique_ptr<BpfRing>> BpfRing::Create(int base_cgroup_fd, TaskRunner& runner) {
  RETURN_IF_ERROR(CheckBpf());
  ASSIGN_OR_RETURN(const uint32_t level, CgroupLevel(base_cgroup_fd));
  std::unique_ptr<BpfRing> ring(new BpfRing(runner, level + 1));
  RETURN_IF_ERROR(ring->MakeMaps());
  return ring;
}

absl::Status BpfRing::MakeMaps() {
  ASSIGN_OR_RETURN(events_, MakeMap(BPF_MAP_TYPE_RINGBUF, "am_events", 0, 0, AM_RING_BYTES));
  ASSIGN_OR_RETURN(state_,
                   MakeMap(BPF_MAP_TYPE_ARRAY, "am_ring_state", 4, sizeof(am_ring_state), 1, BPF_F_MMAPABLE));
  ASSIGN_OR_RETURN(lost_, MakeMap(BPF_MAP_TYPE_PERCPU_ARRAY, "am_lost", 4, 8, AM_TYPE_COUNT));
  ASSIGN_OR_RETURN(sessions_, MakeMap(BPF_MAP_TYPE_HASH, "am_sessions", 8, 4, AM_SESSIONS_MAX));
  void* state = mmap(nullptr, sizeof(am_ring_state), PROT_READ | PROT_WRITE, MAP_SHARED, state_.get(), 0);
  if (state == MAP_FAILED) return ErrnoStatus(errno, "map the ring's state");
  armed_ = &static_cast<am_ring_state*>(state)->armed;
  ASSIGN_OR_RETURN(reader_, RingReader::Create(events_.get(), AM_RING_BYTES, kMaxRecord));
  wake_.Reset(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  if (!wake_.valid() || epoll_ctl(wake_.get(), EPOLL_CTL_ADD, events_.get(), &event) != 0) {
    return ErrnoStatus(errno, "watch the ring");
  }
  return absl::OkStatus();
}

BpfRing::~BpfRing() {
  *alive_ = false;
  if (sink_ != nullptr) runner_.UnwatchFd(wake_.get());
  if (armed_ != nullptr) munmap(const_cast<uint32_t*>(armed_), sizeof(am_ring_state));
}

absl::Status BpfRing::Start(RecordSink& sink) {
  if (sink_ == &sink) return absl::OkStatus();
  if (sink_ != nullptr) return absl::FailedPreconditionError("the ring has a sink already");
  RETURN_IF_ERROR(runner_.WatchFd(wake_.get(), [this] { OnWake(); }));
  sink_ = &sink;
  Arm();
  return absl::OkStatus();
}

void BpfRing::OnSample(absl::Span<const uint8_t> bytes) {
  const auto* header = reinterpret_cast<const am_header*>(bytes.data());
  if (bytes.size() >= sizeof(am_header) && header->type < AM_TYPE_COUNT) ++records_[header->type];
  sink_->OnRecord(bytes);
}

size_t BpfRing::Consume(size_t limit) {
  if (sink_ == nullptr || draining_) return 0;
  draining_ = true;  // a sink may call Drain
  const size_t records = reader_->Read(limit, [this](absl::Span<const uint8_t> bytes) { OnSample(bytes); });
  draining_ = false;
  return records;
}

void BpfRing::Drain() {
  if (Consume(kNoLimit) > 0) PollLater();
}

void BpfRing::OnWake() {
  epoll_event event;
  epoll_wait(wake_.get(), &event, 1, 0);  // edge-triggered: takes the edge, or it would be reported for ever
  Consume(kTurn);
  PollLater();
}

void BpfRing::PollLater() {
  quiet_polls_ = 0;
  if (!polling_) PollAfter(kPollEvery);
}

void BpfRing::PollAfter(absl::Duration delay) {
  polling_ = delay == kPollEvery;
  runner_.PostAfter(delay, [this, alive = alive_, poll = ++poll_] {
    if (*alive && poll == poll_) Poll();
  });
}

// Busy, busy, nothing: armed; nothing: one last look, far away; nothing: asleep.
void BpfRing::Poll() {
  polling_ = false;
  const bool found = Consume(kTurn) > 0;
  quiet_polls_ = found ? 0 : quiet_polls_ + 1;
  if (quiet_polls_ == 1) Arm();
  if (quiet_polls_ < 3) PollAfter(quiet_polls_ == 2 ? kLastLook : kPollEvery);
}

void BpfRing::Arm() {
  *armed_ = 1;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Consume(kTurn);
}

absl::Status BpfRing::AddSession(uint64_t cgroup_id) {
  const uint32_t one = 1;
  if (bpf_map_update_elem(sessions_.get(), &cgroup_id, &one, BPF_ANY) == 0) return absl::OkStatus();
  if (errno == E2BIG)
    return absl::ResourceExhaustedError(absl::StrCat("more than ", AM_SESSIONS_MAX, " sessions"));
  return ErrnoStatus(errno, "add a session to the BPF map");
}

absl::Status BpfRing::RemoveSession(uint64_t cgroup_id) {
  if (bpf_map_delete_elem(sessions_.get(), &cgroup_id) == 0 || errno == ENOENT) return absl::OkStatus();
  return ErrnoStatus(errno, "remove a session from the BPF map");
}

bool BpfRing::HasSession(uint64_t cgroup_id) const {
  uint32_t value;
  return bpf_map_lookup_elem(sessions_.get(), &cgroup_id, &value) == 0;
}

uint64_t BpfRing::Lost(am_type type) const {
  std::vector<uint64_t> per_cpu(static_cast<size_t>(libbpf_num_possible_cpus()));
  const uint32_t key = type;
  if (bpf_map_lookup_elem(lost_.get(), &key, per_cpu.data()) != 0) return 0;
  uint64_t sum = 0;
  for (uint64_t count : per_cpu) sum += count;
  return sum;
}

absl::Status BpfRing::Reuse(bpf_map* map, int fd) {
  if (map == nullptr) return absl::InternalError("a BPF object lacks a shared map");
  if (const int error = bpf_map__reuse_fd(map, fd); error != 0) return ErrnoStatus(-error, "share a BPF map");
  return absl::OkStatus();
}

}  // namespace agentmon
