#include "daemon/policy/policies.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/policy/evaluate.h"
#include "daemon/policy/policy_watcher.h"
#include "tests/host/loop_task_runner.h"

namespace agentmon {
namespace {

namespace fs = std::filesystem;

// A policy with one rule of its own.
std::string PolicyText(const std::string& name, const std::string& path, const std::string& decision) {
  return absl::StrCat("version: 1\nname: ", name,
                      "\ndefaults: {file_read: allow}\nfile_rules:\n  - {name: ", name, "-rule, paths: [",
                      path, "], decision: ", decision, "}\n");
}

class Fixture {
 public:
  explicit Fixture(int threads = 2) : workers(threads, 100) {
    char pattern[] = "/tmp/policies-test-XXXXXX";
    dir = mkdtemp(pattern);
    for (const char* name : {"/floor", "/policies", "/run"}) fs::create_directory(dir + name);
    places = PolicyPlaces{dir + "/floor", dir + "/policies", dir + "/shipped", "default"};
    Start();
  }
  ~Fixture() {
    policies.reset();
    fs::remove_all(dir);
  }
  void Start() {
    policies = std::make_unique<Policies>(
        Policies::Deps{loop, workers, clock, tree, OwnPaths{dir, dir + "/run"}}, places);
    policies->SetNotice([this](const std::string&, v1::SessionChange::What what, const std::string& detail) {
      notices.emplace_back(what, detail);
    });
    policies->LoadAtStart();
  }
  void Write(const std::string& file, const std::string& text) {
    std::ofstream(dir + "/new") << text;
    fs::rename(dir + "/new", dir + file);
  }
  v1::ReloadPoliciesResponse Reload() {
    absl::optional<absl::StatusOr<v1::ReloadPoliciesResponse>> response;
    policies->Reload([&](absl::StatusOr<v1::ReloadPoliciesResponse> r) { response = r; });
    REQUIRE(loop.RunUntil([&] { return response.has_value(); }));
    REQUIRE(response->ok());
    return **response;
  }
  absl::Status Begin(const std::string& id, const v1::PolicyChoice& choice = v1::PolicyChoice()) {
    absl::optional<absl::StatusOr<Policies::PreparedPtr>> prepared;
    policies->Prepare(getuid(), "/work", choice,
                      [&](absl::StatusOr<Policies::PreparedPtr> p) { prepared = std::move(p); });
    REQUIRE(loop.RunUntil([&] { return prepared.has_value(); }));
    if (!prepared->ok()) return prepared->status();
    v1::Session session;
    session.set_id(id);
    session.set_uid(getuid());
    session.set_workspace("/work");
    policies->Begin(session, **prepared);
    return absl::OkStatus();
  }
  v1::Judgement Judge(const std::string& id, const std::string& path) {
    Event event;
    event.set_session(id);
    event.set_kind(v1::OPEN);
    event.mutable_file()->set_path(path);
    policies->Judge(&event);
    return event.judgement();
  }

