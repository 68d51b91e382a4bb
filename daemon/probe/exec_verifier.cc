#include "daemon/probe/exec_verifier.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "absl/strings/string_view.h"
#include "bpf/process.skel.h"
#include "bpf/siphash.h"
#include "common/base/status.h"
#include "daemon/probe/bpf_load.h"

namespace agentmon {
namespace {

constexpr ino_t kFirstPidNamespace = 0xEFFFFFFC;  // PROC_PID_INIT_INO, include/linux/proc_ns.h

uint64_t SipHash(const PermitKey& key, absl::string_view bytes) {
  am_sip sip;
  am_sip_start(&sip, key.words[0], key.words[1]);
  const size_t length = bytes.size();
  uint64_t word = 0;
  for (; bytes.size() >= sizeof(word); bytes.remove_prefix(sizeof(word))) {
    std::memcpy(&word, bytes.data(), sizeof(word));
    am_sip_word(&sip, word);
  }
  word = 0;
  std::memcpy(&word, bytes.data(), bytes.size());
  return am_sip_end(&sip, word, length);
}

}  // namespace

absl::StatusOr<PermitKey> NewPermitKey() {
  PermitKey key;
  if (getrandom(key.words, sizeof(key.words), 0) != sizeof(key.words)) return ErrnoStatus(errno, "getrandom");
  return key;
}

am_permit MakePermit(const PermitKey& key, pid_t tgid, absl::Span<const std::string> argv, bool argv_cut) {
  std::string all;
  for (const std::string& word : argv) all.append(word).push_back('\0');
  if (argv.empty()) all.push_back('\0');  // Linux makes it one empty argument
  size_t first = all.find('\0') + 1;
  if (all.size() > AM_ARGV_MAX) {
    all.resize(AM_ARGV_MAX);
    argv_cut = true;
  }
  first = std::min(first, all.size());
  const absl::string_view tail = absl::string_view(all).substr(first);
  am_permit permit{};
  permit.all_hash = SipHash(key, all);
  permit.tail_hash = SipHash(key, tail);
  permit.all_bytes = static_cast<uint32_t>(all.size());
  permit.tail_bytes = static_cast<uint32_t>(tail.size());
  permit.tgid = static_cast<uint32_t>(tgid);
  permit.flags = argv_cut ? AM_PERMIT_CUT : 0;
  return permit;
}

absl::StatusOr<std::shared_ptr<ExecVerifier>> ExecVerifier::Create(const process_bpf& bpf,
                                                                   const PermitKey& key) {
  struct stat st {};
  if (stat("/proc/self/ns/pid", &st) != 0 || st.st_ino != kFirstPidNamespace)
    return absl::FailedPreconditionError("not in the first pid namespace");
  std::shared_ptr<ExecVerifier> verifier(new ExecVerifier(key));
  verifier->permits_.Reset(fcntl(bpf_map__fd(bpf.maps.permits), F_DUPFD_CLOEXEC, 3));
  verifier->verified_.Reset(fcntl(bpf_map__fd(bpf.maps.verified), F_DUPFD_CLOEXEC, 3));
  if (!verifier->permits_.valid() || !verifier->verified_.valid())
    return ErrnoStatus(errno, "keep the maps of permits");
  return verifier;
}

absl::Status ExecVerifier::Add(uint64_t cgroup_id, absl::Duration lenient) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  am_verified session{};
  session.lenient_until_ns =
      static_cast<uint64_t>(absl::ToInt64Nanoseconds(absl::DurationFromTimespec(now) + lenient));
  in_use_ = true;
  if (bpf_map_update_elem(verified_.get(), &cgroup_id, &session, BPF_NOEXIST) == 0 || errno == EEXIST)
    return absl::OkStatus();
  return ErrnoStatus(errno, "have the execs of a session verified");
}

void ExecVerifier::Remove(uint64_t cgroup_id) { bpf_map_delete_elem(verified_.get(), &cgroup_id); }

bool ExecVerifier::Permit(pid_t tid, pid_t tgid, absl::Span<const std::string> argv, bool argv_cut) {
  return !in_use_ || Put(tid, MakePermit(key_, tgid, argv, argv_cut));
}

bool ExecVerifier::PermitAny(pid_t tid, pid_t tgid) {
  am_permit permit{};
  permit.tgid = static_cast<uint32_t>(tgid);
  permit.flags = AM_PERMIT_ANY;
  return !in_use_ || Put(tid, permit);
}

bool ExecVerifier::Put(pid_t tid, const am_permit& permit) {
  const auto key = static_cast<uint32_t>(tid);
  return bpf_map_update_elem(permits_.get(), &key, &permit, BPF_ANY) == 0;
}

void ExecVerifier::Forget(pid_t tid) {
  const auto key = static_cast<uint32_t>(tid);
  if (in_use_) bpf_map_delete_elem(permits_.get(), &key);
}

}  // namespace agentmon
