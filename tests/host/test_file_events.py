"""File rows: what was asked for, under absolute names."""
import os
import pathlib
import shutil
import tempfile

import pytest

from harness import UID, brief, one, raw, select, total

ACTS = """
import os, sys
os.mkdir("made", 0o751)
os.close(os.open("new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640))
os.close(os.open("new", os.O_WRONLY))
os.rename("new", "made/moved")
os.link("made/moved", "hard")
os.symlink("made/moved", "soft")
os.chmod("hard", 0o604)
os.chown("hard", -1, os.getgid())
os.truncate("hard", 5)
os.mkfifo("fifo", 0o600)
for name in ("hard", "soft", "fifo"): os.unlink(name)
folder = os.open("made", os.O_RDONLY | os.O_DIRECTORY)
os.rename("moved", "again", src_dir_fd=folder, dst_dir_fd=folder)
os.unlink("again", dir_fd=folder)
os.chdir("made")
os.mkdir("../other")
os.rmdir("../other")
os.chdir("..")
os.rmdir("made")
"""


@pytest.fixture(scope="module")
def acts(shared_daemon):
    """One session that does each act once: (rows, folder)."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="agentmon-e2e-acts-", dir="/tmp"))
    os.chown(folder, UID, UID)
    folder.chmod(0o755)
    script = folder / "acts.py"
    script.write_text(ACTS)
    rows = shared_daemon.recorded("/usr/bin/python3", "-I", "-S", "-B", str(script), cwd=folder)
    yield [r for r in rows if str(r.get("path", "")).startswith(str(folder)) or
           str(r.get("new_path", "")).startswith(str(folder))], str(folder)
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind, path, new_path", [
    ("mkdir", "made", None),
    ("create", "new", None),
    ("open_write", "new", None),
    ("rename", "new", "made/moved"),
    ("link", "made/moved", "hard"),
    ("chmod", "hard", None),
    ("chown", "hard", None),
    ("truncate", "hard", None),
    ("mknod", "fifo", None),
    ("delete", "hard", None),
    ("delete", "soft", None),
    ("delete", "fifo", None),
    ("rename", "made/moved", "made/again"),
    ("delete", "made/again", None),
    ("rmdir", "made", None),
])
def test_each_act_has_one_row_with_absolute_names(acts, kind, path, new_path):
    rows, folder = acts
    expected = {"kind": kind, "path": f"{folder}/{path}"}
    if new_path is not None:
        expected["new_path"] = f"{folder}/{new_path}"
    row = one(rows, **expected)
    assert row["count"] == 1
    assert row["source"] == "notify" and row["as_asked"] is True


def test_a_symlink_row_has_its_target_as_given(acts):
    rows, folder = acts
    assert one(rows, kind="symlink", path=f"{folder}/soft")["new_path"] == "made/moved"


def test_a_name_relative_to_a_parent_folder_ends_up_in_the_right_place(acts):
    rows, folder = acts
    for kind in ("mkdir", "rmdir"):
        assert [r for r in select(rows, kind=kind) if os.path.normpath(r["path"]) == f"{folder}/other"], brief(rows)


@pytest.mark.parametrize("kind, path, field, value", [
    ("mkdir", "made", "mode", "0751"),
    ("create", "new", "mode", "0640"),
    ("chmod", "hard", "mode", "0604"),
    ("truncate", "hard", "size", 5),
    ("chown", "hard", "owner_uid", -1),
    ("chown", "hard", "owner_gid", UID),
])
def test_rows_carry_what_was_asked_for(acts, kind, path, field, value):
    rows, folder = acts
    row = one(rows, kind=kind, path=f"{folder}/{path}")
    assert row[field] == value


def test_the_opened_for_write_flags_are_named(acts):
    rows, folder = acts
    flags = one(rows, kind="create", path=f"{folder}/new")["open_flags_text"]
    assert {"O_WRONLY", "O_CREAT", "O_EXCL"} <= set(flags.split("|"))


def test_a_read_is_told_apart_from_a_write(daemon, work):
    (work / "read").write_text("text")
    (work / "written").write_text("text")
    os.chown(work / "written", UID, UID)
    rows = daemon.recorded("dd", "if=read", "of=written", "conv=notrunc,nocreat", cwd=work)
    read = [r["kind"] for r in rows if r.get("path") == str(work / "read")]
    written = [r["kind"] for r in rows if r.get("path") == str(work / "written")]
    assert set(read) == {"open"}, brief(rows)
    assert "open_write" in written and "write" in written, brief(rows)


def test_reads_are_counted_as_at_least(daemon, work):
    (work / "read").write_text("text")
    rows = daemon.recorded("cat", "read", cwd=work)
    row = one(rows, kind="open", path=str(work / "read"))
    assert row["source"] == "fanotify" and row["count_is"] == "at_least"


def test_attempts_that_fail_are_recorded_too(daemon, work):
    result = daemon.run("rm", "-f", "/etc/passwd", cwd=work)
    assert result.status != 0
    one(daemon.events(result.name), kind="delete", path="/etc/passwd")


@pytest.mark.parametrize("name", [b"n" * 255, b"new\nline\t", b"\xff\xfe", "ü €".encode(), b"-rf *", b"%s%n"])
def test_odd_file_names_are_recorded_byte_by_byte(daemon, work, name):
    rows = daemon.recorded("touch", "--", name, cwd=work)
    path = os.path.join(os.fsencode(work), name)
    assert [r for r in select(rows, kind="create") if raw(r, "path") == path], brief(rows)


def test_a_file_below_a_path_of_4000_bytes_is_recorded_in_full(daemon, work, python):
    rows = daemon.recorded(*python("""
