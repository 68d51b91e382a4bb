#include "common/base/headroom.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace agentmon {
namespace {

absl::Status TooFew(absl::string_view what, absl::string_view what_to_do) {
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", what_to_do));
}

// ", which is 5", or nothing where there is no such limit.
std::string LimitText(__rlimit_resource resource, rlim_t unit) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return absl::StrCat(", which is ", limit.rlim_cur / unit);
}

absl::Status CheckDescriptors(int wanted) {
  std::vector<UniqueFd> taken;
  for (int i = 0; i < wanted; ++i) {
    taken.emplace_back(open("/", O_PATH | O_CLOEXEC));
    if (taken.back().valid()) continue;
    if (errno != EMFILE && errno != ENFILE) return absl::OkStatus();  // it is not their number
    if (errno == ENFILE) return TooFew("this machine has no file descriptors left", "close some programs");
    return TooFew(absl::StrCat("too few file descriptors are left for this process, ", wanted, " are needed"),
                  absl::StrCat("raise the limit 'ulimit -n'", LimitText(RLIMIT_NOFILE, 1)));
  }
  return absl::OkStatus();
}

size_t StackBytes() {
  pthread_attr_t attributes;
  size_t bytes = 0;
  pthread_attr_init(&attributes);  // with the size that threads get by default
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

absl::Status CheckMemory(size_t bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory != MAP_FAILED) {
    munmap(memory, bytes);
    return absl::OkStatus();
  }
  return TooFew(
      absl::StrCat("too little address space is left for this process, ", bytes >> 20, " MiB are needed"),
      absl::StrCat("raise the limit 'ulimit -v'", LimitText(RLIMIT_AS, 1024), ", or 'ulimit -d'",
                   LimitText(RLIMIT_DATA, 1024)));
}

void* WaitForPost(void* semaphore) {
  while (sem_wait(static_cast<sem_t*>(semaphore)) != 0) {
  }
  return nullptr;
}

absl::Status CheckThreads(int wanted) {
  sigset_t everything, before;
  sigfillset(&everything);
  pthread_sigmask(SIG_SETMASK, &everything, &before);  // what arrives meanwhile is for the caller's threads
  sem_t end;
  sem_init(&end, 0, 0);
  std::vector<pthread_t> threads;
  int error = 0;
  for (int i = 0; i < wanted && error == 0; ++i) {
    pthread_t thread;
    error = pthread_create(&thread, nullptr, WaitForPost, &end);
    if (error == 0) threads.push_back(thread);
  }
  for (size_t i = 0; i < threads.size(); ++i) sem_post(&end);
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  sem_destroy(&end);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) return absl::OkStatus();
  return TooFew(absl::StrCat("only ", threads.size(), " of the ", wanted,
                             " threads that are needed can be started (", ErrnoName(error), ")"),
                absl::StrCat("end some processes, or raise the limit 'ulimit -u'", LimitText(RLIMIT_NPROC, 1),
                             ", or the cgroup's pids.max"));
}

}  // namespace

void KeepOneHeap() { mallopt(M_ARENA_MAX, 1); }

absl::Status CheckHeadroom(const Headroom& wanted) {
  RETURN_IF_ERROR(CheckDescriptors(wanted.descriptors));
  RETURN_IF_ERROR(CheckMemory(wanted.memory_bytes + static_cast<size_t>(wanted.threads) * StackBytes()));
  return CheckThreads(wanted.threads);
}

}  // namespace agentmon
