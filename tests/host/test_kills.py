"""The daemon is killed again and again under load: nothing that is denied succeeds, and nobody waits for long."""
import json
import os

from harness import select, wait_until

KILLS = int(os.environ.get("AGENTMON_KILLS", "12"))  # 200 by hand: AGENTMON_KILLS=200

# Threads try what the policy denies and what it allows until the file "stop" appears, and keep in "report" how often,
# what succeeded that should not, what failed that should not, the longest time of one try and by how much a thread that
# only sleeps was late, in milliseconds.
LOAD = """
import json, os, subprocess, sys, threading, time
secret, report = sys.argv[1], {"denied": 0, "allowed": 0, "leaks": [], "failed": {}, "longest": 0, "of": "", "late": 0}
lock = threading.Lock()

def timed(act, what=""):
    start = time.monotonic()
    try:
        act()
        error = 0
    except OSError as e:
        error = e.errno
    took = int((time.monotonic() - start) * 1000)
    with lock:
        if took > report["longest"]: report["longest"], report["of"] = took, what + " " + str(error)
    return error

def pulse():
    while not os.path.exists("stop"):
        start = time.monotonic()
        time.sleep(0.001)
        with lock: report["late"] = max(report["late"], int((time.monotonic() - start) * 1000))

def deny(what, act):
    while not os.path.exists("stop"):
        error = timed(act, what)
        with lock:
            report["denied"] += 1
            if error == 0: report["leaks"].append(what)

def allow():
    while not os.path.exists("stop"):
        for act in (lambda: os.mkdir("d"), lambda: os.rmdir("d"), lambda: open("mine").close()):
            error = timed(act)
            with lock:
                report["allowed"] += 1
                if error: report["failed"][str(error)] = report["failed"].get(str(error), 0) + 1

out = os.open("report", os.O_RDWR | os.O_CREAT, 0o644)

def tell():
    while not os.path.exists("stop"):
        with lock: text = json.dumps(report)
        os.pwrite(out, text.ljust(4096).encode(), 0)
        time.sleep(0.05)

def run(): subprocess.run([secret + "/program"])

acts = [("read", lambda: open(secret + "/key").close()),
        ("write", lambda: open(secret + "/key", "a").close()),
        ("create", lambda: open(secret + "/new", "w").close()),
        ("rename", lambda: os.rename(secret + "/key", secret + "/other")),
        ("unlink", lambda: os.unlink(secret + "/spare")),
        ("exec", run)]
threads = [threading.Thread(target=deny, args=a) for a in acts]
threads += [threading.Thread(target=t) for t in (allow, tell, pulse)]
for t in threads: t.start()
for t in threads: t.join()
os.pwrite(out, json.dumps(report).ljust(4096).encode(), 0)
"""


def lay_out(work):
    secret = work / "secret"
    secret.mkdir()
    for name in ("key", "spare"):
        (secret / name).write_text("SECRET\n")
    (secret / "program").write_text("#!/bin/sh\nexit 0\n")
    (secret / "program").chmod(0o755)
    (work / "mine").touch()
    for path in (secret, *secret.iterdir(), work / "mine"):
        os.chown(path, os.stat(work).st_uid, os.stat(work).st_gid)
    (work / "p.yaml").write_text(f"""version: 1
name: kills
enforcement: best_effort
defaults: {{command: allow, file_write: allow, signal: allow}}
file_rules:
  - {{name: secret, paths: ["{secret}/**"], decision: deny}}
command_rules:
  - {{name: program, commands: ["{secret}/program"], decision: deny}}
""")
    return secret


def report(work):
    try:
        return json.loads((work / "report").read_text())
    except (OSError, ValueError):
        return {"denied": 0, "allowed": 0}


def more(work, denied=60, allowed=30):
    before = report(work)
    wait_until(lambda: report(work)["denied"] > before["denied"] + denied and
               report(work)["allowed"] > before["allowed"] + allowed, 30, "the load goes on")


def test_killed_again_and_again_the_daemon_lets_nothing_through(own_daemon, work, python):
    secret = lay_out(work)
    control = own_daemon.run("sh", "-c", f"cat {secret}/key && {secret}/program", cwd=work)
    assert control.status == 0, control
    words = python(LOAD) + [str(secret)]
    with own_daemon.running(*words, cwd=work, options=("--policy", str(work / "p.yaml"))) as (process, name):
        more(work)
        for kill in range(KILLS):
            own_daemon.kill()
            if kill % 2:
                more(work, 20, 10)  # also with nobody there
            own_daemon.start()
            more(work)
        (work / "stop").touch()
        assert process.wait(30) == 0
    result = report(work)
    assert result["leaks"] == []
    # The machine itself may keep a thread waiting that asks for nothing.
    assert result["longest"] < 2000 + result["late"], result
    # EACCES and EPERM: what waits while nobody is there is denied; then the directory is there still, or not there.
    assert set(result["failed"]) <= {"13", "1", "2", "17"}
    assert (secret / "key").read_text() == "SECRET\n" and sorted(os.listdir(secret)) == ["key", "program", "spare"]
    rows = own_daemon.events(name)
    assert len(select(rows, kind="session", change="gap")) == KILLS
    assert select(rows, kind="open", verdict="deny", enforced=True)
