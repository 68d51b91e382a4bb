#include "client/policy/policy_cli.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace agentmon::policy_cli {
namespace {

class Files {
 public:
  Files() {
    char name[] = "/tmp/policycliXXXXXX";
    root_ = mkdtemp(name);
  }
  ~Files() { std::filesystem::remove_all(root_); }
  std::string Put(const std::string& name, const std::string& text) {
    std::ofstream(root_ + "/" + name) << text;
    return root_ + "/" + name;
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

PolicyContext Context() {
  PolicyContext context;
  context.directories = {AGENTMON_SOURCE_DIR "/packaging/policies"};
  context.compile.variables.derived = {{"HOME", "/home/u"},
                                       {"USER", "u"},
                                       {"WORKSPACE", "/home/u/ws"},
                                       {"GIT_ROOT", "/home/u/ws"},
                                       {"TMPDIR", "/tmp"}};
  context.compile.builtin = policy::InstalledPaths("/var/lib/agentmon", "/run/agentmon", "/home/u");
  return context;
}

const std::string kGood =
    "version: 1\nname: t\nfile_rules:\n  - {name: no-x, paths: ['/x'], decision: deny, message: 'not "
    "{{.Path}}'}\n";

}  // namespace

TEST_CASE("explain prints the verdict, its rule and what each layer says") {
  std::ostringstream out, err;
  ExplainOptions options;
  options.verb = "exec";
  options.subject = "env git push --force";
  CHECK(Explain(Context(), options, out, err) == 1);
  CHECK(err.str().empty());
  CHECK(out.str().find("ask: git-force-push\n") == 0);
  CHECK(out.str().find("base: default: ask by git-force-push") != std::string::npos);
  CHECK(out.str().find("for the command behind it: git push --force") != std::string::npos);
  out.str("");
  options.subject = "git push origin maintenance";
  CHECK(Explain(Context(), options, out, err) == 0);
  options.approver = false;
  options.subject = "git push -f";
  out.str("");
  CHECK(Explain(Context(), options, out, err) == 1);
  CHECK(out.str().find("deny (the rule says ask): git-force-push") == 0);
  options.verb = "fly";
  CHECK(Explain(Context(), options, out, err) == 2);
}

TEST_CASE("validate and lint answer by their exit status and name places") {
  Files files;
  std::ostringstream out, err;
  CHECK(Validate(Context(), {files.Put("good.yaml", kGood)}, out, err) == 0);
  CHECK(out.str().find("1 rules, valid") != std::string::npos);
  CHECK(Validate(Context(), {files.Put("bad.yaml", "version: 1\nname: t\nfile_ruls: []\n")}, out, err) == 1);
  CHECK(err.str().find("bad.yaml:3:1: error: unknown key") != std::string::npos);
  CHECK(Validate(Context(), {files.root() + "/none.yaml"}, out, err) == 2);
  LintOptions lint;
  lint.files = {files.Put("l.yaml",
                          "version: 1\nname: t\nfile_rules:\n  - {name: a, paths: ['/x/**'], decision: "
                          "allow}\n  - {name: b, paths: ['/x/y'], decision: deny}\n")};
  out.str("");
  CHECK(Lint(Context(), lint, out, err) == 1);
  CHECK(out.str().find("l.yaml:5:5: warning: shadowed") != std::string::npos);
  lint.files = {"default", "strict"};
  CHECK(Lint(Context(), lint, out, err) == 0);
}

TEST_CASE("test runs tables, as text and as JUnit") {
  Files files;
  files.Put("p.yaml", kGood);
  const std::string table = files.Put(
      "t.yaml",
      "policy: p.yaml\nrows:\n  - {expect: deny, rule: no-x, open: [/x]}\n  - {expect: deny, open: [/y]}\n");
  std::ostringstream out, err;
  TestOptions options;
  options.tables = {table};
  CHECK(Test(Context(), options, out, err) == 1);
  CHECK(out.str().find("t.yaml:4: FAIL open /y: allow, not deny: default") != std::string::npos);
  CHECK(out.str().find("1 passed, 1 failed") != std::string::npos);
  options.junit = true;
  out.str("");
  CHECK(Test(Context(), options, out, err) == 1);
  CHECK(out.str().find("<testsuite name=\"" + table + "\" tests=\"2\" failures=\"1\" errors=\"0\"") !=
        std::string::npos);
  options.tables = {AGENTMON_SOURCE_DIR "/packaging/policies/tests/default.yaml"};
  CHECK(Test(Context(), options, out, err) == 0);
  options.tables = {files.Put("broken.yaml", "policy: none.yaml\nrows: []\n")};
  CHECK(Test(Context(), options, out, err) == 1);
}

TEST_CASE("show, diff, init and schema") {
  Files files;
  std::ostringstream out, err;
  CHECK(Show(Context(), "none", out, err) == 2);
  CHECK(Show(Context(), "ci", out, err) == 0);
  out.str("");
  CHECK(Diff(Context(), "default", "default", out, err) == 0);
  CHECK(Diff(Context(), "default", "strict", out, err) == 1);
  CHECK(out.str().find("+ network rule git-hosts") != std::string::npos);
  CHECK(out.str().find("~ default network: allow -> deny") != std::string::npos);
  CHECK(Init(files.root() + "/new.yaml", out, err) == 0);
  CHECK(Init(files.root() + "/new.yaml", out, err) == 1);
  CHECK(Validate(Context(), {files.root() + "/new.yaml"}, out, err) == 0);
  out.str("");
  CHECK(Schema(out) == 0);
  CHECK(out.str().find("\"file_rules\"") != std::string::npos);
}

TEST_CASE("the project around a directory") {
  Files files;
  std::filesystem::create_directories(files.root() + "/repo/.git");
  std::filesystem::create_directories(files.root() + "/repo/service/cmd");
  std::ofstream(files.root() + "/repo/service/go.mod") << "module x\n";
  CHECK(FindProject(files.root() + "/repo/service/cmd") ==
        std::pair(files.root() + "/repo/service", files.root() + "/repo"));
  CHECK(FindProject(files.root() + "/repo") == std::pair(files.root() + "/repo", files.root() + "/repo"));
  std::ofstream(files.root() + "/package.json") << "{}";
  CHECK(FindProject(files.root() + "/repo") == std::pair(files.root() + "/repo", files.root() + "/repo"));
}

TEST_CASE(
    "a choice has files as rules and names as names, the user's own layer, and the variables they name") {
  Files files;
  PolicyContext context = Context();
  context.home = files.root();
  context.compile.variables.session = {{"DATA", "/data"}, {"SECRET_TOKEN", "x"}, {"HOME", "/elsewhere"}};
  std::filesystem::create_directories(UserPolicyDirectory(context));
  const std::string tight = files.Put(
      "tight.yaml",
      "version: 1\nname: t\nfile_rules:\n  - {name: d, paths: ['${DATA}/**', '~/y'], decision: deny}\n");
  std::ofstream(UserPolicyDirectory(context) + "/20.yaml") << kGood;
  std::ofstream(UserPolicyDirectory(context) + "/.20.yaml.swp") << "no policy";
  auto choice = MakeChoice(context, {"strict", tight});
  REQUIRE(choice.ok());
  CHECK(choice->base().name() == "strict");
  REQUIRE(choice->further_size() == 1);
  CHECK(choice->further(0).document().rules(0).at().line() == 4);
  REQUIRE(choice->user_size() == 1);
  CHECK(choice->user(0).rules(0).name() == "no-x");
  // Only what the files name, and nothing that the daemon knows by itself.
  REQUIRE(choice->environment().size() == 1);
  CHECK(choice->environment().at("DATA") == "/data");
  CHECK(choice->git_root() == "/home/u/ws");
  CHECK_FALSE(MakeChoice(context, {})->has_base());

  std::ofstream(UserPolicyDirectory(context) + "/30.yaml") << "version: 1\nname: t\nposture: no\n";
  const auto broken = MakeChoice(context, {files.Put("b.yaml", "version: 1\nnme: t\n")});
  REQUIRE_FALSE(broken.ok());
  CHECK(std::string(broken.status().message()).find("30.yaml:3:") != std::string::npos);
  CHECK(std::string(broken.status().message()).find("b.yaml:2:") != std::string::npos);
}

}  // namespace agentmon::policy_cli
