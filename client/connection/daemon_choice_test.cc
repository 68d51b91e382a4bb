#include "client/connection/daemon_choice.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace agentmon {
namespace {

class Root {
 public:
  Root() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~Root() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_ + "/"; }
  void Write(const std::string& name, const std::string& text, mode_t mode = 0644) const {
    const std::filesystem::path file = path() + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    chmod(file.c_str(), mode);
  }
  absl::Status May(const std::string& config) const {
    Write("etc/agentmon/agentmond.yaml", config);
    return MayUseOwnDaemon(path());
  }

 private:
  std::string path_ = "/tmp/daemon-choice-test.XXXXXX";
};

}  // namespace

TEST_CASE("agentmon is installed where its configuration or its socket unit is") {
  const Root root;
  CHECK_FALSE(IsInstalled(root.path()));
  root.Write("usr/lib/systemd/user/agentmon.service", "");
  CHECK_FALSE(IsInstalled(root.path()));
  root.Write("usr/lib/systemd/system/agentmon.socket", "");
  CHECK(IsInstalled(root.path()));
  const Root other;
  other.Write("etc/agentmon/agentmond.yaml", "");
  CHECK(IsInstalled(other.path()));
}

TEST_CASE("a user's own daemon is for hosts without an installation, or whose administrator allows it") {
  const Root root;
  CHECK(MayUseOwnDaemon(root.path()).ok());
  root.Write("lib/systemd/system/agentmon.socket", "");
  CHECK(absl::IsPermissionDenied(MayUseOwnDaemon(root.path())));
  CHECK(root.May("client: {fallback: user}\n").ok());
  for (const char* config :
       {"", "log_level: info\n", "client: {fallback: none}\n", "client: user\n",
        "client: {fallback: [user]}\n", "client: {fallback: User}\n", "fallback: user\n"}) {
    CAPTURE(config);
    CHECK(absl::IsPermissionDenied(root.May(config)));
  }
  const absl::Status broken = root.May("client: {fallback: user\n");
  CHECK(absl::StrContains(broken.message(), "is no valid YAML"));
  root.Write("etc/agentmon/agentmond.yaml", "client: {fallback: user}\n", 0666);
  CHECK(absl::StrContains(MayUseOwnDaemon(root.path()).message(), "cannot be told"));
}

TEST_CASE("a socket that is named is taken, whatever is installed") {
  const Root root;
  const auto named = ChooseDaemon("/x.sock", false, root.path());
  REQUIRE(named.ok());
  CHECK(named->socket == "/x.sock");
  CHECK_FALSE(named->own);
  CHECK_FALSE(named->waits);
}

TEST_CASE("the system's daemon is waited for where it is installed, and none other is chosen") {
  const Root root;
  setenv("XDG_RUNTIME_DIR", root.path().c_str(), 1);
  unsetenv("AGENTMON_SOCKET");
  root.Write("etc/agentmon/agentmond.yaml", "client: {fallback: user}\n");
  const auto chosen = ChooseDaemon("", false, root.path());
  REQUIRE(chosen.ok());
  CHECK(chosen->socket == "/run/agentmon/agentmond.sock");
  CHECK(chosen->waits);
  CHECK_FALSE(chosen->fell);
}

}  // namespace agentmon
