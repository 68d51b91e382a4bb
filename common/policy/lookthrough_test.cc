#include "common/policy/lookthrough.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace agentmon::policy {
namespace {

// What is found behind a command, each as words joined by spaces.
std::vector<std::string> Behind(std::vector<absl::string_view> argv, absl::string_view program = "") {
  std::vector<std::string> out;
  const absl::string_view name = program.empty() ? ProgramName(argv[0]) : program;
  for (const DerivedCommand& d : LookThrough(name, argv, TransparentSet()))
    out.push_back(absl::StrJoin(d.argv, " "));
  return out;
}

bool Finds(std::vector<absl::string_view> argv, const std::string& want) {
  const std::vector<std::string> found = Behind(std::move(argv));
  CAPTURE(found);
  return std::find(found.begin(), found.end(), want) != found.end();
}

}  // namespace

TEST_CASE("wrappers are looked through past their options") {
  CHECK(Finds({"env", "-i", "A=b", "-u", "X", "wget", "-q"}, "wget -q"));
  CHECK(Finds({"nice", "-n", "10", "wget"}, "wget"));
  CHECK(Finds({"nice", "-10", "wget"}, "wget"));
  CHECK(Finds({"timeout", "-s", "KILL", "--foreground", "5", "wget"}, "wget"));
  CHECK(Finds({"stdbuf", "-oL", "-e", "0", "wget"}, "wget"));
  CHECK(Finds({"sudo", "-u", "bob", "A=b", "wget"}, "wget"));
  CHECK(Finds({"doas", "-u", "bob", "wget"}, "wget"));
  CHECK(Finds({"xargs", "-0", "-n", "1", "rm", "-rf"}, "rm -rf"));
  CHECK(Finds({"chroot", "--userspec=a", "/", "wget"}, "wget"));
  CHECK(Finds({"strace", "-f", "-o", "x", "wget"}, "wget"));
  CHECK(Finds({"setsid", "-w", "wget"}, "wget"));
  CHECK(Finds({"/lib64/ld-linux-x86-64.so.2", "--library-path", "/x", "/usr/bin/wget", "-q"},
              "/usr/bin/wget -q"));
}

TEST_CASE("env -S splits its text, alone or glued to the option") {
  CHECK(Finds({"env", "-S", "A=b wget -q"}, "wget -q"));
  CHECK(Finds({"env", "-Swget -q", "x"}, "wget -q x"));
  CHECK(Finds({"env", "-vS", "wget"}, "wget"));
  CHECK(Finds({"env", "--split-string=wget -q"}, "wget -q"));
}

TEST_CASE("shells are looked through in every spelling of -c") {
  CHECK(Finds({"sh", "-c", "wget x"}, "wget x"));
  CHECK(Finds({"bash", "-lc", "wget x"}, "wget x"));
  CHECK(Finds({"bash", "--login", "-c", "wget x"}, "wget x"));
  CHECK(Finds({"bash", "-euo", "pipefail", "-c", "wget x"}, "wget x"));
  CHECK(Finds({"zsh", "-o", "shwordsplit", "-c", "wget x"}, "wget x"));
  CHECK_FALSE(Finds({"sh", "script.sh", "-c", "wget"}, "wget"));
}

TEST_CASE("scripts give all their commands") {
  const auto found = Behind(
      {"sh", "-c", "cd /x && A=1 rm -rf \"$HOME\" 2>/dev/null | tee 'a b'; (wget x) & echo $(curl y)"});
  CHECK(found ==
        std::vector<std::string>{"cd /x", "rm -rf $HOME", "tee a b", "wget x", "curl y", "echo $(curl y)"});
}

TEST_CASE("compound commands, here-documents and comments") {
  CHECK(Finds({"sh", "-c", "if true; then rm -rf x; fi"}, "rm -rf x"));
  CHECK(Finds({"sh", "-c", "for f in a b; do rm $f; done"}, "rm $f"));
  CHECK_FALSE(Finds({"sh", "-c", "cat <<EOF\nrm -rf /\nEOF\necho x"}, "rm -rf /"));
  CHECK(Finds({"sh", "-c", "cat <<EOF\nrm -rf /\nEOF\nrm y"}, "rm y"));
  CHECK_FALSE(Finds({"sh", "-c", "echo x # rm -rf /"}, "rm -rf /"));
  CHECK(Finds({"sh", "-c", "exec wget x"}, "wget x"));
  CHECK(Finds({"sh", "-c", "eval 'wget x'"}, "wget x"));
  CHECK(Finds({"sh", "-c", "r\\m -r'f' x"}, "rm -rf x"));
}

TEST_CASE("find, busybox, multi-call binaries and git's own options") {
  CHECK(Finds({"find", ".", "-name", "x", "-exec", "rm", "-rf", "{}", ";"}, "rm -rf {}"));
  CHECK(Finds({"find", ".", "-execdir", "rm", "{}", "+", "-ok", "cp", "{}", ";"}, "cp {}"));
  CHECK(Finds({"busybox", "rm", "-rf", "x"}, "rm -rf x"));
  CHECK(Behind({"/x/rm", "-rf"}, "busybox") == std::vector<std::string>{"rm -rf"});
  CHECK(Behind({"coreutils", "--coreutils-prog=rm", "-rf"}) == std::vector<std::string>{"rm -rf"});
  CHECK(Finds({"git", "-C", "x", "-c", "a=b", "push", "--force"}, "git push --force"));
  CHECK(Finds({"git", "-c", "alias.p=!wget x", "p"}, "wget x"));
  CHECK(Behind({"git", "push"}).empty());
}

TEST_CASE("wrappers inside wrappers, to a depth of five") {
  CHECK(Finds({"sudo", "env", "A=b", "nice", "-n", "1", "sh", "-c", "wget"}, "wget"));
  CHECK_FALSE(Finds({"env", "env", "env", "env", "env", "env", "wget"}, "wget"));
}

TEST_CASE("a set without a name does not look through it") {
  TransparentSet set;
  set.Remove("env");
  const std::vector<absl::string_view> argv = {"env", "wget"};
  CHECK(LookThrough("env", argv, set).empty());
  set.Add("mywrap");
  const std::vector<absl::string_view> own = {"mywrap", "-x", "wget"};
  REQUIRE(LookThrough("mywrap", own, set).size() == 1);
}

TEST_CASE("a huge script is cut, not followed for ever") {
  std::string script;
  for (int i = 0; i < 100000; ++i) script += "$(";
  CHECK(Behind({"sh", "-c", script}).size() <= 64);
  script.clear();
  for (int i = 0; i < 10000; ++i) script += "rm x;";
  CHECK(Behind({"sh", "-c", script}).size() == 64);
}

}  // namespace agentmon::policy
