"""The daemon's life: it can be stopped, killed, started twice, misconfigured, and agents go on."""
import contextlib
import os
import signal
import socket
import stat
import subprocess
import time

import pytest

from harness import alive, select, total, wait_until

# Counts into the file "count", with a new file for each number, until the file "stop" appears.
COUNTING = """
import os, time
n = 0
while not os.path.exists("stop"):
    n += 1
    open("file-%d" % n, "w").close()
    os.rename("file-%d" % n, "count")
    with open("count", "w") as f: f.write(str(n))
    os.rename("count", "counted")
    time.sleep(0.01)
"""


def counted(work):
    try:
        return int((work / "counted").read_text() or 0)
    except FileNotFoundError:
        return 0


def goes_on(work, what):
    before = counted(work)
    wait_until(lambda: counted(work) > before + 5, 10, f"the agent goes on {what}")


def test_an_agent_runs_on_while_the_daemon_is_dead_and_is_recorded_again_after(own_daemon, work, python):
    with own_daemon.running(*python(COUNTING), cwd=work) as (process, name):
        goes_on(work, "with the daemon")
        own_daemon.kill()
        goes_on(work, "without the daemon")
        own_daemon.start()
        assert own_daemon.session(name)["state"] == "running"
        goes_on(work, "with the next daemon")
        seen = counted(work)
        rows = own_daemon.events(name, until=lambda rows: any(
            r.get("path", "").startswith(f"{work}/file-") and int(r["path"].rpartition("-")[2]) > seen
            for r in select(rows, kind="create")))
        gaps = select(rows, kind="session", change="gap")
        assert len(gaps) == 1 and gaps[0]["gap_ns"] > 0
        (work / "stop").touch()
        assert process.wait(15) == 0
    exits = [r for r in own_daemon.events(name) if r["kind"] == "exit"]
    assert exits and exits[-1]["exe"].split("/")[-1].startswith("python")


def test_processes_started_after_a_restart_are_recorded_with_their_parents(own_daemon, work, python):
    words = python("""
import os, time
while not os.path.exists("go"): time.sleep(0.02)
os.spawnv(os.P_WAIT, "/bin/echo", ["echo", "after"])
""")
    with own_daemon.running(*words, cwd=work) as (_, name):
        own_daemon.events(name, lambda rows: select(rows, kind="exec"))
        own_daemon.kill()
        own_daemon.start()
        (work / "go").touch()
        rows = own_daemon.events(name, seconds=20)
    (row,) = [r for r in select(rows, kind="exec") if r["argv"] == ["echo", "after"]]
    assert [r["pid"] for r in select(rows, kind="exec")][0] == row["ppid"]


def test_sigterm_stops_the_daemon_only(own_daemon, work, python):
    with own_daemon.running(*python(COUNTING), cwd=work) as (process, name):
        goes_on(work, "with the daemon")
        assert own_daemon.stop() == 0
        goes_on(work, "after SIGTERM")
        own_daemon.start()
        assert own_daemon.session(name)["state"] == "running"
        assert own_daemon.am("session", "stop", name).status == 0
        process.wait(10)


def test_an_agent_that_ends_while_the_daemon_is_away_is_ended_after(own_daemon, work, python):
    with own_daemon.running(*python(COUNTING), cwd=work) as (process, name):
        goes_on(work, "with the daemon")
        cgroup = own_daemon.cgroup(own_daemon.session(name))
        own_daemon.kill()
        (work / "stop").touch()
        assert process.wait(15) == 0
        own_daemon.start()
        wait_until(lambda: own_daemon.session(name)["state"] == "ended", 10, "the session has ended")
        wait_until(lambda: not cgroup.exists(), 5, "its cgroup is gone")


def test_killed_eight_times_the_store_stays_whole(own_daemon, work, python):
    with own_daemon.running(*python(COUNTING), cwd=work) as (_, name):
        for _ in range(8):
            goes_on(work, "between two kills")
            own_daemon.kill()
            own_daemon.start()
        assert own_daemon.am("timeline", "verify").status == 0
        (work / "stop").touch()


