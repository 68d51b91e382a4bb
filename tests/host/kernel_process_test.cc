#include <linux/sched.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "common/kernel/proc_fs.h"
#include "tests/host/kernel_process_rig.h"

namespace agentmon {
namespace {

TEST_CASE("a program in a session is recorded with its arguments, directory and end") {
  ProcessRig rig;
  const pid_t pid = RunIn(*rig.session, [] {
    if (chdir("/usr/bin") != 0) return 98;
    execl("/bin/sh", "sh", "-c", "exit 7", nullptr);
    return 97;
  });
  const int status = WaitFor(pid);
  REQUIRE(WEXITSTATUS(status) == 7);
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Exited(pid); }));
  const std::vector<Event> execs = rig.sink.Of(v1::EXEC, pid);
  REQUIRE(execs.size() == 1);
  const Event& exec = execs[0];
  CHECK(exec.exe() == std::filesystem::canonical("/bin/sh"));
  CHECK(exec.exec().cwd() == "/usr/bin");
  CHECK(exec.exec().filename() == "/bin/sh");
  REQUIRE(exec.exec().argv_size() == 3);
  CHECK(exec.exec().argv(2) == "exit 7");
  CHECK(exec.parent().pid() == getpid());
  CHECK(exec.source() == v1::PROCESS);
  const Event exit = rig.sink.Of(v1::EXIT, pid).at(0);
  CHECK(exit.exit().status() == 7);
  CHECK(exit.exit().signal() == 0);
  CHECK(exit.exit().peak_rss_bytes() > 100'000);
  CHECK(exit.process().start_ns() == exec.process().start_ns());
  CHECK(rig.sink.malformed == 0);
}

// Runs a program in the session, waits for its end to be recorded, answers the wait status.
int RunProgram(ProcessRig& rig, const std::function<int()>& body, pid_t* pid) {
  *pid = RunIn(*rig.session, body);
  const int status = WaitFor(*pid);
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Exited(*pid); }));
  CHECK(rig.sink.malformed == 0);
  return status;
}

Event OnlyExec(const ProcessRig& rig, pid_t pid) {
  const std::vector<Event> execs = rig.sink.Of(v1::EXEC, pid);
  REQUIRE(execs.size() == 1);
  return execs[0];
}

