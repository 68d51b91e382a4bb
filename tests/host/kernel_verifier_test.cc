// The exec program in the kernel against permits that the test writes itself. What runs unkilled where it
// must not exits with 0, so that each case can fail.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "daemon/probe/exec_verifier.h"
#include "tests/host/kernel_process_rig.h"

namespace agentmon {
namespace {

using Words = std::vector<std::string>;

int Exec(const std::string& file, const Words& argv) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(file.c_str(), words.data());
  return 97;
}

struct VerifierRig : ProcessRig {
  VerifierRig() { REQUIRE(probe->Verify(session->id(), absl::ZeroDuration()).ok()); }

  // The wait status of a process that executes `file` with `argv` after `judged` was permitted to it.
  int Run(const std::string& file, const Words& judged, const Words& argv, bool cut = false) {
    ExecVerifier& verifier = *probe->verifier();
    pid = RunIn(*session, [&] {
      if (!verifier.Permit(gettid(), getpid(), judged, cut)) return 98;
      return Exec(file, argv);
    });
    return WaitFor(pid);
  }
  bool Runs(const std::string& file, const Words& judged, const Words& argv, bool cut = false) {
    const int status = Run(file, judged, argv, cut);
    INFO(status);
    CHECK((status == 0 || status == SIGKILL));
    return status == 0;
  }

  pid_t pid = 0;
};

struct Scripts {
  Scripts() {
    char name[] = "/tmp/agentmon-test-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    folder = name;
  }
  ~Scripts() {
    for (const std::string& path : made) unlink(path.c_str());
    rmdir(folder.c_str());
  }
  std::string Make(const std::string& name, const std::string& text) {
    made.push_back(folder + "/" + name);
    std::ofstream(made.back()) << text;
    REQUIRE(chmod(made.back().c_str(), 0755) == 0);
    return made.back();
  }
  std::string folder;
  std::vector<std::string> made;
};

TEST_CASE("an exec without a permit is killed before it runs, and the record says why") {
  VerifierRig rig;
  const pid_t pid = RunIn(*rig.session, [] { return Exec("/bin/true", {"true"}); });
  CHECK(WaitFor(pid) == SIGKILL);
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Exited(pid); }));
  const Event exec = rig.sink.Of(v1::EXEC, pid).at(0);
  CHECK(exec.judgement().decision() == v1::DENY);
  CHECK(exec.judgement().enforced());
  CHECK(exec.judgement().mechanism() == "verifier");
  CHECK(exec.judgement().error() == 0);
  rig.probe->Unverify(rig.session->id());
  CHECK(WaitFor(RunIn(*rig.session, [] { return Exec("/bin/true", {"true"}); })) == 0);
}

TEST_CASE("a session that is not verified needs no permits") {
  VerifierRig rig;
  TestCgroup other(rig.base->path());
  REQUIRE(rig.ring->AddSession(other->id()).ok());
  CHECK(WaitFor(RunIn(*other, [] { return Exec("/bin/true", {"true"}); })) == 0);
}

TEST_CASE("for a while after a session was taken over, execs without a permit pass, others are compared") {
  ProcessRig rig;
  REQUIRE(rig.probe->Verify(rig.session->id(), absl::Hours(1)).ok());
  CHECK(WaitFor(RunIn(*rig.session, [] { return Exec("/bin/true", {"true"}); })) == 0);
  const pid_t pid = RunIn(*rig.session, [&] {
    rig.probe->verifier()->Permit(gettid(), getpid(), Words{"true"}, false);
    return Exec("/bin/true", {"true", "x"});
  });
  CHECK(WaitFor(pid) == SIGKILL);
}

TEST_CASE("only the arguments that were judged run") {
  VerifierRig rig;
  const std::string long_word(100, 'a');
  CHECK(rig.Runs("/bin/true", {"true", "a", "", long_word}, {"true", "a", "", long_word}));
  CHECK(rig.Runs("/bin/true", {""}, {}));
  CHECK(rig.Runs("/bin/true", {}, {""}));
  for (const Words& other : {Words{"true", "a"}, Words{"true", "b", "c"}, Words{"true", "a", "b", "c"},
                             Words{"true", "a b"}, Words{"eurt", "a", "b"}, Words{}, Words{"true", "a", "B"},
                             Words{"true", "a", "b", ""}, Words{"true", "", "a", "b"}}) {
    CHECK_FALSE(rig.Runs("/bin/true", {"true", "a", "b"}, other));
  }
  REQUIRE(rig.runner.RunUntil([&] { return rig.sink.Exited(rig.pid); }));
  const Event exec = rig.sink.Of(v1::EXEC, rig.pid).at(0);
  CHECK(exec.judgement().rule() == "arguments changed after they were judged");
  CHECK(exec.exec().argv(1).empty());  // as they were in the end
}