def test_counts_of_repeated_acts_outlive_a_killed_daemon(own_daemon, work, python):
    words = python("""
import os, time
for n in range(500):
    os.mkdir("folder")
    os.rmdir("folder")
open("ready", "w").close()
while not os.path.exists("stop"): time.sleep(0.02)
""")
    with own_daemon.running(*words, cwd=work) as (process, name):
        wait_until((work / "ready").exists, 20, "the agent has repeated itself")
        pending = own_daemon.runtime / "pending-counts"
        wait_until(lambda: pending.exists() and pending.read_bytes().count(b"/folder") == 2, 3, "counts are kept")
        at = pending.stat().st_mtime_ns
        # In the next second nothing else is counted.
        wait_until(lambda: pending.exists() and time.time_ns() > at + 10**9 and pending.stat().st_mtime_ns == at, 5,
                   "they are up to date")
        assert total(own_daemon.timeline(session=name), kind="mkdir") == 1
        own_daemon.kill()
        own_daemon.start()
        assert not pending.exists()
        rows = own_daemon.events(name, lambda rows: total(rows, kind="mkdir") >= 500)
        assert total(rows, kind="mkdir") == 500 and total(rows, kind="rmdir") == 500
        (work / "stop").touch()
        assert process.wait(15) == 0


def fill_up(path):
    """Makes a file of all the room that there is."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(fd, bytes(4096))
    os.close(fd)


def test_a_session_that_ends_while_the_disk_is_full_is_known_afterwards(own_daemon, work, python):
    # More rows than there is room left in the write-ahead log's file.
    words = python("""
import os
for n in range(4000):
    try: os.rmdir("/no/such/folder/%d" % n)
    except OSError: pass
