#include "daemon/policy/program_copies.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/unique_fd.h"
#include "common/policy/testing/snapshots.h"

namespace agentmon {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    char name[] = "/tmp/agentmon-copies-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() { fs::remove_all(path); }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(path + "/" + name) << text;
    return path + "/" + name;
  }
  std::string path;
};

std::string OriginalOf(const ProgramCopies& copies, const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st {};
  REQUIRE(::fstat(fd.get(), &st) == 0);
  return copies.OriginalOf(fd.get(), st);
}

}  // namespace

TEST_CASE("a copy of a program that a rule stops is known by its content, and nothing else is") {
  const Folder folder;
  const std::string tool = folder.Write("tool", std::string(700'000, 'a') + "end");
  const std::string allowed = folder.Write("allowed", "an allowed program");
  const ProgramCopies copies(
      *policy::MakeBase(absl::StrCat("command_rules:\n  - {name: a, commands: ['", tool,
                                     "', '/usr/bin/id', 'no-such-program'], decision: deny}\n",
                                     "  - {name: b, commands: ['", allowed, "'], decision: allow}\n")));
  CHECK(OriginalOf(copies, folder.Write("copy", std::string(700'000, 'a') + "end")) == tool);
  CHECK(OriginalOf(copies, tool).empty());
  fs::create_hard_link(tool, folder.path + "/link");
  CHECK(OriginalOf(copies, folder.path + "/link").empty());  // as unzip and zipinfo are one file
  CHECK(OriginalOf(copies, folder.Write("last", std::string(700'000, 'a') + "enD")).empty());
  CHECK(OriginalOf(copies, folder.Write("longer", std::string(700'000, 'a') + "end.")).empty());
  CHECK(OriginalOf(copies, folder.Write("of-allowed", "an allowed program")).empty());
  fs::copy_file("/usr/bin/id", folder.path + "/whoisit");
  CHECK(OriginalOf(copies, folder.path + "/whoisit") == "/usr/bin/id");
}

}  // namespace agentmon