TEST_CASE("a permit is used once and is of one process") {
  VerifierRig rig;
  ExecVerifier& verifier = *rig.probe->verifier();
  const pid_t twice = RunIn(*rig.session, [&] {
    verifier.Permit(gettid(), getpid(), Words{"sh", "-c", "exec true"}, false);
    return Exec("/bin/sh", {"sh", "-c", "exec true"});
  });
  CHECK(WaitFor(twice) == SIGKILL);
  const pid_t foreign = RunIn(*rig.session, [&] {
    verifier.Permit(gettid(), getppid(), Words{"true"}, false);
    return Exec("/bin/true", {"true"});
  });
  CHECK(WaitFor(foreign) == SIGKILL);
  const pid_t any = RunIn(*rig.session, [&] {
    verifier.PermitAny(gettid(), getpid());
    return Exec("/bin/true", {"true", "whatever"});
  });
  CHECK(WaitFor(any) == 0);
}

TEST_CASE("a thread that is not the first finds its own permit") {
  VerifierRig rig;
  for (const bool right : {true, false}) {
    const pid_t pid = RunIn(*rig.session, [&] {
      std::thread([&] {
        rig.probe->verifier()->Permit(right ? gettid() : getpid(), getpid(), Words{"true"}, false);
        Exec("/bin/true", {"true"});
      }).join();
      return 96;
    });
    CHECK(WaitFor(pid) == (right ? 0 : SIGKILL));
  }
}

TEST_CASE("arguments of any length: what was judged is compared") {
  VerifierRig rig;
  for (const size_t bytes : {4091u, 4092u, 8000u, 60'000u, 65'529u, 65'530u}) {
    const std::string word(bytes, 'a');
    CHECK(rig.Runs("/bin/true", {"true", word}, {"true", word}));
    CHECK_FALSE(rig.Runs("/bin/true", {"true", word}, {"true", word + "a"}));
    CHECK_FALSE(rig.Runs("/bin/true", {"true", word}, {"true", word, ""}));
    CHECK_FALSE(rig.Runs("/bin/true", {"true", word}, {"true", word.substr(1) + "b"}));
  }
  const std::string most(65'531, 'a');
  CHECK(rig.Runs("/bin/true", {"true", most}, {"true", most + "judged by nobody", "x"}, true));
  CHECK_FALSE(rig.Runs("/bin/true", {"true", most}, {"true", "b" + most}, true));
  const Words many(12'000, "a");
  CHECK(rig.Runs("/bin/true", many, many));
}

TEST_CASE("scripts run with the arguments that were judged") {
  VerifierRig rig;
  Scripts scripts;
  const std::string sh = scripts.Make("sh", "#!/bin/sh\nexit 0\n");
  const std::string with = scripts.Make("with", "#!/bin/sh -e\nexit 0\n");
  const std::string env = scripts.Make("env", "#! /usr/bin/true  a b c \n");
  const std::string second = scripts.Make("second", "#!" + env + "\n");
  const std::string third = scripts.Make("third", "#!" + second + " word\n");
  const std::string fourth = scripts.Make("fourth", "#!" + third + " x\n");
  for (const std::string& file : {sh, with, env, second, third, fourth}) {
    INFO(file);
    const Words judged{"zero", "one", "two"};
    CHECK(rig.Runs(file, judged, judged));
    CHECK(rig.Runs(file, {"zero"}, {"zero"}));
    CHECK(rig.Runs(file, {}, {}));
    CHECK(rig.Runs(file, {"0", std::string(65'533, 'a')}, {"0", std::string(65'533, 'a')}));
    for (const Words& other :
         {Words{"zero", "one"}, Words{"zero", "one", "two", "3"}, Words{"zero", "two", "one"}, Words{"zero"},
          Words{"zero", "-c", "one", "two"}, Words{"zero", file, "one", "two"}, Words{"zero", "one two"},
          Words{"zero", file, file, "one", "two"}, Words{"zero", "-c", file, "one", "two"},
          Words{"zero", "zero", "one", "two"}, Words{"zero", "/bin/sh", "-c", file, "one", "two"}}) {
      CHECK_FALSE(rig.Runs(file, judged, other));
    }
  }
}

}  // namespace
}  // namespace agentmon
