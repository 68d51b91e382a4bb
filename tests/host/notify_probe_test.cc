// The notify probe behind real filters: every kind of call, names, and callers that do not behave.
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <thread>

#include <catch2/catch.hpp>

#include "daemon/probe/notify_probe.h"
#include "tests/host/filtered_child.h"
#include "tests/host/loop_task_runner.h"
#include "tests/host/program.h"
#include "tests/host/record_collector.h"

namespace agentmon {
namespace {

constexpr uint64_t kCgroup = 4711;

struct Fixture {
  TempDir dir;
  LoopTaskRunner core;
  RecordCollector seen;
  NotifyProbe probe;
  bool attached = false;

  explicit Fixture(NotifyProbe::Options options = {}) : probe(core, options) {}

  // Attaches late, so that a first child is forked while there are no threads: sanitizers' allocators need
  // that.
  void Serve(uint64_t cgroup_id, FilteredChild& child) {
    if (!attached) REQUIRE(probe.Attach(seen).ok());
    attached = true;
    REQUIRE(probe.AddListener(cgroup_id, child.TakeListener()).ok());
  }

  // Runs `body` in the directory, behind a filter, to its end; its exit status.
  int Run(const std::function<int()>& body) {
    FilteredChild child([&] { return chdir(dir.path().c_str()) != 0 ? 212 : body(); });
    Serve(kCgroup, child);
    child.Go();
    const int status = child.Wait();
    // The listener goes with the last process; what it sent before is queued by then.
    probe.RemoveListener(kCgroup);
    const uint64_t before = seen.files.size();
    core.RunUntil([&] { return seen.files.size() > before; }, absl::Milliseconds(50));
    core.RunUntil([] { return false; }, absl::Milliseconds(20));
    return status;
  }
  std::string In(const std::string& name) const { return dir / name; }
};

// What these calls answer is not the point here.
template <typename T>
void Ignore(T) {}

int Touch(const char* name) { return close(open(name, O_CREAT | O_WRONLY, 0644)); }

}  // namespace

TEST_CASE("every mediated call is seen with its kind and names") {
  Fixture f;
  const int status = f.Run([] {
    const int d = open(".", O_RDONLY | O_DIRECTORY);
    Touch("a");                                         // CREATE
    Touch("a");                                         // OPEN_WRITE
    close(open("a", O_WRONLY));                         // OPEN_WRITE
    close(open("a", O_RDWR | O_TRUNC));                 // OPEN_WRITE
    close(open("a", O_CREAT | O_EXCL | O_RDWR, 0600));  // CREATE, fails
    close(open("a", O_CREAT, 0600));                    // a read: nothing
    close(syscall(SYS_creat, "c", 0640));
    close(syscall(SYS_open, "o", O_CREAT | O_WRONLY, 0600));
    open_how how{};
    how.flags = O_CREAT | O_WRONLY;
    how.mode = 0600;
    close(syscall(SYS_openat2, d, "o2", &how, sizeof(how)));
    how.flags = O_RDONLY;
    how.mode = 0;
    close(syscall(SYS_openat2, d, "o2", &how, sizeof(how)));  // nothing
    close(open(".", O_TMPFILE | O_RDWR, 0600));
    mkdir("d", 0750);
    mkdirat(d, "d/e", 0700);
    rename("a", "d/a");
    renameat(d, "d/a", d, "d/b");
    syscall(SYS_renameat2, d, "d/b", d, "b", 1);
    Ignore(link("b", "l"));
    Ignore(linkat(d, "b", d, "d/l", 0));
    Ignore(symlink("../else where", "s"));
    Ignore(symlinkat("t", d, "d/s"));
    mknod("p", S_IFIFO | 0600, 0);
    mknodat(d, "d/p", S_IFIFO | 0600, 0);
    chmod("b", 0604);
    Ignore(fchmodat(d, "b", 0605, 0));
    syscall(452, d, "b", 0606, 0);
    Ignore(chown("b", 12, 34));
    Ignore(lchown("s", -1, 34));
    Ignore(fchownat(d, "b", 12, -1, 0));
    Ignore(truncate("b", 77));
    const int b = open("b", O_RDWR);
    fchmod(b, 0600);
    Ignore(fchown(b, 1, 2));
    Ignore(fchownat(b, "", 3, 4, AT_EMPTY_PATH));
    if (ftruncate(b, 7) != 0) return 1;  // nothing: the file was opened for writing
    unlink("l");
    unlinkat(d, "d/l", 0);
    unlinkat(d, "d/e", AT_REMOVEDIR);
    rmdir("d/none");
    close(open("b", O_RDONLY));  // nothing
    return 0;
  });
  REQUIRE(status == 0);
  const std::vector<std::string> want = {"CREATE " + f.In("a"),
                                         "OPEN_WRITE " + f.In("a"),
                                         "OPEN_WRITE " + f.In("a"),
                                         "OPEN_WRITE " + f.In("a"),
                                         "CREATE " + f.In("a"),
                                         "CREATE " + f.In("c"),
                                         "CREATE " + f.In("o"),
                                         "CREATE " + f.In("o2"),
                                         "CREATE " + f.dir.path(),
                                         "MKDIR " + f.In("d"),
                                         "MKDIR " + f.In("d/e"),
                                         "RENAME " + f.In("a") + " > " + f.In("d/a"),
                                         "RENAME " + f.In("d/a") + " > " + f.In("d/b"),
                                         "RENAME " + f.In("d/b") + " > " + f.In("b"),
                                         "LINK " + f.In("b") + " > " + f.In("l"),
                                         "LINK " + f.In("b") + " > " + f.In("d/l"),
                                         "SYMLINK " + f.In("s") + " > ../else where",
                                         "SYMLINK " + f.In("d/s") + " > t",
                                         "MKNOD " + f.In("p"),
                                         "MKNOD " + f.In("d/p"),
                                         "CHMOD " + f.In("b"),
                                         "CHMOD " + f.In("b"),
                                         "CHMOD " + f.In("b"),
                                         "CHOWN " + f.In("b"),
                                         "CHOWN " + f.In("s"),
                                         "CHOWN " + f.In("b"),
                                         "TRUNCATE " + f.In("b"),
                                         "OPEN_WRITE " + f.In("b"),
                                         "CHMOD " + f.In("b"),
                                         "CHOWN " + f.In("b"),
                                         "CHOWN " + f.In("b"),
                                         "DELETE " + f.In("l"),
                                         "DELETE " + f.In("d/l"),
                                         "RMDIR " + f.In("d/e"),
                                         "RMDIR " + f.In("d/none")};
  CHECK(f.seen.Lines() == want);
  REQUIRE(f.seen.files.size() == want.size());
  const auto at = [&](size_t i) -> const am_file& { return f.seen.files[i].file; };
  CHECK(at(0).mode == 0644);
  CHECK((at(0).open_flags & (O_CREAT | O_WRONLY)) == (O_CREAT | O_WRONLY));
  CHECK(at(0).h.cgroup_id == kCgroup);
  CHECK(at(0).h.source == v1::NOTIFY);
  CHECK(at(0).h.flags == AM_F_AS_ASKED);
  CHECK(at(0).h.boot_ns != 0);
  CHECK(at(9).mode == 0750);
  CHECK(at(22).mode == 0606);
  CHECK((at(23).uid == 12 && at(23).gid == 34));
  CHECK((at(24).uid == -1 && at(24).gid == 34));
  CHECK((at(30).uid == 3 && at(30).gid == 4));
  CHECK(at(26).size == 77);
  CHECK(f.probe.Stats().lost == 0);
}

TEST_CASE("names are resolved but for their last component") {
  Fixture f;
  std::filesystem::create_directories(f.In("real/sub"));
  std::filesystem::create_directory_symlink("real", f.In("link"));
  std::filesystem::create_symlink("real/file", f.In("to-file"));
  REQUIRE(f.Run([&f] {
    Touch("link/x");
    Touch("link/sub/../y");
    Touch("./real//z/");
    Touch("to-file");
    Touch((f.In("link") + "/abs").c_str());
    mkdir("link/.", 0700);
    const int fd = open("link", O_RDONLY | O_DIRECTORY);
    unlinkat(fd, "x", 0);
    unlinkat(77, "nowhere", 0);
    mkdir("/dev/fd/x", 0700);
    return 0;
  }) == 0);
  const std::vector<std::string> lines = f.seen.Lines();
  REQUIRE(lines.size() == 9);
  CHECK(lines[0] == "CREATE " + f.In("real/x"));
  CHECK(lines[1] == "CREATE " + f.In("real/y"));
  CHECK(lines[2] == "CREATE " + f.In("real/z"));
  CHECK(lines[3] == "CREATE " + f.In("to-file"));
  CHECK(lines[4] == "CREATE " + f.In("real/abs"));
  CHECK(lines[5] == "MKDIR " + f.In("real"));
  CHECK(lines[6] == "DELETE " + f.In("real/x"));
  CHECK(lines[7] == "DELETE /nowhere");
  CHECK(lines[8] == "MKDIR /proc/" + std::to_string(f.seen.files[8].file.h.pid) + "/fd/x");
}

TEST_CASE("names of a chrooted caller are resolved in its root") {
  Fixture f;
  std::filesystem::create_directories(f.In("jail/etc/deep"));
  std::filesystem::create_directory_symlink("/etc", f.In("jail/conf"));
  REQUIRE(f.Run([&f] {
    if (chroot(f.In("jail").c_str()) != 0 || chdir("/etc") != 0) return 1;
    mkdir("/conf/a", 0700);
    mkdir("deep/b", 0700);
    mkdir("c", 0700);
    return 0;
  }) == 0);
  CHECK(f.seen.Lines() == std::vector<std::string>{"MKDIR " + f.In("jail/etc/a"),
                                                   "MKDIR " + f.In("jail/etc/deep/b"),
                                                   "MKDIR " + f.In("jail/etc/c")});
}

TEST_CASE("a directory that was removed keeps its name") {
  Fixture f;
  REQUIRE(f.Run([] {
    mkdir("gone", 0700);
    if (chdir("gone") != 0) return 1;
    rmdir("../gone");
    return mkdir("in", 0700) == -1 && errno == ENOENT ? 0 : 1;
  }) == 0);
  CHECK(f.seen.Has("MKDIR " + f.In("gone/in")));
}

TEST_CASE("odd names arrive as they are") {
  Fixture f;
  const std::string longest(255, 'n');
  REQUIRE(f.Run([&longest] {
    Touch("with\nnewline");
    Touch("\xff\xfe");
    Touch(longest.c_str());
    mkdir("", 0700);
    const std::string too_long = "/" + std::string(5000, 'x');
    return mkdir(too_long.c_str(), 0700) == -1 && errno == ENAMETOOLONG ? 0 : 1;
  }) == 0);
  REQUIRE(f.seen.files.size() == 5);
  CHECK(f.seen.files[0].path == f.In("with\nnewline"));
  CHECK(f.seen.files[1].path == f.In("\xff\xfe"));
  CHECK(f.seen.files[2].path == f.In(longest));
  CHECK((f.seen.files[4].file.h.flags & AM_F_PATH_CUT) != 0);
}

TEST_CASE("a name that cannot be read leaves the call its own error") {
  Fixture f;
  REQUIRE(f.Run([] {
    char* page =
        static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(page + 4096, 4096);
    memcpy(page + 4096 - 2, "e", 2);  // ends at the end of the mapping
    if (mkdir(page + 4096 - 2, 0700) != 0) return 1;
    memset(page, 'x', 4096);  // runs into it
    if (mkdir(page + 4090, 0700) != -1 || errno != EFAULT) return 2;
    if (mkdir(reinterpret_cast<char*>(8), 0700) != -1 || errno != EFAULT) return 3;
    return syscall(SYS_mkdir, nullptr, 0700) == -1 && errno == EFAULT ? 0 : 4;
  }) == 0);
  CHECK(f.seen.Lines() == std::vector<std::string>{"MKDIR " + f.In("e")});
}

TEST_CASE("a call of a thread carries its process and its own id") {
  Fixture f;
  const int status = f.Run([] {
    std::thread([] {
      mkdir("t", 0700);
      mkdir("u", 0700);
    }).join();
    mkdir("m", 0700);
    return 0;
  });
  REQUIRE(status == 0);
  REQUIRE(f.seen.files.size() == 3);
  const am_header& thread = f.seen.files[0].file.h;
  const am_header& main = f.seen.files[2].file.h;
  CHECK(main.pid == main.tid);
  CHECK(thread.pid == main.pid);
  CHECK(thread.tid != main.pid);
  CHECK(f.seen.files[1].file.h.pid == main.pid);
  CHECK(main.uid == 0);
}

#if defined(__x86_64__)
TEST_CASE("32-bit system calls are seen") {
  Fixture f;
  const int status = f.Run([] {
    char* low = static_cast<char*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0));
    const auto call = [](long nr, long a, long b, long c) {
      long r;
      asm volatile("int $0x80"
                   : "=a"(r)
                   : "a"(nr), "b"(a), "c"(b), "d"(c)
                   : "memory", "r8", "r9", "r10", "r11");
      return r;
    };
    strcpy(low, "thirtytwo");
    const long r = call(39, reinterpret_cast<long>(low), 0700, 0);  // mkdir
    if (r == -ENOSYS) return 77;
    call(193, reinterpret_cast<long>(low), 5, 1);       // truncate64
    call(5, reinterpret_cast<long>(low), O_RDONLY, 0);  // open
    return r == 0 ? 0 : 1;
  });
  if (status == 77 || status == 128 + SIGSEGV) return;  // a kernel without 32-bit calls
  CHECK(status == 0);
  CHECK(f.seen.Lines() ==
        std::vector<std::string>{"MKDIR " + f.In("thirtytwo"), "TRUNCATE " + f.In("thirtytwo")});
  REQUIRE(f.seen.files.size() == 2);
  CHECK(f.seen.files[1].file.size == (uint64_t{1} << 32 | 5));
}
#endif