""")
    own_daemon.stop()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs", own_daemon.state], check=True)
    try:
        own_daemon.start()
        own_daemon.recorded("true", cwd=work)
        fill = own_daemon.state / "fill"
        fill_up(fill)
        name = own_daemon.run(*words, cwd=work).name
        wait_until(lambda: own_daemon.status()["sessions"] == 0, 10, "the session has ended")
        wait_until(lambda: "nothing is written" in own_daemon.status()["store"]["state"], 20, "the disk is full")
        own_daemon.kill()
        fill.unlink()
        own_daemon.start()
        wait_until(lambda: own_daemon.session(name), 10, "the session is known")
        assert own_daemon.session(name)["state"] == "ended"
        wait_until(lambda: not list((own_daemon.runtime / "sessions").iterdir()), 10, "its file is gone")
        # In a daemon that goes on, it is written once there is room.
        fill_up(fill)
        name = own_daemon.run(*words, cwd=work).name
        wait_until(lambda: "nothing is written" in own_daemon.status()["store"]["state"], 20, "the disk is full")
        wait_until(lambda: own_daemon.status()["sessions"] == 0, 10, "the session has ended")
        fill.unlink()
        rows = own_daemon.events(name, seconds=30)
        assert own_daemon.session(name)["state"] == "ended" and select(rows, kind="exec")
    finally:
        own_daemon.stop()
        subprocess.run(["umount", "-l", own_daemon.state], check=True)


@pytest.mark.parametrize("what", ["mode", "owner"])
def test_a_database_that_is_not_the_daemons_is_set_aside_as_it_is(own_daemon, work, what):
    name = own_daemon.run("true", cwd=work).name
    own_daemon.events(name)
    own_daemon.stop()
    if what == "mode":
        own_daemon.database.chmod(0)
    else:
        os.chown(own_daemon.database, 61001, 61001)
    own_daemon.start()
    assert "set aside as" in own_daemon.status()["store"]["state"], own_daemon.status()["store"]
    assert own_daemon.session(name) is None
    [aside] = [f.stat() for f in own_daemon.state.glob("*corrupt*") if not f.name.endswith(("-wal", "-shm"))]
    assert (aside.st_mode & 0o777, aside.st_uid) == ((0, 0) if what == "mode" else (0o600, 61001))
    assert own_daemon.run("true", cwd=work).status == 0


def test_a_daemon_without_sessions_leaves_nothing(own_daemon, work):
    name = own_daemon.run("true", cwd=work).name
    wait_until(lambda: own_daemon.session(name)["state"] == "ended", 10, "the session has ended")
    base = own_daemon.cgroup(own_daemon.session(name)).parent
    assert base.name.startswith("agentmon-") and base.is_dir()
    processes = subprocess.run(["pgrep", "-f", str(own_daemon.base)], capture_output=True, text=True, check=False)
    assert own_daemon.stop() == 0
    wait_until(lambda: not [p for p in processes.stdout.split() if alive(int(p))], 10, "no process of it is left")
    assert not own_daemon.socket.exists()
    assert not base.exists()


def test_a_second_daemon_on_the_same_state_is_refused_and_names_the_first(own_daemon):
    second = [*own_daemon.command()[:-1], str(own_daemon.base / "run2")]
    done = subprocess.run(second, capture_output=True, timeout=20, check=False)
    assert done.returncode not in (0, -signal.SIGKILL)
    assert str(own_daemon.pid) in done.stderr.decode()
    assert own_daemon.am("status").status == 0


def test_a_socket_left_by_a_killed_daemon_does_not_stop_the_next(own_daemon):
    own_daemon.kill()
    own_daemon.start()
    assert own_daemon.status()["pid"] == own_daemon.pid


def test_the_socket_is_open_to_users_and_nothing_else_is(own_daemon):
    assert stat.S_ISSOCK(own_daemon.socket.stat().st_mode)
    for path in own_daemon.runtime.rglob("*"):
        mode = path.lstat().st_mode
        if "canary" in path.parts:  # what sessions may not read although everybody may
            assert mode & 0o022 == 0 or stat.S_ISSOCK(mode), f"{path} {oct(mode)}"
        elif path == own_daemon.runtime / "unix":  # names of sockets, which the kernel looks up as the caller
            assert mode & 0o7777 == 0o711, f"{path} {oct(mode)}"
        elif path != own_daemon.socket:
            assert not mode & 0o007, f"{path} {oct(mode)}"


BAD = {
    "an unknown key": ("log_level: info\nlog_levle: info\n", 2),
    "no YAML": ("log_level: info\nretention: {\n", None),
    "a wrong type": ("\nretention: 7\n", 2),
    "a wrong value": ("log_level: loud\n", 1),
    "a wrong duration": ("retention:\n  max_age: soon\n", 2),
    "nesting without end": ("log_level: info\nlimits: " + "[" * 100_000, 2),
    "a wrong size": ("retention:\n  max_size: large\n", 2),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_configuration_stops_the_start_with_file_and_line(own_daemon, what):
    text, line = BAD[what]
    own_daemon.stop()
    own_daemon.config.write_text(text)
    done = subprocess.run(own_daemon.command(), capture_output=True, timeout=20, check=False)
    assert done.returncode not in (0, -signal.SIGKILL)
    message = done.stderr.decode()
    assert f"{own_daemon.config}:{line if line else ''}" in message, message


def test_a_bad_configuration_at_reload_keeps_the_old_one(own_daemon, work):
    own_daemon.config.write_text("log_level: debug\nnonsense: 1\n")
    own_daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: f"{own_daemon.config}:2" in own_daemon.log_text(), 10, "the log says what is wrong")
    assert own_daemon.status()["pid"] == own_daemon.pid
    assert own_daemon.run("true", cwd=work).status == 0


def test_a_configuration_that_is_not_there_is_an_error(own_daemon):
    own_daemon.stop()
    own_daemon.config.unlink()
    done = subprocess.run(own_daemon.command(), capture_output=True, timeout=20, check=False)
    assert done.returncode != 0 and str(own_daemon.config) in done.stderr.decode()


def test_an_ordinary_user_cannot_start_it(own_daemon, work):
    done = subprocess.run(["setpriv", "--reuid=61001", "--regid=61001", "--clear-groups", str(own_daemon.bin / "agentmond"),
                           "--state-dir", str(work / "s"), "--runtime-dir", str(work / "r")],
                          capture_output=True, timeout=20, check=False)
    assert done.returncode not in (0, -signal.SIGSEGV, -signal.SIGABRT)
    assert b"root" in done.stderr


def test_a_garbage_client_does_not_harm_the_daemon(own_daemon, work):
    for junk in (b"", b"\0" * 10_000, os.urandom(100_000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(5000)):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(own_daemon.socket))
            try:
                s.sendall(junk)
            except OSError:
                pass
    assert own_daemon.run("true", cwd=work).status == 0


def test_nothing_is_lost_in_ordinary_work(own_daemon, work):
    rows = own_daemon.recorded("sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do /bin/true; touch f$i; rm f$i; done", cwd=work)
    assert not select(rows, kind="loss")
    assert total(rows, kind="delete") == 9
    status = own_daemon.status()
    assert status["store"]["lost"] == 0 and status["store"]["state"] == "ok"
    assert [s["lost"] for s in status["sources"]] == [0] * len(status["sources"])
