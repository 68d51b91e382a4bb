// SessionManager on real cgroups and real processes, with fake probes.
#include "daemon/session/session_manager.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/refusal.h"
#include "daemon/app/event_loop.h"
#include "tests/fake/fake_observation.h"

namespace agentmon {
namespace {

struct Collected : EventSink {
  void OnEvent(const Event& event) override { events.push_back(event); }
  int CountOf(v1::SessionChange::What what) const {
    int n = 0;
    for (const Event& e : events) n += e.session_change().what() == what;
    return n;
  }
  std::vector<Event> events;
};

// A child that waits until it is killed.
class Sleeper {
 public:
  explicit Sleeper(bool deaf = false) : pid_(fork()) {
    if (pid_ != 0) return;
    signal(SIGTERM, deaf ? SIG_IGN : SIG_DFL);  // Catch2 has a handler of its own
    for (;;) pause();
  }
  ~Sleeper() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  // The signal that ended it; waits up to 10 s.
  int Reap() {
    const auto pidfd = PidFd::Open(pid_);
    pollfd p{pidfd->get(), POLLIN, 0};
    REQUIRE(poll(&p, 1, 10'000) == 1);
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
  }

 private:
  pid_t pid_;
};

class Fixture {
 public:
  Fixture() : loop(*EventLoop::Create()) {
    char pattern[] = "/tmp/session-manager-XXXXXX";
    dir = mkdtemp(pattern);
    cgroups = *SessionCgroups::Create(*loop, *FindCgroup2Mount(), absl::StrCat("test-", getpid()));
    mkdir((dir + "/floor").c_str(), 0700);
    NewManager();
  }
  ~Fixture() {
    for (const std::string& id : cgroups->Existing()) {
      const auto cgroup = cgroups->Open(id);
      cgroup->Kill().IgnoreError();
      cgroup->RemoveTree().IgnoreError();
    }
    manager.reset();
    std::filesystem::remove_all(dir);
  }
  void NewManager() {
    manager.reset();
    policies = std::make_unique<Policies>(
        Policies::Deps{*loop, workers, clock, tree, OwnPaths{dir, dir}},
        PolicyPlaces{dir + "/floor", dir + "/policies", dir + "/shipped", "default"});
    policies->LoadAtStart();
    resources = *ResourceKeeper::Create(*loop, clock);
    manager = std::make_unique<SessionManager>(
        SessionDeps{*loop, workers, clock, *cgroups, observation, *policies, host_limits, *resources,
                    scopes.get(), SessionFiles(dir + "/sessions"), events,
                    [this](const v1::Session& s) { saved[s.id()] = s; }, [](const std::string&) {}},
        SessionLimits{.sessions_per_uid = 3, .refuse_missing_limits = refuse_missing_limits});
  }
  Caller CallerFor(pid_t pid, uid_t uid = 1000, Role role = Role::kUser) {
    return Caller{pid, uid, uid, role, "", std::make_shared<const PidFd>(*PidFd::Open(pid))};
  }
  // Runs the loop until the condition holds, 10 s at most.
  bool Until(std::function<bool()> condition) {
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      loop->RunOnce(absl::Milliseconds(100));
    }
    return true;
  }
  absl::StatusOr<v1::StartResponse> Start(const Caller& caller, const v1::StartRequest& request) {
    absl::optional<absl::StatusOr<v1::StartResponse>> response;
    manager->Start(caller, request, [&](absl::StatusOr<v1::StartResponse> r) { response = r; });
    REQUIRE(Until([&] { return response.has_value(); }));
    return *response;
  }
  // A session with the process in it.
  std::string StartWith(pid_t pid) {
    const auto started = Start(CallerFor(pid), v1::StartRequest());
    REQUIRE(started.ok());
    v1::AttachRequest attach;
    attach.set_token(started->token());
    absl::optional<absl::Status> attached;
    manager->Attach(CallerFor(pid), attach,
                    [&](absl::StatusOr<v1::AttachResponse> r) { attached = r.status(); });
    REQUIRE(Until([&] { return attached.has_value(); }));
    REQUIRE(attached->ok());
    return started->session();
  }
  bool Ended(const std::string& id) {
    return saved.count(id) != 0 && saved[id].state() == v1::Session::ENDED;
  }

  std::unique_ptr<EventLoop> loop;
  std::string dir;
  SystemClock clock;
  Collected events;
  FakeObservation observation;
  std::map<std::string, v1::Session> saved;
  std::unique_ptr<SessionCgroups> cgroups;
  HostLimits host_limits{HostLimits::Places{*FindCgroup2Mount(), *FindCgroup2Mount()}};
  bool refuse_missing_limits = false;
  WorkerPool workers{2, 100};
  ProcessTree tree;
  std::unique_ptr<Policies> policies;
  std::unique_ptr<ResourceKeeper> resources;
  std::unique_ptr<SystemdScopes> scopes;
  std::unique_ptr<SessionManager> manager;
};

std::string Reason(const absl::Status& status) {
  return std::string(status.GetPayload(kReasonPayload).value_or(absl::Cord("none")));
}

}  // namespace

TEST_CASE("a process that attaches is in the session's cgroup, and its death ends the session") {
  Fixture f;
  Sleeper child;
  const std::string id = f.StartWith(child.pid());
  CHECK(*ProcFs().CgroupPath(child.pid()) == f.cgroups->RelativePath(id));
  CHECK(f.events.CountOf(v1::SessionChange::STARTED) == 1);
  CHECK(f.observation.sessions.size() == 1);
  kill(child.pid(), SIGKILL);
  CHECK(child.Reap() == SIGKILL);
  CHECK(f.Until([&] { return f.Ended(id); }));
  CHECK(f.saved[id].end_reason() == "its last process ended");
  CHECK(f.Until([&] { return f.cgroups->Existing().empty(); }));
  CHECK(f.observation.sessions.empty());
  // Until the store has it.
  const std::vector<v1::Session> files = SessionFiles(f.dir + "/sessions").ReadAll();
  REQUIRE(files.size() == 1);
  CHECK(files[0].state() == v1::Session::ENDED);
}

TEST_CASE("stop sends TERM first and kills what is deaf after the grace") {
  Fixture f;
  Sleeper polite, deaf(true);
  const std::string a = f.StartWith(polite.pid());
  const std::string b = f.StartWith(deaf.pid());
  v1::StopRequest request;
  request.set_all(true);
  request.set_grace_ms(200);
  absl::optional<v1::StopResponse> stopped;
  f.manager->Stop(f.CallerFor(getpid()), request, [&](absl::StatusOr<v1::StopResponse> r) { stopped = *r; });
  CHECK(f.Until([&] { return stopped.has_value(); }));
  CHECK(stopped->sessions_size() == 2);
  CHECK(polite.Reap() == SIGTERM);
  CHECK(deaf.Reap() == SIGKILL);
  CHECK(f.saved[a].end_reason() == "stopped by uid 1000");
}

TEST_CASE(
    "a session whose client ends before its first process came ends at once, one that has begun goes on") {
  Fixture f;
  auto client = std::make_unique<Sleeper>();
  Sleeper agent;
  // Two sessions of one client: one gets its process, the other does not.
  const auto begun = f.Start(f.CallerFor(client->pid()), v1::StartRequest());
  const auto waiting = f.Start(f.CallerFor(client->pid()), v1::StartRequest());
  REQUIRE(begun.ok());
  REQUIRE(waiting.ok());
  v1::AttachRequest attach;
  attach.set_token(begun->token());
  bool attached = false;
  f.manager->Attach(f.CallerFor(agent.pid()), attach,
                    [&](absl::StatusOr<v1::AttachResponse> r) { attached = r.ok(); });
  REQUIRE(f.Until([&] { return attached; }));
  client.reset();
  CHECK(f.Until([&] { return f.Ended(waiting->session()); }));
  CHECK(f.saved[waiting->session()].end_reason() == "its client ended before its first process came");
  CHECK(f.manager->running() == 1);
  CHECK_FALSE(f.Ended(begun->session()));
}

TEST_CASE("what has ended is told to the store again when the store did not confirm it") {
  Fixture f;
  Sleeper child;
  const std::string id = f.StartWith(child.pid());
  kill(child.pid(), SIGKILL);
  CHECK(f.Until([&] { return f.Ended(id); }));
  f.saved.clear();  // the disk was full
  f.NewManager();
  f.manager->Recover(0);
  CHECK(f.Ended(id));
  CHECK(f.events.CountOf(v1::SessionChange::ENDED) == 1);
  f.saved.clear();
  SessionFiles(f.dir + "/sessions").Remove(id);  // now it is stored
  f.NewManager();
  f.manager->Recover(0);
  CHECK(f.saved.empty());
}

TEST_CASE("a token works once, for its user, and not from inside a session") {
  Fixture f;
  Sleeper child, other;
  const auto started = f.Start(f.CallerFor(child.pid()), v1::StartRequest());
  REQUIRE(started.ok());
  v1::AttachRequest attach;
  attach.set_token(started->token());
  std::vector<absl::Status> answers;
  const auto note = [&](absl::StatusOr<v1::AttachResponse> r) { answers.push_back(r.status()); };
  f.manager->Attach(f.CallerFor(child.pid(), 1001), attach, note);
  f.manager->Attach(f.CallerFor(child.pid(), 1000, Role::kAgent), attach, note);
  f.manager->Attach(f.CallerFor(child.pid()), attach, note);
  f.manager->Attach(f.CallerFor(other.pid()), attach, note);
  REQUIRE(f.Until([&] { return answers.size() == 4; }));
  CHECK(Reason(answers[0]) == "BAD_TOKEN");
  CHECK(Reason(answers[1]) == "IN_A_SESSION");
  CHECK(Reason(answers[2]) == "BAD_TOKEN");  // the second use answered before the first was through
  CHECK(answers[3].ok());
}

TEST_CASE("users see and stop only their own sessions, an administrator all") {
  Fixture f;
  Sleeper child;
  const std::string id = f.StartWith(child.pid());
  CHECK(f.manager->List(f.CallerFor(getpid(), 1001)).empty());
  CHECK(absl::IsNotFound(f.manager->Get(f.CallerFor(getpid(), 1001), id).status()));
  CHECK(f.manager->List(f.CallerFor(getpid(), 1000)).size() == 1);
  CHECK(f.manager->Get(f.CallerFor(getpid(), 0, Role::kAdmin), id.substr(0, 5)).ok());
  v1::StopRequest request;
  request.set_session(id);
  absl::Status refused;
  f.manager->Stop(f.CallerFor(getpid(), 1001), request,
                  [&](absl::StatusOr<v1::StopResponse> r) { refused = r.status(); });
  CHECK(absl::IsNotFound(refused));
  Caller agent = f.CallerFor(child.pid(), 1000, Role::kAgent);
  agent.session = id;
  f.manager->Stop(agent, request, [&](absl::StatusOr<v1::StopResponse> r) { refused = r.status(); });
  CHECK(Reason(refused) == "IN_A_SESSION");
  CHECK(f.manager->Get(agent, "").ok());
  CHECK(f.manager->List(agent).empty());
}

TEST_CASE("start refuses root, agents, too many sessions and oversized fields, and leaves nothing") {
  Fixture f;
  const pid_t self = getpid();
  CHECK(Reason(f.Start(f.CallerFor(self, 0, Role::kAdmin), {}).status()) == "ROOT");
  CHECK(Reason(f.Start(f.CallerFor(self, 1000, Role::kAgent), {}).status()) == "IN_A_SESSION");
  v1::StartRequest request;
  request.set_name(std::string(129, 'x'));
  CHECK(Reason(f.Start(f.CallerFor(self), request).status()) == "TOO_BIG");
  request.set_name("");
  request.set_workspace("relative");
  CHECK(Reason(f.Start(f.CallerFor(self), request).status()) == "BAD_WORKSPACE");
  CHECK(f.cgroups->Existing().empty());
  f.observation.add_session = absl::UnavailableError("map full");
  CHECK(absl::IsUnavailable(f.Start(f.CallerFor(self), {}).status()));
  CHECK(f.cgroups->Existing().empty());
  f.observation.add_session = absl::OkStatus();
  for (int i = 0; i < 3; ++i) CHECK(f.Start(f.CallerFor(self), {}).ok());
  CHECK(Reason(f.Start(f.CallerFor(self), {}).status()) == "TOO_MANY_SESSIONS");
  CHECK(f.Start(f.CallerFor(self, 1001), {}).ok());
}

TEST_CASE(
    "a session is given another policy by its owner only, down to the floor, and it outlives the daemon") {
  Fixture f;
  std::ofstream(f.dir + "/floor/10.yaml")
      << "version: 1\nname: floor\nfile_rules: [{name: srv, paths: [/srv/**], decision: deny}]\n";
  f.NewManager();
  Sleeper child;
  const std::string id = f.StartWith(child.pid());
  const auto decide = [&](const char* path) {
    Event event;
    event.set_session(id);
    event.set_kind(v1::OPEN);
    event.mutable_file()->set_path(path);
    f.policies->Judge(&event);
    return event.judgement();
  };
  CHECK(decide("/srv/x").rule() == "srv");
  CHECK(decide("/etc/shadow").decision() == v1::DENY);
  CHECK(f.events.CountOf(v1::SessionChange::NOT_ENFORCED) == 1);

  v1::SetPolicyRequest request;
  request.set_session(id);
  v1::PolicyDocument* open = request.mutable_policy()->mutable_base()->mutable_document();
  open->set_name("open");
  open->set_file("open.yaml");
  open->set_version(1);
  const auto set = [&](const Caller& caller) {
    absl::optional<absl::Status> status;
    f.manager->SetPolicy(caller, request,
                         [&](absl::StatusOr<v1::SetPolicyResponse> r) { status = r.status(); });
    REQUIRE(f.Until([&] { return status.has_value(); }));
    return *status;
  };
  Caller agent = f.CallerFor(child.pid(), 1000, Role::kAgent);
  agent.session = id;
  CHECK(Reason(set(agent)) == "IN_A_SESSION");
  CHECK(absl::IsNotFound(set(f.CallerFor(getpid(), 1001))));
  CHECK(decide("/etc/shadow").decision() == v1::DENY);
  CHECK(set(f.CallerFor(getpid())).ok());
  CHECK(decide("/etc/shadow").decision() == v1::ALLOW);
  CHECK(decide("/srv/x").rule() == "srv");
  CHECK(f.events.CountOf(v1::SessionChange::POLICY_CHANGED) == 1);

  request.mutable_policy()->mutable_base()->set_name("no-such");
  CHECK(Reason(set(f.CallerFor(getpid()))) == "BAD_POLICY");
  // The environment of what runs already cannot be taken back.
  request.mutable_policy()->Clear();
  v1::PolicyDocument* document = request.mutable_policy()->mutable_base()->mutable_document();
  document->set_name("env");
  document->set_file("env.yaml");
  document->set_version(1);
  document->mutable_env()->add_deny()->set_value("AWS_*");
  CHECK(Reason(set(f.CallerFor(getpid()))) == "NEEDS_NEW_SESSION");
  CHECK(decide("/etc/shadow").decision() == v1::ALLOW);

  f.NewManager();  // as after a kill
  f.manager->Recover(0);
  CHECK(decide("/etc/shadow").decision() == v1::ALLOW);
  CHECK(decide("/srv/x").rule() == "srv");
  CHECK(f.manager->Get(f.CallerFor(getpid()), id)->policy().layers_size() == 3);
}

TEST_CASE("a new daemon finds a living session with a gap and removes a dead one") {
  Fixture f;
  Sleeper living;
  std::string dead;
  {
    Sleeper child;
    dead = f.StartWith(child.pid());
    f.manager.reset();  // the daemon dies; the child after it
  }
  f.NewManager();
  const std::string id = f.StartWith(living.pid());
  f.NewManager();
  f.saved.clear();
  f.manager->Recover(static_cast<uint64_t>(f.clock.BootNs()) - 5'000'000'000u);
  CHECK(f.events.CountOf(v1::SessionChange::GAP) == 1);
  const auto gap_at = std::find_if(f.events.events.begin(), f.events.events.end(), [](const Event& e) {
    return e.session_change().what() == v1::SessionChange::GAP;
  });
  REQUIRE(gap_at != f.events.events.end());
  const Event& gap = *gap_at;
  CHECK(gap.session() == id);
  CHECK(gap.session_change().gap_ns() >= 5'000'000'000u);
  CHECK(f.Ended(dead));
  CHECK(f.manager->Get(f.CallerFor(getpid()), id).ok());
  CHECK(f.cgroups->Existing() == std::vector<std::string>{id});
  kill(living.pid(), SIGKILL);
  CHECK(f.Until([&] { return f.Ended(id); }));
}

TEST_CASE("attach refuses what is not an ordinary process of the caller") {
  Fixture f;
  Sleeper child;
  const auto reason = [&](const Caller& caller, pid_t pid) {
    v1::AdoptRequest request;
    request.set_pid(pid);
    absl::optional<absl::Status> status;
    f.manager->Adopt(caller, request, [&](absl::StatusOr<v1::AdoptResponse> r) { status = r.status(); });
    REQUIRE(f.Until([&] { return status.has_value(); }));
    return status->ok() ? std::string("ok") : Reason(*status);
  };
  const Caller root = f.CallerFor(getppid(), 0, Role::kAdmin);
  CHECK(reason(root, 1) == "INIT");
  CHECK(reason(root, 0) == "BAD_PID");
  CHECK(reason(root, -1) == "BAD_PID");
  CHECK(reason(root, 0x3fffffff) == "NO_SUCH_PROCESS");
  CHECK(reason(root, 2) == "KERNEL_THREAD");
  CHECK(reason(root, getpid()) == "OURS");
  CHECK(reason(f.CallerFor(getppid(), 1000), child.pid()) == "OURS");
}

}  // namespace agentmon