import os
while len(os.getcwd()) < 3800:
    os.mkdir("d" * 180)
    os.chdir("d" * 180)
open("f" * (4000 - len(os.getcwd()) - 1), "x").close()
"""), cwd=work)
    (row,) = [r for r in select(rows, kind="create") if r["path"].endswith("fff")]
    assert len(row["path"]) == 4000 and row["path"].startswith(str(work) + "/ddd")


def test_a_name_longer_than_a_path_may_be_fails_as_without_us(daemon, work, python):
    rows = daemon.recorded(*python("""
import errno
try: open("x" * 5000, "w")
except OSError as e: assert e.errno == errno.ENAMETOOLONG
else: raise SystemExit(1)
"""), cwd=work)
    assert select(rows, kind="session", change="ended")


def test_bad_pointers_fail_as_without_us(daemon, work, cc):
    program = cc("efault", """
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void) {
  char *bad = (char *)8;
  if (unlink(bad) != -1 || errno != EFAULT) return 1;
  if (open(bad, O_WRONLY | O_CREAT, 0600) != -1 || errno != EFAULT) return 2;
  if (rename("a", bad) != -1) return 3;
  if (mkdir("", 0700) != -1 || errno != ENOENT) return 4;
  return 0; }""")
    result = daemon.run(program, cwd=work)
    assert result.status == 0, result


# A timer fires about every 700 us while files are opened and folders made; prints what failed, by errno.
SIGNAL_STORM = """
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
static void nothing(int s) {}
static void failed(const char *call, int ok_too) { if (errno != ok_too) printf("%s %d\\n", call, errno); }
int main(int argc, char **argv) {
  struct sigaction a = {.sa_handler = nothing, .sa_flags = atoi(argv[1])};
  sigaction(SIGALRM, &a, 0);
  struct itimerval t = {{0, 700}, {0, 700}};
  setitimer(ITIMER_REAL, &t, 0);
  for (int i = 0; i < 3000; i++) {
    int f = open("file", O_WRONLY | O_CREAT, 0600);
    if (f < 0) failed("open", 0); else if (close(f)) failed("close", 0);
    if (mkdir("folder", 0700)) failed("mkdir", EEXIST);
    if (rmdir("folder")) failed("rmdir", ENOENT);
  }
  return 0; }"""
SA_RESTART = 0x10000000


def test_signals_with_restarting_handlers_disturb_no_call(daemon, work, cc):
    result = daemon.run(cc("signal_storm", SIGNAL_STORM), str(SA_RESTART), cwd=work)
    assert (result.status, result.out) == (0, b"")
    rows = daemon.events(result.name)
    assert total(rows, kind="rmdir", path=str(work / "folder")) >= 3000


def test_signals_without_restarting_handlers_give_eintr_at_most(daemon, work, cc):
    # Between the call and the daemon's taking of it the kernel lets a signal end the wait (README, limits).
    result = daemon.run(cc("signal_storm", SIGNAL_STORM), "0", cwd=work)
    assert result.status == 0
    lines = result.out.decode().splitlines()
    assert {line.split()[1] for line in lines} <= {"4"}
    assert len(lines) < 900


def test_repeated_acts_are_folded_with_exact_counts(daemon, work, python):
    rows = daemon.recorded(*python("""
import os
for _ in range(2000): os.close(os.open("same", os.O_WRONLY | os.O_CREAT, 0o600))
"""), cwd=work)
    opens = [r for r in rows if r.get("path") == str(work / "same") and r["kind"] in ("create", "open_write")]
    assert total(opens) == 2000
    assert len(opens) < 200
    assert {r["count_is"] for r in opens} == {"exact"}