TEST_CASE("a storm of timers with restarting handlers disturbs no call") {
  Fixture f;
  const int status = f.Run([] {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, nullptr);
    const itimerval every{{0, 700}, {0, 700}};
    setitimer(ITIMER_REAL, &every, nullptr);
    for (int i = 0; i < 2000; ++i) {
      const int fd = open("f", O_CREAT | O_WRONLY, 0600);
      if (fd < 0 || close(fd) != 0 || mkdir("d", 0755) != 0 || rmdir("d") != 0) return 1;
    }
    return 0;
  });
  CHECK(status == 0);
  CHECK(f.seen.files.size() >= 6000);  // a restarted call asks again
}

TEST_CASE("callers that are killed in the middle of calls harm nobody else") {
  Fixture f;
  FilteredChild other([&] {
    for (int i = 0; i < 3000; ++i) {
      if (mkdir((f.In("o")).c_str(), 0700) != 0 || rmdir(f.In("o").c_str()) != 0) return 1;
    }
    return 0;
  });
  f.Serve(99, other);
  other.Go();
  for (int i = 0; i < 30; ++i) {
    FilteredChild child([&] {
      for (;;) mkdir(f.In("k").c_str(), 0700), rmdir(f.In("k").c_str());
      return 0;
    });
    f.Serve(100, child);
    child.Go();
    const size_t before = f.seen.files.size();
    REQUIRE(f.core.RunUntil([&] { return f.seen.files.size() > before + 20; }));
    child.Signal(SIGKILL);
    CHECK(child.Wait() == 128 + SIGKILL);
    f.probe.RemoveListener(100);
  }
  CHECK(other.Wait() == 0);
  CHECK(f.probe.Stats().lost == 0);
}

