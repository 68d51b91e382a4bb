#include "client/launch/shim.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace agentmon {
namespace {

class Programs {
 public:
  explicit Programs(const std::vector<std::string>& names) : names_(names) {
    REQUIRE(mkdtemp(path_.data()) != nullptr);
    for (const std::string& name : names_)
      close(open((path_ + "/" + name).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0755));
  }
  ~Programs() {
    for (const std::string& name : names_) unlink((path_ + "/" + name).c_str());
    rmdir(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/shim-test.XXXXXX";
  const std::vector<std::string> names_;
};

}  // namespace

TEST_CASE("the shim's arguments carry no token and end with the command") {
  CHECK(ShimArguments("/x/agentmon-shim", {"/run/s", 5, "s-1", {}, {"ls", "--", "-l"}}) ==
        std::vector<std::string>{"/x/agentmon-shim", "--socket", "/run/s", "--token-fd", "5", "--", "ls",
                                 "--", "-l"});
  CHECK(ShimArguments("/x/agentmon-shim", {"/run/s", 5, "s-1", {0, 7}, {"ls"}}) ==
        std::vector<std::string>{"/x/agentmon-shim", "--socket", "/run/s", "--token-fd", "5", "--keep-fd",
                                 "0", "--keep-fd", "7", "--", "ls"});
}

TEST_CASE("agentmon-ns is tried first, and only where a mount namespace is wanted") {
  const ShimPrograms both{"/x/agentmon-shim", "/x/agentmon-ns"};
  CHECK(ProgramsToTry(both, true) == std::vector<std::string>{"/x/agentmon-ns", "/x/agentmon-shim"});
  CHECK(ProgramsToTry(both, false) == std::vector<std::string>{"/x/agentmon-shim"});
  CHECK(ProgramsToTry({"/x/agentmon-shim", ""}, true) == std::vector<std::string>{"/x/agentmon-shim"});
}

TEST_CASE("a directory without the shim has nothing to start") {
  Programs programs({"agentmon-ns"});
  CHECK_FALSE(FindShimIn(programs.path()).ok());
}

TEST_CASE(
    "the shim beside the program goes before the installed one, which is taken where there is none beside") {
  const Programs build({"agentmon-shim"});
  const Programs bin({"agentmon"});
  const Programs libexec({"agentmon-shim", "agentmon-ns"});
  const auto in_build = FindShimFrom(build.path(), libexec.path());
  REQUIRE(in_build.ok());
  CHECK(in_build->shim == build.path() + "/agentmon-shim");
  CHECK(in_build->ns.empty());  // not the other installation's
  const auto installed = FindShimFrom(bin.path(), libexec.path());
  REQUIRE(installed.ok());
  CHECK(installed->shim == libexec.path() + "/agentmon-shim");
  const auto nowhere = FindShimFrom(bin.path(), bin.path());
  CHECK(nowhere.status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("root may use agentmon-ns as it is, others need its capability on the file") {
  Programs programs({"agentmon-shim", "agentmon-ns"});
  const absl::StatusOr<ShimPrograms> found = FindShimIn(programs.path());
  REQUIRE(found.ok());
  CHECK(found->shim == programs.path() + "/agentmon-shim");
  const bool possible = geteuid() == 0 && prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) == 1;
  CHECK(found->ns == (possible ? programs.path() + "/agentmon-ns" : ""));
}

TEST_CASE("the token can be read once from the pipe, whose ends no other program inherits") {
  absl::StatusOr<TokenPipe> pipe = MakeTokenPipe();
  REQUIRE(pipe.ok());
  CHECK((fcntl(pipe->read_end.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((fcntl(pipe->write_end.get(), F_GETFD) & FD_CLOEXEC) != 0);
  REQUIRE(WriteToken(*pipe, "secret").ok());
  char buffer[16];
  CHECK(read(pipe->read_end.get(), buffer, sizeof buffer) == 6);
  CHECK(read(pipe->read_end.get(), buffer, sizeof buffer) == 0);
}

}  // namespace agentmon
