#include "common/kernel/mountinfo.h"

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("mountinfo lines are read with and without optional fields") {
  const auto mounts = ParseMountinfo(
      "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
      "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n");
  REQUIRE(mounts.size() == 2);
  CHECK(mounts[0].fs_type == "cgroup2");
  CHECK(mounts[0].mount_point == "/sys/fs/cgroup/unified");
  CHECK(mounts[1].fs_type == "ext3");
  CHECK(mounts[1].device == "98:0");
  CHECK(mounts[1].root == "/mnt1");
  CHECK(mounts[1].parent_id == 35);
  CHECK(mounts[1].super_options == "rw,errors=continue");
}

TEST_CASE("octal escapes in mount points are resolved") {
  const auto mounts = ParseMountinfo("1 2 0:1 / /mnt/a\\040b\\134c rw - tmpfs t rw\n");
  REQUIRE(mounts.size() == 1);
  CHECK(mounts[0].mount_point == "/mnt/a b\\c");
}

TEST_CASE("a line that does not parse is left out") { CHECK(ParseMountinfo("nonsense\n1 2 3\n").empty()); }

TEST_CASE("file systems that ask a server are known") {
  for (const char* type : {"fuse", "fuse.sshfs", "fuseblk", "nfs", "nfs4", "cifs"})
    CHECK(IsServedFileSystem(type));
  for (const char* type : {"fusectl", "ext4", "tmpfs", "overlay", "autofs"})
    CHECK_FALSE(IsServedFileSystem(type));
}

}  // namespace agentmon