  std::string dir;
  PolicyPlaces places;
  LoopTaskRunner loop;
  WorkerPool workers;
  SystemClock clock;
  ProcessTree tree;
  std::unique_ptr<Policies> policies;
  std::vector<std::pair<v1::SessionChange::What, std::string>> notices;
};

}  // namespace

TEST_CASE("a verdict names the layer, the rule and its place; what a default allows names nothing") {
  Fixture f;
  f.Write("/floor/10-company.yaml", PolicyText("company", "/srv/**", "deny"));
  CHECK(f.Reload().changed());
  REQUIRE(f.Begin("s").ok());
  const v1::Judgement denied = f.Judge("s", "/srv/x");
  CHECK(denied.decision() == v1::DENY);
  CHECK(denied.rule() == "company-rule");
  CHECK(denied.file() == f.dir + "/floor/10-company.yaml");
  CHECK(denied.line() == 5);
  CHECK_FALSE(denied.enforced());
  const v1::Judgement allowed = f.Judge("s", "/usr/include/stdio.h");
  CHECK(allowed.decision() == v1::ALLOW);
  CHECK(allowed.rule().empty());
  CHECK(f.Judge("unknown", "/srv/x").decision() == v1::DECISION_UNSPECIFIED);
}

TEST_CASE("a broken file changes nothing, is told, and the next good one heals it") {
  Fixture f;
  f.Write("/floor/10.yaml", PolicyText("a", "/srv/**", "deny"));
  f.Reload();
  REQUIRE(f.Begin("s").ok());
  f.Write("/floor/10.yaml", "version: 1\nname: a\nfile_rules: [{nme: x}]\n");
  const auto rejected = f.Reload();
  CHECK_FALSE(rejected.ok());
  REQUIRE(rejected.diagnostics_size() > 0);
  CHECK(rejected.diagnostics(0).at().line() == 3);
  CHECK(f.Judge("s", "/srv/x").rule() == "a-rule");
  REQUIRE(f.notices.size() == 1);
  CHECK(f.notices[0].first == v1::SessionChange::POLICY_REJECTED);
  CHECK(f.notices[0].second.find("10.yaml:3:") != std::string::npos);
  CHECK(f.policies->Problems().size() >= 2);

  f.Write("/floor/10.yaml", PolicyText("b", "/opt/**", "deny"));
  const auto taken = f.Reload();
  CHECK(taken.changed());
  CHECK(taken.sessions() == 1);
  CHECK(f.policies->Problems().empty());
  CHECK(f.Judge("s", "/srv/x").decision() == v1::ALLOW);
  CHECK(f.Judge("s", "/opt/x").rule() == "b-rule");
  CHECK(f.notices.back().first == v1::SessionChange::POLICY_CHANGED);
  CHECK_FALSE(f.Reload().changed());
}

TEST_CASE("a session that is given another policy during a reload keeps that one, and follows the reload") {
  Fixture f(1);  // one worker: files are read, the choice is compiled, then what the reload found
  v1::PolicyChoice asked;
  v1::PolicyDocument* document = asked.mutable_base()->mutable_document();
  document->set_name("open");
  document->set_version(1);
  REQUIRE(f.Begin("s").ok());
  f.Write("/floor/10.yaml", PolicyText("new", "/srv/**", "deny"));
  bool reloaded = false, set = false;
  f.policies->Reload([&](absl::StatusOr<v1::ReloadPoliciesResponse> r) { reloaded = r.ok(); });
  f.policies->SetPolicy("s", asked, [&](absl::StatusOr<bool> r) { set = r.ok(); });
  REQUIRE(f.loop.RunUntil([&] { return reloaded && set; }));
  // What was compiled late is there once the newest rule is.
  REQUIRE(f.loop.RunUntil([&] { return f.Judge("s", "/srv/x").rule() == "new-rule"; }));
  CHECK(f.Judge("s", "/etc/shadow").decision() == v1::ALLOW);  // default would deny
}

TEST_CASE("files that others may write, and a default that is not there, are broken files") {
  Fixture f;
  f.Write("/floor/10.yaml", PolicyText("a", "/srv/**", "deny"));
  chmod((f.dir + "/floor/10.yaml").c_str(), 0666);
  const auto rejected = f.Reload();
  CHECK_FALSE(rejected.ok());
  CHECK(rejected.diagnostics(0).message().find("chmod go-w") != std::string::npos);
  // Who may replace the file may as well write it.
  f.Write("/floor/10.yaml", PolicyText("a", "/srv/**", "deny"));
  chmod((f.dir + "/floor").c_str(), 0777);
  CHECK(f.Reload().diagnostics(0).message().find("others than root can replace it") != std::string::npos);
  chmod((f.dir + "/floor").c_str(), 0700);
  CHECK(f.Reload().ok());
  fs::remove(f.dir + "/floor/10.yaml");
  f.places.default_policy = "mine";
  f.policies->SetPlaces(f.places);
  CHECK_FALSE(f.Reload().ok());
  f.Write("/policies/mine.yaml", PolicyText("mine", "/mine/**", "ask"));
  CHECK(f.Reload().ok());
  REQUIRE(f.Begin("s").ok());
  CHECK(f.Judge("s", "/mine/x").decision() == v1::ASK);
}

TEST_CASE("a session that ended without a daemon leaves no choice of a policy behind") {
  Fixture f;
  REQUIRE(f.Reload().ok());
  REQUIRE(f.Begin("s").ok());
  CHECK(fs::exists(f.dir + "/run/policies/s"));
  f.Start();
  CHECK(fs::exists(f.dir + "/run/policies/s"));
  f.policies->End("s");
  CHECK_FALSE(fs::exists(f.dir + "/run/policies/s"));
}

TEST_CASE("after a start with broken files no session begins, and running ones are closed, not open") {
  Fixture f;
  f.Write("/floor/10.yaml", PolicyText("good", "/srv/**", "deny"));
  f.Reload();
  f.Write("/floor/10.yaml", "version: [\n");
  f.Start();
  CHECK(f.policies->Problems().front().find("last good") != std::string::npos);
  CHECK(absl::IsFailedPrecondition(f.Begin("s")));
  v1::Session running;
  running.set_id("t");
  running.set_uid(getuid());
  running.set_workspace("/work");
  f.policies->Recover(running);
  CHECK(f.Judge("t", "/srv/x").rule() == "good-rule");

  f.Write("/floor/20.yaml", PolicyText("other", "/opt/**", "deny"));
  fs::remove(f.dir + "/policies.last-good");
  f.Start();
  CHECK(f.policies->Problems().front().find("no session begins") != std::string::npos);
  v1::PolicyChoice observe;
  observe.mutable_base()->set_name("observe");
  const absl::Status refused = f.Begin("s", observe);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(std::string(refused.message()).find("/floor/10.yaml:") != std::string::npos);
  f.policies->Recover(running);
  CHECK(f.Judge("t", "/etc/shadow").decision() == v1::DENY);  // the floor that default became
  CHECK(f.Judge("t", "/opt/x").rule() == "other-rule");       // a file of the floor that loads
  CHECK(f.Judge("t", "/usr/lib/x").decision() == v1::ALLOW);  // nobody is locked out
  f.Write("/floor/10.yaml", PolicyText("good", "/srv/**", "deny"));
  f.Reload();
  REQUIRE(f.Begin("u", observe).ok());
}

TEST_CASE(
    "a choice that does not compile is refused with its place; a session that lost its choice is closed") {
  Fixture f;
  v1::PolicyChoice choice;
  v1::PolicyDocument* document = choice.mutable_base()->mutable_document();
  document->set_file("mine.yaml");
  document->set_name("mine");
  document->set_version(1);
  v1::Rule* rule = document->add_rules();
  rule->set_kind(v1::RULE_KIND_FILE);
  rule->set_name("r");
  rule->set_decision(v1::DENY);
  rule->add_operations("*");
  rule->mutable_at()->set_line(7);
  rule->add_paths()->set_value("${NO_SUCH}/x");
  rule->mutable_paths(0)->mutable_at()->set_line(7);
  const absl::Status refused = f.Begin("s", choice);
  CHECK(absl::IsInvalidArgument(refused));
  CHECK(std::string(refused.message()).find("mine.yaml:7") != std::string::npos);
  (*choice.mutable_environment())["NO_SUCH"] = "/data";
  REQUIRE(f.Begin("s", choice).ok());
  CHECK(f.Judge("s", "/data/x").rule() == "r");

  f.Start();  // a new daemon
  v1::Session session;
  session.set_id("s");
  session.set_uid(getuid());
  session.set_workspace("/work");
  f.policies->Recover(session);
  CHECK(f.Judge("s", "/data/x").rule() == "r");
  fs::remove(f.dir + "/run/policies/s");
  f.Start();
  f.policies->Recover(session);
  CHECK(f.Judge("s", "/data/x").decision() == v1::ALLOW);
  Event write;
  write.set_session("s");
  write.set_kind(v1::CREATE);
  write.mutable_file()->set_path("/data/y");
  f.policies->Judge(&write);
  CHECK(write.judgement().decision() == v1::DENY);
  CHECK(f.policies->Describe("s", false, {}).problem().find("not known any more") != std::string::npos);
  f.policies->End("s");
  CHECK(f.Judge("s", "/data/x").decision() == v1::DECISION_UNSPECIFIED);
}

TEST_CASE("another name of a socket or file gets its verdict") {
  Fixture f;
  char pattern[] = "/tmp/policies-names-XXXXXX";
  const std::string dir = mkdtemp(pattern);  // what lies in the state directory is agentmon's
  f.Write("/floor/10.yaml", absl::StrCat("version: 1\nname: f\nunix_socket_rules: [{name: no-sk, paths: [",
                                         dir, "/real], decision: deny}]\nfile_rules: [{name: no-f, paths: [",
                                         dir, "/real], decision: deny}]\n"));
  CHECK(f.Reload().ok());
  std::ofstream(dir + "/real") << "x";
  fs::create_symlink("real", dir + "/link");
  fs::create_symlink("nothing", dir + "/dangling");
  // A link that was just made is due to have its time of access set, and is then not followed from the
  // caches.
  const timespec later[2] = {{time(nullptr) + 1000, 0}, {0, UTIME_OMIT}};
  REQUIRE(utimensat(AT_FDCWD, (dir + "/link").c_str(), later, AT_SYMLINK_NOFOLLOW) == 0);
  REQUIRE(f.Begin("s").ok());
  for (const auto& [name, rule] :
       {std::pair("/real", "no-sk"), std::pair("/link", "no-sk"), std::pair("/dangling", "")}) {
    Event event;
    event.set_session("s");
    event.set_kind(v1::UNIX_CONNECT);
    event.mutable_unix()->set_path(dir + name);
    f.policies->Judge(&event);
    INFO(name);
    CHECK(event.judgement().rule() == rule);
    CHECK(event.unix().path() == dir + (*rule == 0 ? name : "/real"));
  }
  Event event;
  event.set_session("s");
  event.set_kind(v1::CHMOD);
  event.set_as_asked(true);
  event.mutable_file()->set_path(dir + "/link");
  f.policies->Judge(&event);
  CHECK(event.judgement().rule() == "no-f");
  CHECK(event.file().path() == dir + "/link");
  fs::remove_all(dir);
}

TEST_CASE("what clients send is bounded for each file and each user") {
  Fixture f;
  v1::PolicyChoice choice;
  v1::PolicyDocument* document = choice.mutable_base()->mutable_document();
  document->set_name("big");
  document->set_file("big.yaml");
  document->set_version(1);
  const auto fill = [&](int rules) {
    document->clear_rules();
    for (int i = 0; i < rules; ++i) {
      v1::Rule* rule = document->add_rules();
      rule->set_kind(v1::RULE_KIND_FILE);
      rule->set_name(absl::StrCat("r", i));
      rule->set_decision(v1::DENY);
      rule->add_operations("*");
      rule->add_paths()->set_value(absl::StrCat("/x", i, "/{a,b,c,d}{e,f,g,h,i}"));
    }
  };
  fill(1001);
  CHECK(std::string(f.Begin("s", choice).message()).find("more than 20000 patterns") != std::string::npos);
  fill(1000);
  for (int i = 0; i < 5; ++i) CHECK(f.Begin(absl::StrCat("s", i), choice).ok());
  CHECK(absl::IsResourceExhausted(f.Begin("s", choice)));
  CHECK(f.Begin("s").ok());  // of root's policies there may be any number
  f.policies->End("s0");
  CHECK(f.Begin("t", choice).ok());
}

TEST_CASE("a user who asks for much does not make others wait for all of it") {
  Fixture f;
  int own = 0, own_before_other = -1;
  const auto count = [&](absl::StatusOr<Policies::PreparedPtr> prepared) { own += prepared.ok(); };
  for (int i = 0; i < 100; ++i) f.policies->Prepare(getuid(), "/work", v1::PolicyChoice(), count);
  f.policies->Prepare(getuid() + 1, "/work", v1::PolicyChoice(),
                      [&](absl::StatusOr<Policies::PreparedPtr>) { own_before_other = own; });
  REQUIRE(f.loop.RunUntil([&] { return own_before_other >= 0 && own == 100; }, absl::Seconds(60)));
  CHECK(own_before_other < 50);
}

TEST_CASE("a reader during thousands of switches gets an answer of one of the two policies, never another") {
  const auto compiled = [](absl::string_view read, absl::string_view write) {
    auto library = std::make_shared<PolicyLibrary>();
    PolicyRequest request;
    request.workspace = "/work";
    v1::PolicyDocument* document = request.choice.mutable_base()->mutable_document();
    document->set_name("p");
    document->set_version(1);
    for (const auto& [path, decision] : {std::pair("/a/**", read), std::pair("/b/**", write)}) {
      v1::Rule* rule = document->add_rules();
      rule->set_kind(v1::RULE_KIND_FILE);
      rule->set_name(absl::StrCat(path, decision));
      rule->set_decision(decision == "deny" ? v1::DENY : v1::ALLOW);
      rule->add_operations("*");
      rule->add_paths()->set_value(path);
    }
    const CompiledPolicy out = CompileSessionPolicy(*library, request, OwnPaths{"/s", "/r"});
    REQUIRE(out.snapshot != nullptr);
    return out.snapshot;
  };
  // One denies /a and allows /b, the other the reverse: a mixture would deny or allow both.
  const auto one = compiled("deny", "allow"), two = compiled("allow", "deny");
  policy::CurrentSnapshot current(one);
  std::atomic<bool> stop = false;
  std::atomic<int> mixed = 0;
  std::atomic<int64_t> asked = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        const auto snapshot = current.Get();
        const auto a = policy::Evaluate(*snapshot, policy::FileSubject(policy::kRead, "/a/x"), {});
        const auto b = policy::Evaluate(*snapshot, policy::FileSubject(policy::kRead, "/b/x"), {});
        mixed += a.Stops() == b.Stops();
        ++asked;
      }
    });
  }
  int switches = 0;
  while (switches < 10'000 || asked < 10'000) current.Switch(++switches % 2 == 0 ? one : two);
  stop = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(mixed == 0);
  CHECK(one.use_count() <= 2);  // nothing of the switches is left behind
}

