"""The holder answers file calls while the daemon does not: while one starts, stands still, or is dead."""
import os
import pathlib
import signal
import subprocess

from harness import select, total, wait_until

# mkdir and rmdir until the file "stop" appears; writes "calls, errors, longest in ms" into "progress". When "reset"
# appears, the longest is forgotten.
CALLS = """
import os, time
calls = errors = 0
longest = 0.0
out = os.open("progress", os.O_RDWR | os.O_CREAT, 0o644)
while not os.path.exists("stop"):
    if os.path.exists("reset"):
        os.unlink("reset")
        longest = 0.0
    for call in (os.mkdir, os.rmdir):
        start = time.monotonic()
        try:
            call("folder")
        except OSError:
            errors += 1
        longest = max(longest, time.monotonic() - start)
        calls += 1
    os.pwrite(out, b"%12d %6d %8d\\n" % (calls, errors, longest * 1000), 0)
    time.sleep(0.001)
"""


def progress(work):
    words = (work / "progress").read_text().split() if (work / "progress").exists() else []
    return tuple(map(int, words)) if len(words) == 3 else (0, 0, 0)


def goes_on(work, what, calls=100, seconds=20):
    before = progress(work)[0]
    wait_until(lambda: progress(work)[0] > before + calls, seconds, f"calls go on {what}")


def holder_pid(daemon):
    """The pid of the daemon's holder, None while there is none."""
    wanted = b"agentmon-holder\0--holder\0" + str(daemon.runtime / "holder.sock").encode() + b"\0"
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes() == wanted:
                return int(folder.name)
        except OSError:
            continue
    return None


def lost(rows):
    return sum(int(r["lost"]) for r in select(rows, kind="loss", lost_source="notify"))


def test_a_daemon_that_stands_still_stops_no_call(own_daemon, work, python):
    with own_daemon.running(*python(CALLS), cwd=work) as (process, name):
        goes_on(work, "with the daemon")
        own_daemon.process.send_signal(signal.SIGSTOP)
        try:
            goes_on(work, "while it stands still")
        finally:
            own_daemon.process.send_signal(signal.SIGCONT)
        rows = own_daemon.events(name, lost)
        assert select(rows, kind="loss")[0]["where"] == "the daemon stood still"
        seen = total(rows, kind="mkdir")
        own_daemon.events(name, lambda rows: total(rows, kind="mkdir") > seen + 100)  # folded, so a window later
        (work / "stop").touch()
        assert process.wait(15) == 0
    calls, errors, longest_ms = progress(work)
    assert errors == 0
    assert longest_ms < 2000
    rows = own_daemon.events(name)
    recorded = total(rows, kind="mkdir") + total(rows, kind="rmdir")
    assert recorded + lost(rows) >= calls
    assert recorded <= calls
    (source,) = [s for s in own_daemon.session(name)["sources"] if s["source"] == "notify"]
    assert int(source["lost"]) == lost(rows)


def test_a_call_that_meets_a_stopped_daemon_returns_within_two_seconds(own_daemon, work, python):
    words = python("""
import os, time
open("ready", "w").close()
while not os.path.exists("go"): time.sleep(0.01)
start = time.monotonic()
os.mkdir("made")
print(time.monotonic() - start)
""")
    with own_daemon.running(*words, cwd=work, stdout=subprocess.PIPE) as (process, name):
        wait_until((work / "ready").exists, 10, "the agent is ready")
        own_daemon.process.send_signal(signal.SIGSTOP)
        try:
            (work / "go").touch()
            out, _ = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            out = b"1000"
        finally:
            own_daemon.process.send_signal(signal.SIGCONT)
        assert float(out) < 2
    assert lost(own_daemon.events(name)) == 1