class TempDirectory {
 public:
  TempDirectory() {
    char name[] = "/tmp/agentmon-test-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~TempDirectory() {
    // By the system's rm: the tests make paths that are longer than PATH_MAX.
    const pid_t pid = fork();
    if (pid == 0) {
      execl("/bin/rm", "rm", "-rf", path_.c_str(), nullptr);
      _exit(1);
    }
    WaitFor(pid);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Goes down `levels` directories with names of `bytes` bytes, made on the way.
bool Descend(int levels, size_t bytes) {
  const std::string name(bytes, 'd');
  for (int i = 0; i < levels; ++i) {
    if ((mkdir(name.c_str(), 0755) != 0 && errno != EEXIST) || chdir(name.c_str()) != 0) return false;
  }
  return true;
}

TEST_CASE("a directory of 4,000 bytes is recorded in full") {
  ProcessRig rig;
  TempDirectory temp;
  std::string expected = temp.path();
  for (int i = 0; i < 20; ++i) expected += "/" + std::string(197, 'd');
  REQUIRE(expected.size() > 3960);
  pid_t pid;
  RunProgram(
      rig,
      [&] {
        if (chdir(temp.path().c_str()) != 0 || !Descend(20, 197)) return 98;
        execl("/bin/true", "true", nullptr);
        return 97;
      },
      &pid);
  const Event exec = OnlyExec(rig, pid);
  CHECK(exec.exec().cwd() == expected);
  CHECK_FALSE(exec.cut());
}

TEST_CASE("a directory beyond 4,096 bytes keeps its innermost part and says that it was cut") {
  ProcessRig rig;
  TempDirectory temp;
  pid_t pid;
  RunProgram(
      rig,
      [&] {
        if (chdir(temp.path().c_str()) != 0 || !Descend(30, 200)) return 98;
        execl("/bin/true", "true", nullptr);
        return 97;
      },
      &pid);
  const Event exec = OnlyExec(rig, pid);
  CHECK(exec.cut());
  CHECK(exec.exec().cwd().substr(0, 5) == ".../d");
  CHECK(exec.exec().cwd().size() == 3 + 20 * 201);
  CHECK(exec.exe() == std::filesystem::canonical("/bin/true"));
}

TEST_CASE("names are bytes: 255 of them, newlines, no UTF-8") {
  ProcessRig rig;
  TempDirectory temp;
  const std::string name = "new\nline\xff\xfe\x80 '\"" + std::string(255 - 14, 'x');
  REQUIRE(name.size() == 255);
  const std::string path = temp.path() + "/" + name;
  std::filesystem::copy_file("/bin/true", path);
  pid_t pid;
  const int status = RunProgram(
      rig,
      [&] {
        execl(path.c_str(), "a\nb", "\xff\x01", "", nullptr);
        return 97;
      },
      &pid);
  CHECK(status == 0);
  const Event exec = OnlyExec(rig, pid);
  CHECK(exec.exe() == path);
  CHECK(exec.exec().filename() == path);
  REQUIRE(exec.exec().argv_size() == 3);
  CHECK(exec.exec().argv(0) == "a\nb");
  CHECK(exec.exec().argv(1) == "\xff\x01");
  CHECK(exec.exec().argv(2).empty());
  CHECK(exec.exec().argv_bytes() == 4 + 3 + 1);
  CHECK_FALSE(exec.exec().argv_cut());
}

TEST_CASE("arguments are kept up to 64 KiB, and more of them are said to be cut") {
  ProcessRig rig;
  pid_t pid;
  SECTION("exactly 64 KiB") {
    RunProgram(
        rig, [] { return ExecWithArgumentBytes(AM_ARGV_MAX); }, &pid);
    const v1::Exec exec = OnlyExec(rig, pid).exec();
    CHECK(exec.argv_bytes() == AM_ARGV_MAX);
    CHECK_FALSE(exec.argv_cut());
    CHECK(exec.argv_size() == 8);
  }
  SECTION("one byte more") {
    RunProgram(
        rig, [] { return ExecWithArgumentBytes(AM_ARGV_MAX + 1); }, &pid);
    const v1::Exec exec = OnlyExec(rig, pid).exec();
    CHECK(exec.argv_bytes() == AM_ARGV_MAX + 1);
    CHECK(exec.argv_cut());
  }
  SECTION("a megabyte") {
    RunProgram(
        rig, [] { return ExecWithArgumentBytes(1 << 20); }, &pid);
    const v1::Exec exec = OnlyExec(rig, pid).exec();
    CHECK(exec.argv_bytes() == 1 << 20);
    CHECK(exec.argv_cut());
    size_t kept = 0;
    for (const std::string& arg : exec.argv()) kept += arg.size() + 1;
    CHECK(kept == AM_ARGV_MAX + 1);  // the last one lacks its NUL
  }
}

TEST_CASE("a script is asked for by its name and executed by its interpreter") {
  ProcessRig rig;
  TempDirectory temp;
  const std::string script = temp.path() + "/script";
  std::ofstream(script) << "#!/bin/sh\nexit 3\n";
  REQUIRE(chmod(script.c_str(), 0755) == 0);
  pid_t pid;
  const int status = RunProgram(
      rig,
      [&] {
        if (chdir(temp.path().c_str()) != 0) return 98;
        execl("./script", "./script", "x", nullptr);
        return 97;
      },
      &pid);
  CHECK(WEXITSTATUS(status) == 3);
  const Event exec = OnlyExec(rig, pid);
  CHECK(exec.exec().filename() == "./script");
  CHECK(exec.exe() == std::filesystem::canonical("/bin/sh"));
  CHECK(exec.exec().argv_size() == 3);
  CHECK(exec.exec().argv(1) == "./script");
}

TEST_CASE("a program in memory only and one behind a mount have their names") {
  ProcessRig rig;
  pid_t pid;
  SECTION("memfd") {
    RunProgram(
        rig,
        [] {
          const int fd = memfd_create("hidden", 0);
          const std::string program = *ReadWholeFile("/bin/true");
          if (write(fd, program.data(), program.size()) != static_cast<ssize_t>(program.size())) return 98;
          char* const argv[] = {const_cast<char*>("x"), nullptr};
          return fexecve(fd, argv, environ);
        },
        &pid);
    CHECK(OnlyExec(rig, pid).exe() == "/memfd:hidden");
  }
  SECTION("mount over mount") {
    TempDirectory temp;
    RunProgram(
        rig,
        [&] {
          if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
            return 98;
          const std::string& outer = temp.path();
          const std::string inner = outer + "/inner";
          if (mount("t", outer.c_str(), "tmpfs", 0, nullptr) != 0 || mkdir(inner.c_str(), 0755) != 0)
            return 96;
          if (mount("t", inner.c_str(), "tmpfs", 0, nullptr) != 0) return 95;
          std::filesystem::copy_file("/bin/true", inner + "/t");
          if (chdir(inner.c_str()) != 0) return 94;
          execl("./t", "t", nullptr);
          return 97;
        },
        &pid);
    CHECK(OnlyExec(rig, pid).exe() == temp.path() + "/inner/t");
    CHECK(OnlyExec(rig, pid).exec().cwd() == temp.path() + "/inner");
  }
  SECTION("deleted") {
    TempDirectory temp;
    const std::string path = temp.path() + "/gone";
    std::filesystem::copy_file("/bin/true", path);
    RunProgram(
        rig,
        [&] {
          const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
          if (unlink(path.c_str()) != 0) return 98;
          char* const argv[] = {const_cast<char*>("x"), nullptr};
          return fexecve(fd, argv, environ);
        },
        &pid);
    CHECK(OnlyExec(rig, pid).exe() == path);
  }
}

TEST_CASE("ends are told as wait(2) tells them, once per process") {
  ProcessRig rig;
  pid_t pid;
  int status = 0;
  SECTION("a signal") {
    status = RunProgram(
        rig, [] { return raise(SIGKILL); }, &pid);
    CHECK(WTERMSIG(status) == SIGKILL);
  }
  SECTION("an abort") {
    status = RunProgram(
        rig,
        [] {
          signal(SIGABRT, SIG_DFL);
          abort();
          return 0;
        },
        &pid);
    CHECK(WTERMSIG(status) == SIGABRT);
  }
  SECTION("a group ended by a thread that is not the leader") {
    status = RunProgram(
        rig,
        [] {
          for (int i = 0; i < 8; ++i) std::thread([] { pause(); }).detach();
          std::thread([] { _exit(5); }).join();
          return 0;
        },
        &pid);
    CHECK(WEXITSTATUS(status) == 5);
  }
  SECTION("a leader that ends before its thread") {
    status = RunProgram(
        rig,
        [] {
          std::thread([] {
            while (ProcFs().Stat(getpid())->state != 'Z') sched_yield();
            syscall(SYS_exit, 9);
          }).detach();
          syscall(SYS_exit, 6);
          return 0;
        },
        &pid);
    CHECK(WIFEXITED(status));
  }
  const std::vector<Event> exits = rig.sink.Of(v1::EXIT, pid);
  REQUIRE(exits.size() == 1);
  const v1::Exit exit = exits[0].exit();
  CHECK(exit.signal() == (WIFSIGNALED(status) ? WTERMSIG(status) : 0));
  CHECK(exit.status() == (WIFEXITED(status) ? WEXITSTATUS(status) : 0));
  CHECK(exit.core_dumped() == static_cast<bool>(WCOREDUMP(status)));
}

TEST_CASE("a process whose threads all end at the same time ends once") {
  ProcessRig rig;
  const pid_t pid = RunIn(*rig.session, [] {
    for (int i = 0; i < 100; ++i) {
      const pid_t child = fork();
      if (child != 0) {
        WaitFor(child);
        continue;
      }
      std::atomic<bool>* go = new std::atomic<bool>(false);
      for (int t = 0; t < 4; ++t) {
        std::thread([go] {
          while (!*go) sched_yield();
          syscall(SYS_exit, 0);
        }).detach();
      }
      *go = true;
      syscall(SYS_exit, 0);
    }
    return 0;
  });
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Exited(pid); }));
  WaitFor(pid);
  CHECK(rig.sink.Count(v1::FORK) == 100);
  CHECK(rig.sink.Count(v1::EXIT) == 101);
}

