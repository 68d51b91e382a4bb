"""Programs, forks and ends: every one is recorded, with its arguments and its parent."""
import os

import pytest

from harness import one, raw, select, total


def executions(rows, name):
    return [r for r in rows if r["kind"] == "exec" and r["exe"].endswith("/" + name)]


def test_an_exec_row_has_program_arguments_and_folder(daemon, work):
    rows = daemon.recorded("/usr/bin/env", "echo", "a b", "", cwd=work)
    (echo,) = executions(rows, "echo")
    assert echo["argv"] == ["echo", "a b", ""]
    assert echo["cwd"] == str(work)
    assert echo["exe"] == os.path.realpath("/usr/bin/echo")
    assert echo["uid"] == 61001
    assert echo["source"] == "process"


def test_arguments_with_newlines_are_recorded_as_they_are(daemon, work):
    rows = daemon.recorded("echo", "one\ntwo\t\x01", cwd=work)
    (echo,) = executions(rows, "echo")
    assert raw(echo, "argv") == [b"echo", b"one\ntwo\t\x01"]


def test_arguments_that_are_no_utf8_are_recorded_byte_by_byte(daemon, work):
    rows = daemon.recorded("echo", b"\xff\xfe caf\xe9", cwd=work)
    (echo,) = executions(rows, "echo")
    assert raw(echo, "argv") == [b"echo", b"\xff\xfe caf\xe9"]
    assert "\ufffd" in echo["argv"][1]


@pytest.mark.parametrize("name", [b"n" * 255, b"new\nline", b"\xff\xfe", "ü €".encode(), b"-rf *", b"a'b\"c\\"])
def test_a_program_with_an_odd_name_is_recorded_under_it(daemon, work, name):
    program = os.path.join(os.fsencode(work), name)
    with open("/bin/true", "rb") as source, open(program, "wb") as copy:
        copy.write(source.read())
    os.chmod(program, 0o755)
    rows = daemon.recorded(program, cwd=work)
    assert [raw(r, "exe") for r in select(rows, kind="exec")] == [program]


def test_an_argument_list_beyond_64_kib_is_cut_and_says_so(daemon, work):
    rows = daemon.recorded("true", "x" * 100_000, "last", cwd=work)
    (row,) = executions(rows, "true")
    assert row["argv_cut"] is True
    assert row["argv_bytes"] == len("true") + 100_000 + len("last") + 3
    kept = b"\0".join(raw(row, "argv"))
    assert kept.startswith(b"true\0xxxx") and 60_000 < len(kept) <= 65_536


def test_a_program_below_a_path_of_4000_bytes_is_recorded_in_full(daemon, work, python):
    rows = daemon.recorded(*python("""
import os, shutil
while len(os.getcwd()) < 3800:
    os.mkdir("d" * 180)
    os.chdir("d" * 180)
name = "p" * (4000 - len(os.getcwd()) - 1)
shutil.copy("/bin/true", name)
os.execv("./" + name, ["deep"])
"""), cwd=work)
    row = one(rows, kind="exec", argv=["deep"])
    assert len(row["exe"]) == 4000
    assert row["exe"].startswith(str(work) + "/ddd") and "cut" not in row


def test_forks_name_their_children_and_exits_their_status(daemon, work, python):
    rows = daemon.recorded(*python("""
import os
for status in (0, 3, 255):
    pid = os.fork()
    if pid == 0: os._exit(status)
    os.waitpid(pid, 0)
"""), cwd=work)
    parent = select(rows, kind="exec")[0]["pid"]
    children = [r["child_pid"] for r in select(rows, kind="fork", pid=parent)]
    assert len(children) == 3
    assert [one(rows, kind="exit", pid=c)["status"] for c in children] == [0, 3, 255]
    assert all(one(rows, kind="exit", pid=c)["ppid"] == parent for c in children)


def test_a_death_by_signal_is_told_apart_from_a_status(daemon, work):
    rows = daemon.recorded("sh", "-c", "sh -c 'kill -9 $$'; exit 0", cwd=work)
    dead = [r for r in select(rows, kind="exit") if "signal" in r]
    assert [(r["signal"], r["signal_name"]) for r in dead] == [(9, "SIGKILL")]


