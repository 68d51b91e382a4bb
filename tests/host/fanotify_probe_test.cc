// The fanotify probe on children in mount namespaces of their own. Never marks a mount of the host.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include <catch2/catch.hpp>

#include "daemon/probe/fanotify_probe.h"
#include "daemon/probe/notify_probe.h"
#include "shim/stage/notify_filter.h"
#include "tests/host/filtered_child.h"
#include "tests/host/loop_task_runner.h"
#include "tests/host/program.h"
#include "tests/host/record_collector.h"

namespace agentmon {
namespace {

constexpr uint64_t kCgroup = 815;

// A process that runs what it is told, step by step, in a mount namespace of its own.
class Session {
 public:
  explicit Session(bool own_namespace = true) {
    int channel[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(channel[0]);
      if (own_namespace &&
          (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)) {
        _exit(1);
      }
      Serve(channel[1]);
    }
    close(channel[1]);
    channel_ = UniqueFd(channel[0]);
    Do("true");  // it is in its namespace
  }
  ~Session() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  // A verb and a path, done by the process itself.
  void Do(const std::string& line) {
    char answer;
    if (write(channel_.get(), line.c_str(), line.size() + 1) < 0 || read(channel_.get(), &answer, 1) != 1)
      abort();
  }

 private:
  [[noreturn]] static void Serve(int channel) {
    char line[4096];
    for (;;) {
      if (read(channel, line, sizeof(line)) <= 0) _exit(0);
      const std::string verb = std::string(line).substr(0, std::string(line).find(' '));
      const char* path = line + verb.size() + 1;
      if (verb == "read") close(open(path, O_RDONLY));
      if (verb == "write") {
        const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
        if (write(fd, "x", 1) != 1) _exit(2);
        close(fd);
      }
      if (verb == "list") close(open(path, O_RDONLY | O_DIRECTORY));
      if (verb == "stat") {
        struct stat st;
        stat(path, &st);
      }
      if (verb == "tmpfs") mount("none", path, "tmpfs", 0, nullptr);
      if (write(channel, "d", 1) != 1) _exit(0);
    }
  }
  pid_t pid_ = -1;
  UniqueFd channel_;
};

struct Fixture {
  TempDir dir;
  LoopTaskRunner core;
  RecordCollector seen;
  std::shared_ptr<OpenDedupe> dedupe = std::make_shared<OpenDedupe>();
  FanotifyProbe probe;

  explicit Fixture(size_t max_sessions = 100) : probe(core, Make(max_sessions, dedupe)) {
    REQUIRE(probe.Attach(seen).ok());
    for (const char* name : {"a", "b", "c"}) std::ofstream(dir / name) << name;
  }
  static FanotifyProbe::Options Make(size_t max_sessions, std::shared_ptr<OpenDedupe> dedupe) {
    FanotifyProbe::Options options;
    options.max_sessions = max_sessions;
    options.dedupe = std::move(dedupe);
    return options;
  }
  bool Sees(const std::string& line) {
    return core.RunUntil([&] { return seen.Has(line); }, absl::Seconds(5));
  }
  // Everything that was done before has arrived once a file that was made for it has.
  void Settle(Session& session) {
    const std::string marker = dir / ("settle" + std::to_string(++settled_));
    session.Do("write " + marker);
    REQUIRE(Sees("WRITE " + marker));
  }
  int Count(const std::string& line) const {
    int n = 0;
    for (const std::string& have : seen.Lines()) n += have == line;
    return n;
  }