TEST_CASE("processor time counts all threads, and memory its peak") {
  ProcessRig rig;
  constexpr size_t kBytes = 64 << 20;
  const pid_t pid = RunIn(*rig.session, [] {
    const auto burn = [] {
      timespec now{};
      do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
      while (now.tv_nsec < 60'000'000 && now.tv_sec == 0);
    };
    std::thread(burn).join();
    std::thread(burn).join();
    std::vector<char> memory(kBytes, 'm');
    return memory[kBytes / 2] == 'm' ? 0 : 1;
  });
  int status = 0;
  rusage usage{};
  REQUIRE(wait4(pid, &status, 0, &usage) == pid);
  REQUIRE(status == 0);
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Exited(pid); }));
  const double told_ns = 1e9 * static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                         1e3 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  const v1::Exit exit = rig.sink.Of(v1::EXIT, pid).at(0).exit();
  CHECK(exit.cpu_ns() > 120'000'000 - 20'000'000);
  CHECK(static_cast<double>(exit.cpu_ns()) > 0.7 * told_ns);
  CHECK(static_cast<double>(exit.cpu_ns()) < 1.3 * told_ns + 2e7);
  CHECK(exit.peak_rss_bytes() > kBytes);
  CHECK(exit.peak_rss_bytes() == static_cast<uint64_t>(usage.ru_maxrss) * 1024);
}

