// A directory with files that a test writes, in place of one of the cgroup hierarchy.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace agentmon {

class DirectoryFixture {
 public:
  DirectoryFixture() {
    char name[] = "/tmp/agentmon-limits-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~DirectoryFixture() { std::filesystem::remove_all(path_); }
  DirectoryFixture(const DirectoryFixture&) = delete;
  DirectoryFixture& operator=(const DirectoryFixture&) = delete;

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ + "/" + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string Read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path_ + "/" + name).rdbuf();
    return text.str();
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace agentmon