def test_an_exit_row_has_processor_time_and_peak_memory(daemon, work, python):
    rows = daemon.recorded(*python("""
import time
block = bytearray(80 << 20)
while time.process_time() < 0.4: pass
"""), cwd=work)
    (row,) = select(rows, kind="exit", status=0)
    assert 0.35e9 < row["cpu_ns"] < 5e9
    assert 80 << 20 < row["peak_rss_bytes"] < 400 << 20


def test_an_exec_from_a_thread_keeps_the_process(daemon, work, python):
    rows = daemon.recorded(*python("""
import os, threading
threading.Thread(target=lambda: os.execv("/bin/echo", ["echo", "from a thread"])).start()
threading.Event().wait()
"""), cwd=work)
    first, second = select(rows, kind="exec")
    assert second["argv"] == ["echo", "from a thread"]
    assert (second["pid"], second["start_ns"]) == (first["pid"], first["start_ns"])
    one(rows, kind="exit", pid=first["pid"])


def test_threads_are_not_processes(daemon, work, python):
    rows = daemon.recorded(*python("""
import threading
threads = [threading.Thread(target=lambda: None) for _ in range(20)]
[t.start() for t in threads]; [t.join() for t in threads]
"""), cwd=work)
    assert total(rows, kind="fork") == 0
    assert total(rows, kind="exit") == 1


def test_vfork_and_posix_spawn_are_recorded(daemon, work, cc, python):
    program = cc("vfork", """
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
  pid_t pid = vfork();
  if (pid == 0) { execl("/bin/true", "by-vfork", (char *)0); _exit(127); }
  int status; waitpid(pid, &status, 0); return status != 0;
}""")
    rows = daemon.recorded(program, cwd=work)
    child = one(rows, kind="exec", argv=["by-vfork"])
    assert child["ppid"] == select(rows, kind="exec")[0]["pid"]
    rows = daemon.recorded(*python(
        'import os\nos.waitpid(os.posix_spawn("/bin/true", ["by-spawn"], {}), 0)'), cwd=work)
    assert one(rows, kind="exec", argv=["by-spawn"])["ppid"] == select(rows, kind="exec")[0]["pid"]


DOUBLE_FORK = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
for fd in range(3): os.close(fd)
deadline = time.time() + 30
while not os.path.exists("go") and time.time() < deadline: time.sleep(0.02)
open("late", "w").close()
os.execv("/bin/echo", ["echo", "late"])
"""


def test_a_daemonised_process_keeps_its_session_and_its_first_parent(daemon, work, python):
    result = daemon.run(*python(DOUBLE_FORK), cwd=work)
    assert result.status == 0
    assert daemon.session(result.name)["state"] == "running"
    (work / "go").touch()
    rows = daemon.events(result.name)
    late = one(rows, kind="exec", argv=["echo", "late"])
    forks = select(rows, kind="fork")
    assert [f["child_pid"] for f in forks] == [forks[1]["pid"], late["pid"]]
    assert late["ppid"] == forks[1]["pid"] != 1
    assert [r["ppid"] for r in rows if r["kind"] == "create" and r["path"] == str(work / "late")] == [late["ppid"]]


def test_a_script_is_recorded_with_its_interpreter(daemon, work):
    script = work / "script.sh"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    rows = daemon.recorded("./script.sh", "argument", cwd=work)
    row = select(rows, kind="exec")[-1]
    assert row["exe"] == os.path.realpath("/bin/sh")
    assert row["argv"][-1] == "argument" and row["argv"][-2].endswith("script.sh")


def test_what_runs_outside_is_not_recorded(daemon, work):
    with daemon.running("sleep", "30", cwd=work) as (_, name):
        marker = "outside-of-every-session"
        os.spawnv(os.P_WAIT, "/bin/echo", ["echo", marker])
        assert daemon.am("session", "stop", name).status == 0
        rows = daemon.events(name)
    assert not [r for r in rows if marker in str(r.get("argv"))]