TEST_CASE("a thread that executes a program keeps the process's number and birth") {
  ProcessRig rig;
  pid_t pid;
  RunProgram(
      rig,
      [] {
        std::thread([] { execl("/bin/true", "true", nullptr); }).join();
        return 97;
      },
      &pid);
  const Event exec = OnlyExec(rig, pid);
  const std::vector<Event> exits = rig.sink.Of(v1::EXIT, pid);
  REQUIRE(exits.size() == 1);
  CHECK(exec.process().start_ns() == exits[0].process().start_ns());
  CHECK(rig.sink.Of(v1::EXIT).size() == 1);
}

TEST_CASE("a session that was removed is silent") {
  ProcessRig rig;
  REQUIRE(rig.ring->RemoveSession(rig.session->id()).ok());
  WaitFor(RunIn(*rig.session, [] { return execv("/bin/true", kTrue); }));
  REQUIRE(rig.ring->AddSession(rig.session->id()).ok());
  const pid_t pid = RunIn(*rig.session, [] { return execv("/bin/true", kTrue); });
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Exited(pid); }));
  WaitFor(pid);
  CHECK(rig.sink.events.size() == 2);
}

TEST_CASE("a process born into the session from outside has its fork recorded") {
  ProcessRig rig;
  clone_args args{};
  args.flags = CLONE_INTO_CGROUP;
  args.exit_signal = SIGCHLD;
  args.cgroup = static_cast<uint64_t>(rig.session->fd());
  const pid_t pid = static_cast<pid_t>(syscall(SYS_clone3, &args, sizeof(args)));
  if (pid == 0) _exit(0);
  REQUIRE(pid > 0);
  WaitFor(pid);
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Exited(pid); }));
  REQUIRE(rig.sink.Of(v1::FORK).size() == 1);
  CHECK(rig.sink.Of(v1::FORK)[0].fork().child().pid() == pid);
  CHECK(rig.sink.Of(v1::FORK)[0].process().pid() == getpid());
}

TEST_CASE("a session is found at any depth and from inside a cgroup namespace") {
  TestCgroup outer, middle(outer->path()), base(middle->path());
  REQUIRE(*CgroupLevel(outer->fd()) == 1);
  REQUIRE(*CgroupLevel(base->fd()) == 3);
  const pid_t pid = RunIn(*middle, [&] {
    if (unshare(CLONE_NEWCGROUP) != 0) return 98;
    const absl::StatusOr<uint32_t> level = CgroupLevel(base->fd());
    return level.ok() ? static_cast<int>(*level) : 97;
  });
  CHECK(WEXITSTATUS(WaitFor(pid)) == 3);
  PollTaskRunner runner;
  EventCollector sink;
  auto ring = *BpfRing::Create(base->fd(), runner);
  auto probe = *ProcessProbe::Create(*ring);
  TestCgroup session(base->path()), other(base->path());
  REQUIRE(ring->AddSession(session->id()).ok());
  REQUIRE(probe->Attach(sink).ok());
  WaitFor(RunIn(*other, [] { return 0; }));
  const pid_t inside = RunIn(*session, [] { return 0; });
  REQUIRE(runner.RunUntil([&] { return sink.Exited(inside); }));
  WaitFor(inside);
  CHECK(sink.events.size() == 1);
}

TEST_CASE("without rights the reason is one line that says what is needed") {
  TestCgroup base;
  const pid_t pid = fork();
  if (pid == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(98);
    PollTaskRunner runner;
    const absl::Status status = BpfRing::Create(base->fd(), runner).status();
    const bool good = absl::IsPermissionDenied(status) && absl::StrContains(status.message(), "CAP_BPF") &&
                      !absl::StrContains(status.message(), "\n");
    _exit(good ? 0 : 1);
  }
  CHECK(WEXITSTATUS(WaitFor(pid)) == 0);
}

}  // namespace
}  // namespace agentmon