TEST_CASE("a stopped caller goes on where it was") {
  Fixture f;
  FilteredChild child([&] {
    for (int i = 0; i < 2000; ++i) {
      if (mkdir(f.In("s").c_str(), 0700) != 0 || rmdir(f.In("s").c_str()) != 0) return 1;
    }
    return 0;
  });
  f.Serve(kCgroup, child);
  child.Go();
  for (int i = 0; i < 20 && !child.Ended(); ++i) {
    child.Signal(SIGSTOP);
    f.core.RunUntil([] { return false; }, absl::Milliseconds(2));
    child.Signal(SIGCONT);
    f.core.RunUntil([] { return false; }, absl::Milliseconds(2));
  }
  CHECK(child.Wait() == 0);
}

TEST_CASE("a full queue loses records and counts them, and the caller notices nothing") {
  NotifyProbe::Options options;
  options.queue_bytes = 2000;
  Fixture f(options);
  CHECK(f.Run([] {
    for (int i = 0; i < 500; ++i) {
      if (mkdir("q", 0700) != 0 || rmdir("q") != 0) return 1;
    }
    return 0;
  }) == 0);
  CHECK(f.probe.Stats().lost > 0);
  CHECK(f.probe.Stats().lost + f.seen.files.size() == 1000);
}

}  // namespace agentmon
