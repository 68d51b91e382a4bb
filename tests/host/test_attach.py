"""Processes that already run are taken into a session whole, or watched."""
import contextlib
import json
import os
import signal
import subprocess

import pytest

from harness import UID, alive, as_user, brief, one, select, wait_until

# Forks children and grandchildren, and goes on forking until the file "stop" appears. Each one writes its pid
# into the folder "pids" and runs until the file "go" appears; then each opens a file of its own for writing.
TREE = """
import os, time
os.mkdir("pids")
def leaf():
    open("pids/%d" % os.getpid(), "w").close()
    while not os.path.exists("go"): time.sleep(0.02)
    open("after-%d" % os.getpid(), "w").close()
    os._exit(0)
for i in range(15):
    if os.fork() == 0:
        if os.fork() == 0: leaf()
        leaf()
open("ready", "w").close()
count = 0
while not os.path.exists("stop") and count < 300:
    if os.fork() == 0: leaf()
    count += 1
    time.sleep(0.01)
leaf()
"""


@pytest.fixture
def tree(work, python):
    process = subprocess.Popen([*as_user(UID), *python(TREE)], cwd=work, start_new_session=True)
    wait_until(lambda: (work / "ready").exists(), 15, "the tree runs")
    yield process
    (work / "stop").touch()
    (work / "go").touch()
    try:
        process.wait(20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def members(daemon, name):
    folder = daemon.cgroup(daemon.session(name))
    return {int(p) for file in folder.rglob("cgroup.procs") for p in file.read_text().split()}


def test_a_forking_tree_is_taken_in_whole_and_nobody_else(daemon, work, tree):
    outsider = subprocess.Popen([*as_user(UID), "sleep", "60"], cwd=work)
    name = daemon.new_name()
    try:
        result = daemon.am("attach", "--pid", str(tree.pid), "--name", name, uid=UID)
        assert result.status == 0, result
        (work / "stop").touch()

        def all_there():
            pids = {int(p) for p in os.listdir(work / "pids") if alive(int(p))}
            return len(pids) > 30 and pids <= members(daemon, name)

        wait_until(all_there, 10, "every process of the tree is in the session")
        caught = members(daemon, name)
        assert outsider.pid not in caught and os.getpid() not in caught
        # A child that was just born has not told its pid yet.
        wait_until(lambda: caught <= {int(p) for p in os.listdir(work / "pids")} | {tree.pid}, 10,
                   "everybody in the session is of the tree")
    finally:
        outsider.kill()
        outsider.wait()


def test_what_an_attached_tree_does_is_recorded(daemon, work, tree):
    name = daemon.new_name()
    assert daemon.am("attach", "--pid", str(tree.pid), "--name", name, uid=UID).status == 0
    shown = daemon.session(name)
    assert shown["origin"] == "adopt" and shown["uid"] == UID
    (work / "stop").touch()
    (work / "go").touch()
    tree.wait(20)
    rows = daemon.events(name, seconds=20)
    pids = {int(p) for p in os.listdir(work / "pids")}
    ended = {r["pid"] for r in select(rows, kind="exit")}
    assert pids <= ended, brief(rows)


def test_sources_that_do_not_see_an_attached_process_are_named(daemon, work, tree):
    name = daemon.new_name()
    assert daemon.am("attach", "--pid", str(tree.pid), "--name", name, uid=UID).status == 0
    sources = {s["source"]: s for s in daemon.session(name)["sources"]}
    assert sources["process"]["active"] and sources["network"]["active"]
    assert not sources["notify"]["active"] and sources["notify"]["why"]


@pytest.mark.parametrize("pid", ["1", "0", "-1", "999999999", "4194304", "x", "daemon"])
def test_silly_pids_are_refused_with_a_message(daemon, pid):
    result = daemon.am("attach", "--pid", str(daemon.pid) if pid == "daemon" else pid, timeout=20)
    assert result.status != 0
    assert result.err.strip()
    assert daemon.status()["pid"] == daemon.pid


def test_a_process_of_another_user_cannot_be_attached(daemon, work):
    other = subprocess.Popen([*as_user(61002), "sleep", "60"])
    try:
        result = daemon.am("attach", "--pid", str(other.pid), uid=UID)
        assert result.status != 0 and result.err
    finally:
        other.kill()
        other.wait()


def test_a_process_of_a_session_cannot_be_taken_out_of_it(daemon, work):
    with daemon.running("sh", "-c", "echo $$ > pid; sleep 60", cwd=work) as (_, name):
        wait_until(lambda: (work / "pid").exists() and (work / "pid").read_text(), 10, "it runs")
        pid = int((work / "pid").read_text())
        assert daemon.am("attach", "--pid", str(pid), uid=UID).status != 0
        assert pid in members(daemon, name)


def test_a_stopped_attached_session_ends_its_processes(daemon, work):
    process = subprocess.Popen([*as_user(UID), "sleep", "60"], cwd=work)
    name = daemon.new_name()
    assert daemon.am("attach", "--pid", str(process.pid), "--name", name, uid=UID).status == 0
    assert daemon.am("session", "stop", name, uid=UID).status == 0
    assert process.wait(10) == -signal.SIGTERM


# -- watch: the same without moving anybody


def watched(daemon, work, python, uid=UID):
    """Starts a process that acts once the watch is on; (rows of the watch, the process's pid)."""
    words = python("""
import os, time
while not os.path.exists("go"): time.sleep(0.02)
if os.fork() == 0: os.execv("/bin/echo", ["echo", "watched"])
os.wait()
""")
    process = subprocess.Popen([*as_user(UID), *words], cwd=work, stdout=subprocess.DEVNULL)
    watch = subprocess.Popen(daemon.am_words("watch", "--pid", str(process.pid), "--format", "json", uid=uid),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: watch.poll() is not None or
                   select(daemon.sessions(), origin="watch") or watch_is_quiet(watch), 10, "the watch is on")
        (work / "go").touch()
        process.wait(10)
        out, err = watch.communicate(timeout=15)
    finally:
        process.kill()
        watch.kill()
    return [json.loads(line) for line in out.splitlines()], process.pid, watch.returncode, err


def watch_is_quiet(watch):
    """A watch that is no listed session: it has connected once it waits for its socket."""
    return "poll" in open(f"/proc/{watch.pid}/wchan").read()


def test_watch_shows_a_process_and_its_descendants_and_ends_with_them(daemon, work, python):
    rows, pid, status, err = watched(daemon, work, python)
    assert status == 0, err
    echo = one(rows, kind="exec", argv=["echo", "watched"])
    assert echo["ppid"] == pid
    # It was there before: who it is was asked of the kernel.
    fork = one(rows, kind="fork", pid=pid)
    assert fork["exe"] == os.path.realpath("/usr/bin/python3")
    assert fork["ppid"] == os.getpid() and fork["start_ns"] > 0
    assert select(rows, kind="exit", pid=pid)


def test_watch_ends_after_its_duration(daemon, work):
    process = subprocess.Popen([*as_user(UID), "sleep", "60"])
    try:
        result = daemon.am("watch", "--pid", str(process.pid), "--duration", "0.5", uid=UID, timeout=10)
        assert result.status == 0, result
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