TEST_CASE(
    "the watcher sees renames, swapped links, ConfigMap-like data directories and directories that appear") {
  Fixture f;
  int changes = 0;
  const auto start = [&] {
    return *PolicyWatcher::Create(f.loop, f.places, absl::Milliseconds(20), [&] { ++changes; });
  };
  const auto seen = [&] {
    const int before = changes;
    return f.loop.RunUntil([&] { return changes > before; });
  };
  auto watcher = start();
  f.Write("/floor/a.yaml", "x");  // as an editor does
  CHECK(seen());
  // floor/b.yaml -> ..data/b.yaml, ..data -> ..1, and then ..data is replaced by a link to ..2
  fs::create_directory(f.dir + "/floor/..1");
  fs::create_directory(f.dir + "/floor/..2");
  std::ofstream(f.dir + "/floor/..1/b.yaml") << "1";
  std::ofstream(f.dir + "/floor/..2/b.yaml") << "2";
  fs::create_directory_symlink("..1", f.dir + "/floor/..data");
  fs::create_symlink("..data/b.yaml", f.dir + "/floor/b.yaml");
  CHECK(seen());
  fs::create_directory_symlink("..2", f.dir + "/floor/..new");
  fs::rename(f.dir + "/floor/..new", f.dir + "/floor/..data");
  CHECK(seen());
  // The target of a link elsewhere.
  fs::create_directory(f.dir + "/elsewhere");
  std::ofstream(f.dir + "/elsewhere/c.yaml") << "1";
  fs::create_symlink(f.dir + "/elsewhere/c.yaml", f.dir + "/floor/c.yaml");
  CHECK(seen());
  std::ofstream(f.dir + "/elsewhere/c.yaml") << "2";
  CHECK(seen());
  // A directory that was not there.
  fs::create_directory(f.dir + "/shipped");
  CHECK(seen());
  std::ofstream(f.dir + "/shipped/d.yaml") << "1";
  CHECK(seen());
  // Many changes at once are one.
  const int before = changes;
  for (int i = 0; i < 200; ++i) std::ofstream(absl::StrCat(f.dir, "/policies/", i, ".yaml")) << i;
  CHECK(seen());
  CHECK(changes - before <= 10);
}