def test_calls_do_not_wait_for_a_daemon_that_starts_slowly(own_daemon, work, python):
    with own_daemon.running(*python(CALLS), cwd=work) as (process, name):
        goes_on(work, "with the daemon")
        holder = holder_pid(own_daemon)
        own_daemon.kill()
        goes_on(work, "without the daemon")
        (work / "reset").touch()
        wait_until(lambda: not (work / "reset").exists(), 10, "the agent starts to measure")
        joined = lambda: any(os.readlink(f).startswith("anon_inode:[pidfd]") for f in descriptors(holder))  # noqa: E731
        wait_until(lambda: not joined(), 10, "the holder has seen the end of the first daemon")
        with open(own_daemon.log, "ab") as log:
            own_daemon.process = subprocess.Popen(own_daemon.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(joined, 30, "the next daemon has found the holder", every=0.0005)
        own_daemon.process.send_signal(signal.SIGSTOP)  # somewhere in its start
        try:
            goes_on(work, "while the next daemon starts", 200, 30)
        finally:
            own_daemon.process.send_signal(signal.SIGCONT)
        wait_until(own_daemon.answers, 30, "the next daemon answers")
        goes_on(work, "with the next daemon")
        (work / "stop").touch()
        assert process.wait(15) == 0
    calls, errors, longest_ms = progress(work)
    assert errors == 0
    assert longest_ms < 1000
    rows = own_daemon.events(name)
    assert select(rows, kind="loss")[0]["where"] == "the daemon was away"
    assert lost(rows) >= 200


def descriptors(pid):
    found = []
    for path in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            os.readlink(path)
        except FileNotFoundError:
            continue
        found.append(path)
    return found


def test_a_holder_that_is_killed_is_replaced_and_gets_all_listeners(own_daemon, work, python):
    with own_daemon.running(*python(CALLS), cwd=work) as (process, name):
        goes_on(work, "with the first holder")
        for _ in range(3):
            first = holder_pid(own_daemon)
            os.kill(first, signal.SIGKILL)
            wait_until(lambda first=first: holder_pid(own_daemon) not in (None, first), 10, "there is another holder")
            goes_on(work, "with another holder")
        # Sessions may start again, and their calls are seen.
        rows = own_daemon.recorded("mkdir", "new", cwd=work)
        assert select(rows, kind="mkdir")
        own_daemon.kill()
        goes_on(work, "without the daemon")
        own_daemon.start()
        goes_on(work, "with the next daemon")
        (work / "stop").touch()
        assert process.wait(15) == 0
    assert progress(work)[1] == 0
    sources = {s["source"]: s for s in own_daemon.status()["sources"]}
    assert sources["notify"]["active"]


def test_an_idle_session_wakes_nobody(own_daemon, work, python):
    words = python("""
import os, time
os.mkdir("folder")
open("ready", "w").close()
while not os.path.exists("stop"): time.sleep(0.01)
""")
    with own_daemon.running(*words, cwd=work):
        wait_until((work / "ready").exists, 10, "the agent is ready")
        holder = holder_pid(own_daemon)

        def switches():
            status = pathlib.Path(f"/proc/{holder}/status").read_text()
            return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)

        def quiet():  # no wake-up in the time of eight looks
            before = switches()
            try:
                wait_until(lambda: switches() != before, 2, "a wake-up")
            except AssertionError:
                return True
            return False

        wait_until(quiet, 20, "the holder sleeps")
        (work / "stop").touch()


def frozen(daemon, session):
    return (daemon.cgroup(session) / "cgroup.freeze").read_text().strip() == "1"


def with_policy(work, text):
    (work / "p.yaml").write_text("version: 1\nname: p\ndefaults: {command: allow, file_write: allow, signal: allow}\n"
                                 "enforcement: best_effort\n" + text)
    return ("--policy", str(work / "p.yaml"))


def test_a_session_is_frozen_while_there_is_no_daemon_when_its_policy_says_so(own_daemon, work, python):
    (work / "free").mkdir(mode=0o777)
    os.chown(work / "free", os.stat(work).st_uid, os.stat(work).st_gid)
    options = with_policy(work, "on_daemon_loss: freeze\n")
    with own_daemon.running(*python(CALLS), cwd=work, options=options) as (process, name), \
            own_daemon.running(*python(CALLS), cwd=work / "free") as (free, other):
        goes_on(work, "with the daemon")
        session, control = own_daemon.session(name), own_daemon.session(other)
        own_daemon.kill()
        wait_until(lambda: frozen(own_daemon, session), 10, "the session is frozen")
        stands = lambda: "frozen 1" in (own_daemon.cgroup(session) / "cgroup.events").read_text()  # noqa: E731
        wait_until(stands, 10, "its processes stand")
        before = progress(work)
        goes_on(work / "free", "of a session whose policy says nothing")
        assert not frozen(own_daemon, control)
        assert progress(work) == before
        own_daemon.start()
        goes_on(work, "with the next daemon")
        assert not frozen(own_daemon, session)
        # Its policy no longer says so: the next time it goes on.
        assert own_daemon.am("session", "set-policy", name, "--policy", "observe").status == 0
        own_daemon.kill()
        wait_until(lambda: holder_pid(own_daemon), 10, "the holder is there")
        goes_on(work, "without a daemon", calls=2500, seconds=60)  # longer than the holder waits for one
        assert not frozen(own_daemon, session)
        own_daemon.start()
        for folder in (work, work / "free"):
            (folder / "stop").touch()
        assert process.wait(15) == 0 and free.wait(15) == 0
    adopted = [r["detail"] for r in select(own_daemon.events(name), kind="session", change="adopted")]
    assert len(adopted) == 2
    assert "it was frozen, because no daemon was there" in adopted[0]
    assert "frozen" not in adopted[1]
    (only,) = [r["detail"] for r in select(own_daemon.events(other), kind="session", change="adopted")][:1]
    assert "frozen" not in only