 private:
  int settled_ = 0;
};

}  // namespace

TEST_CASE("reads and writes of a session are seen, its first read of a file once") {
  Fixture f;
  Session session;
  REQUIRE(f.probe.AddSession(kCgroup, session.pid()).ok());
  session.Do("read " + (f.dir / "a"));
  CHECK(f.Sees("OPEN " + (f.dir / "a")));
  for (int i = 0; i < 5; ++i) session.Do("read " + (f.dir / "a"));
  session.Do("list " + f.dir.path());
  session.Do("stat " + (f.dir / "b"));
  session.Do("write " + (f.dir / "c"));
  CHECK(f.Sees("WRITE " + (f.dir / "c")));
  f.Settle(session);
  CHECK(f.Count("OPEN " + (f.dir / "a")) == 1);
  CHECK(f.Count("OPEN " + (f.dir / "b")) == 0);
  CHECK(f.Count("OPEN " + f.dir.path()) == 0);
  const am_header& h = f.seen.files[0].file.h;
  CHECK(h.source == v1::FANOTIFY);
  CHECK(h.flags == AM_F_FIRST_ONLY);
  CHECK(h.cgroup_id == kCgroup);
  CHECK(h.pid == static_cast<uint32_t>(session.pid()));

  // Written to by anybody, it counts as unread again.
  session.Do("write " + (f.dir / "a"));
  session.Do("read " + (f.dir / "a"));
  CHECK(f.core.RunUntil([&] { return f.Count("OPEN " + (f.dir / "a")) == 2; }, absl::Seconds(5)));
}

TEST_CASE("what others do to the same files, the reader included, raises nothing") {
  Fixture f;
  Session session;
  Session other;
  REQUIRE(f.probe.AddSession(kCgroup, session.pid()).ok());
  std::ifstream(f.dir / "a").get();
  std::ofstream(f.dir / "b") << "host";
  other.Do("write " + (f.dir / "c"));
  f.Settle(session);
  for (const SeenFile& file : f.seen.files) CHECK(file.file.h.pid == static_cast<uint32_t>(session.pid()));
  CHECK(f.Count("WRITE " + (f.dir / "b")) == 0);
  CHECK(f.Count("WRITE " + (f.dir / "c")) == 0);
  // The reader has opened, named and closed files meanwhile: were those events of their own, this would not
  // end.
  const size_t before = f.seen.files.size();
  f.core.RunUntil([] { return false; }, absl::Milliseconds(50));
  CHECK(f.seen.files.size() == before);
}

TEST_CASE("a process in the host's namespace, or in its parent's, is refused") {
  Fixture f;
  Session host(/*own_namespace=*/false);
  const absl::Status status = f.probe.AddSession(kCgroup, host.pid());
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(status.message() == "the session has no mount namespace of its own");
  CHECK(f.probe.AddSession(kCgroup, getpid()).code() == absl::StatusCode::kFailedPrecondition);

  // A child that shares a namespace which is not the host's: other programs live there too.
  int ready[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  const pid_t parent = fork();
  if (parent == 0) {
    if (unshare(CLONE_NEWNS) != 0) _exit(1);
    const pid_t child = fork();
    if (child == 0) pause();
    if (write(ready[1], &child, sizeof(child)) != sizeof(child)) _exit(1);
    pause();
  }
  pid_t child = 0;
  REQUIRE(read(ready[0], &child, sizeof(child)) == sizeof(child));
  CHECK(f.probe.AddSession(kCgroup, child).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(f.probe.AddSession(kCgroup, parent).ok());
  kill(child, SIGKILL);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  close(ready[0]), close(ready[1]);
}

TEST_CASE("a mount that the session makes later is watched too") {
  Fixture f;
  Session session;
  REQUIRE(f.probe.AddSession(kCgroup, session.pid()).ok());
  REQUIRE(mkdir((f.dir / "mnt").c_str(), 0755) == 0);
  session.Do("tmpfs " + (f.dir / "mnt"));
  // Marked some milliseconds after; writing again until then.
  int tries = 0;
  CHECK(f.core.RunUntil([&] {
    session.Do("write " + (f.dir / "mnt/file"));
    ++tries;
    return f.seen.Has("WRITE " + (f.dir / "mnt/file"));
  }));
  CHECK(access((f.dir / "mnt/file").c_str(), F_OK) != 0);  // it was the session's own mount
}

TEST_CASE("beyond the limit of sessions the reason is given, and a place is free again after a removal") {
  Fixture f(2);
  Session one, two, three;
  REQUIRE(f.probe.AddSession(1, one.pid()).ok());
  REQUIRE(f.probe.AddSession(2, two.pid()).ok());
  CHECK(f.probe.AddSession(2, two.pid()).code() == absl::StatusCode::kAlreadyExists);
  const absl::Status status = f.probe.AddSession(3, three.pid());
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(status.message() == "2 sessions are watched already (fs.fanotify.max_user_groups)");
  f.probe.RemoveSession(1);
  CHECK(f.probe.AddSession(3, three.pid()).ok());
  CHECK(f.probe.AddSession(4, 0).code() != absl::StatusCode::kOk);
}

TEST_CASE("an overflow of the kernel's queue is counted as loss") {
  Fixture f;
  Session session;
  auto group = FanotifyGroup::Create(session.pid());
  REQUIRE(group.ok());
  REQUIRE((*group)->MarkMounts().ok());
  TempDir many;
  // Nobody reads meanwhile; different files, so that nothing is merged.
  for (int i = 0; i < 17000; ++i) session.Do("write " + (many / std::to_string(i)));
  uint64_t events = 0;
  const uint64_t lost = (*group)->Read([&](const FanotifyEvent&) {
    ++events;
    return true;
  });
  CHECK(lost > 0);
  CHECK(events >= 16000);
}

TEST_CASE("an open that the notify source has recorded as a write open is no read") {
  Fixture f;
  NotifyProbe::Options options;
  options.dedupe = f.dedupe;
  NotifyProbe notify(f.core, options);
  REQUIRE(notify.Attach(f.seen).ok());
  const std::string file = f.dir / "new";
  const std::string old = f.dir / "a";
  FilteredChild child([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return 1;
    if (mkdir((f.dir / "ready").c_str(), 0700) != 0) return 2;
    while (access((f.dir / "go").c_str(), F_OK) != 0) poll(nullptr, 0, 1);
    close(open(file.c_str(), O_CREAT | O_WRONLY, 0600));
    close(open(old.c_str(), O_RDONLY));
    return 0;
  });
  REQUIRE(notify.AddListener(kCgroup, child.TakeListener()).ok());
  child.Go();
  REQUIRE(f.Sees("MKDIR " + (f.dir / "ready")));
  REQUIRE(f.probe.AddSession(kCgroup, child.pid()).ok());
  REQUIRE(mkdir((f.dir / "go").c_str(), 0700) == 0);
  CHECK(f.Sees("OPEN " + old));
  CHECK(f.Sees("WRITE " + file));
  CHECK(child.Wait() == 0);
  CHECK(f.Count("CREATE " + file) == 1);
  CHECK(f.Count("OPEN " + file) == 0);
}

TEST_CASE("kernel interfaces are not watched") {
  for (const char* type : {"proc", "sysfs", "cgroup2", "autofs", "fusectl"})
    CHECK(IsUnwatchedFileSystem(type));
  for (const char* type : {"ext4", "tmpfs", "overlay", "btrfs", "virtiofs", "9p"})
    CHECK_FALSE(IsUnwatchedFileSystem(type));
}

}  // namespace agentmon