TEST_CASE("a terminal is the session's own when it was started on it or holds its other end") {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(master >= 0);
  REQUIRE(grantpt(master) == 0);
  const std::string name = ptsname(master);
  SessionTerminals terminals;
  CHECK_FALSE(terminals.Owns(name));
  terminals.AddMaker(getpid());
  CHECK(terminals.Owns(name));
  CHECK_FALSE(terminals.Owns("/dev/pts/99999"));
  close(master);
}

TEST_CASE("directories are trusted when root alone can write them and all above") {
  SystemClock clock;
  TrustedDirectories trusted(clock);
  CHECK(trusted.Trusts("/usr/bin", {}));
  CHECK_FALSE(trusted.Trusts("/tmp", {}));
  CHECK_FALSE(trusted.Trusts("/tmp/no-such-directory/bin", {}));
  char pattern[] = "/tmp/trusted-XXXXXX";
  const std::string dir = mkdtemp(pattern);
  CHECK_FALSE(trusted.Trusts(dir, {}));  // below a directory that everybody may write
  fs::remove_all(dir);
}

TEST_CASE("what takes effect at the start of a program only is named") {
  const auto compile = [](const std::function<void(v1::PolicyDocument&)>& edit) {
    PolicyRequest request;
    v1::PolicyDocument* document = request.choice.mutable_base()->mutable_document();
    document->set_name("p");
    document->set_version(1);
    edit(*document);
    const auto out = CompileSessionPolicy(PolicyLibrary(), request, OwnPaths{"/s", "/r"});
    REQUIRE(out.snapshot != nullptr);
    return out.snapshot;
  };
  const auto plain = compile([](v1::PolicyDocument&) {});
  CHECK(NeedsNewSession(*plain, *compile([](v1::PolicyDocument& d) {
          d.set_posture(v1::POSTURE_MONITOR);
        })).empty());
  const auto isolated = compile([](v1::PolicyDocument& d) { d.set_posture(v1::POSTURE_ISOLATE); });
  CHECK(NeedsNewSession(*plain, *isolated) == std::vector<std::string>{"posture: isolate"});
  const auto strict = compile([](v1::PolicyDocument& d) {
    d.set_deny_ptrace(true);
    d.add_env_inject()->set_name("A");
  });
  CHECK(NeedsNewSession(*plain, *strict).size() == 2);
}

}  // namespace agentmon
