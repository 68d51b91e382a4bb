"""agentmond --user: a daemon of an ordinary user. What it sees and stops, whom it serves, and when clients use it."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

from harness import OTHER_UID, UID, alive, as_user, brief, call, json_rows, one, select, wait_until

ALLOW = "defaults: {command: allow, file_read: allow, file_write: allow, network: allow, unix_socket: allow, signal: allow}\n"
HEAD = f"version: 1\nname: p\nposture: enforce\n{ALLOW}"
NO_ID = "command_rules: [{name: no-id, commands: [id], decision: deny}]\n"
KEPT = "file_rules: [{name: kept, paths: ['${WORKSPACE}/kept'], operations: [write, delete, rename], decision: deny}]\n"


class UserDaemon:
    """One agentmond --user with directories of its own, and the command line of its user."""

    def __init__(self, folder, uid=UID):
        self.bin, self.uid = folder, uid
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="agentmon-user-", dir="/run"))
        self.base.chmod(0o755)
        for name in ("rt", "home"):
            (self.base / name).mkdir(mode=0o700)
            os.chown(self.base / name, uid, uid)
        self.socket = self.base / "rt/agentmon/agentmond.sock"
        self.config = self.base / "home/.config/agentmon/agentmond.yaml"
        self.write_config("log_level: debug\ndefault_policy: observe\n")
        self.log = self.base / "log"
        self.process = None

    def write_config(self, text):
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(text)
        self.config.chmod(0o644)
        for path in (self.config, self.config.parent, self.config.parent.parent):
            os.chown(path, self.uid, self.uid)

    def env(self, **more):
        return {"PATH": os.environ["PATH"], "HOME": str(self.base / "home"), "XDG_RUNTIME_DIR": str(self.base / "rt"), **more}

    def start(self, around=()):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*around, *as_user(self.uid), str(self.bin / "agentmond"), "--user"], env=self.env(),
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self.answers, 60, "the user's daemon answers")
        return self

    def answers(self):
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-3000:]
        return self.am("status").status == 0

    def kill(self, sig=signal.SIGKILL):
        self.process.send_signal(sig)
        status = self.process.wait(15)
        self.process = None
        return status

    def close(self):
        with contextlib.suppress(Exception):
            if self.process is None:
                self.start()
            self.am("session", "stop", "--all")
        with contextlib.suppress(Exception):
            self.kill(signal.SIGTERM)
        shutil.rmtree(self.base, ignore_errors=True)

    def words(self, *argv, uid=None):
        return [*as_user(self.uid if uid is None else uid), str(self.bin / "agentmon"), *argv]

    def am(self, verb, *argv, uid=None, **options):
        return call(self.words(verb, *argv, "--user", uid=uid), env=self.env(), **options)

    def run(self, name, *argv, options=(), **rest):
        return call(self.words("run", "--user", "--name", name, *options, "--", *argv), env=self.env(), **rest)

    def session(self, name):
        result = self.am("session", "show", "--json", name)
        return json.loads(result.out) if result.status == 0 else None

    def ended(self, name):
        """The rows of a session once its end is stored."""
        rows = []

        def there():
            rows[:] = json_rows(self.am("timeline", "--session", name, "--format", "json").out)
            return select(rows, kind="session", change="ended")

        wait_until(there, 15, f"the end of {name} is stored:\n{brief(rows)}")
        return rows

    @contextlib.contextmanager
    def running(self, name, *argv, options=(), **rest):
        process = subprocess.Popen(self.words("run", "--user", "--name", name, *options, "--", *argv), env=self.env(),
                                   stdin=subprocess.DEVNULL, **rest)
        try:
            wait_until(lambda: (self.session(name) or {}).get("state") == "running" or process.poll() is not None, 15, "it runs")
            yield process
        finally:
            if self.process is not None:
                self.am("session", "stop", name)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def shared(bin_dir):
    daemon = UserDaemon(bin_dir).start()
    yield daemon
    daemon.close()


@pytest.fixture
def own(bin_dir):
    daemon = UserDaemon(bin_dir).start()
    yield daemon
    daemon.close()


def policy(work, text):
    (work / "p.yaml").write_text(text)
    (work / "p.yaml").chmod(0o644)
    return ("--policy", str(work / "p.yaml"), "--workspace", str(work))


def test_root_is_refused(bin_dir):
    result = call([str(bin_dir / "agentmond"), "--user"])
    assert result.status == 1 and b"ordinary user" in result.err


def test_without_privileges_and_without_the_option_it_names_it(bin_dir):
    result = call([*as_user(UID), str(bin_dir / "agentmond")])
    assert result.status == 1 and b"--user" in result.err


def test_programs_and_file_changes_are_recorded(shared, work):
    result = shared.run("rows", "sh", "-c", "touch f && rm f; /bin/echo hello; exit 7", cwd=work)
    assert (result.status, result.out) == (7, b"hello\n"), result
    rows = shared.ended("rows")
    names = [pathlib.Path(e["argv"][0]).name for e in select(rows, kind="exec")]
    assert names == ["sh", "touch", "rm", "echo"]
    echo = select(rows, kind="exec")[3]
    assert echo["argv"] == ["/bin/echo", "hello"] and echo["uid"] == UID and echo["exe"].endswith("/echo")
    one(rows, kind="create", path=str(work / "f"))
    assert one(rows, kind="delete", path=str(work / "f"))["exe"].endswith("/rm")
    # touch and rm are children of the shell.
    assert {e["ppid"] for e in select(rows, kind="exec")[1:3]} == {select(rows, kind="exec")[0]["pid"]}


def test_what_it_lacks_is_said_with_the_reason(shared, work):
    sources = {s["source"]: s for s in json.loads(shared.am("status", "--json").out)["sources"]}
    assert sources["notify"]["active"]
    for name in ("process", "network", "fanotify", "resolver", "lsm"):
        assert not sources[name]["active"] and sources[name]["why"], sources[name]


def test_a_command_rule_stops_the_program(shared, work, python):
    act = python("import os\ntry:\n os.execv('/usr/bin/id', ['id', '-u'])\nexcept OSError as e:\n print(e.errno)\n")
    control = shared.run("id-control", *act, options=policy(work, HEAD))
    assert (control.status, control.out) == (0, b"%d\n" % UID), control
    result = shared.run("id-denied", *act, options=policy(work, HEAD + NO_ID))
    assert (result.status, result.out) == (0, b"13\n"), result
    row = one(shared.ended("id-denied"), kind="exec", verdict="deny")
    assert row["enforced"] and row["rule"] == "no-id" and row["mechanism"] == "notify" and row["errno_name"] == "EACCES"


def test_a_file_rule_stops_the_change(shared, work, python):
    (work / "kept").write_text("x")
    os.chown(work / "kept", UID, UID)
    act = python("import os\ntry:\n os.unlink('kept')\nexcept OSError as e:\n print(e.errno)\n")
    result = shared.run("kept-denied", *act, options=policy(work, HEAD + KEPT), cwd=work)
    assert (result.status, result.out) == (0, b"13\n"), result
    row = one(shared.ended("kept-denied"), kind="delete", verdict="deny")
    assert row["enforced"] and row["rule"] == "kept" and row["mechanism"] == "broker" and row["errno_name"] == "EACCES"
    control = shared.run("kept-control", *act, options=policy(work, HEAD), cwd=work)
    assert (control.status, control.out) == (0, b""), control
    assert not (work / "kept").exists()


def test_what_cannot_be_enforced_is_refused_unless_best_effort(shared, work):
    secret = "file_rules: [{name: no-secret, paths: ['${WORKSPACE}/secret'], decision: deny}]\n"
    refused = shared.run("refused", "true", options=policy(work, HEAD + secret))
    assert refused.status == 125 and b"no-secret" in refused.err, refused
    best = shared.run("best", "true", options=policy(work, HEAD + "enforcement: best_effort\n" + secret))
    assert best.status == 0, best
    one(shared.ended("best"), kind="session", change="not_enforced")


def test_limits_are_refused_with_the_reason(shared, work):
    result = shared.run("limited", "true", options=policy(work, HEAD + "resource_limits: {pids_max: 50}\n"))
    assert result.status == 125 and b"no cgroup" in result.err, result


def test_background_processes_hold_the_session_and_stop_ends_them(shared, work):
    # Orphaned at once: no parent leads to it.
    result = shared.run("orphan", "sh", "-c", "(setsid sh -c 'echo $$ >pid; exec sleep 300' >/dev/null 2>&1 &) ; true", cwd=work)
    assert result.status == 0
    pid = int(wait_until(lambda: (work / "pid").exists() and (work / "pid").read_text().strip(), what="its pid"))
    assert alive(pid) and shared.session("orphan")["state"] == "running"
    assert shared.am("session", "stop", "orphan").status == 0
    assert not alive(pid)
    shared.ended("orphan")


def test_a_daemon_that_was_told_of_nobody_finds_orphans_all_the_same(own, work):
    result = own.run("left", "sh", "-c", "(setsid sh -c 'echo $$ >pid; exec sleep 300' >/dev/null 2>&1 &) ; true", cwd=work)
    assert result.status == 0
    pid = int(wait_until(lambda: (work / "pid").exists() and (work / "pid").read_text().strip(), what="its pid"))
    own.kill()
    own.start()
    assert own.session("left")["processes"] == 1 and alive(pid)
    assert own.am("session", "stop", "left").status == 0
    assert not alive(pid)


def test_a_session_cannot_reach_its_daemon(shared, work, python):
    act = python("import os, sys\nfor act in (lambda: os.kill(int(sys.argv[1]), 0), lambda: open(f'/proc/{sys.argv[1]}/mem'),\n"
                 "            lambda: open(sys.argv[2], 'w')):\n try:\n  act()\n  print('done')\n except OSError as e:\n  print(e.errno)\n",
                 shared.process.pid, shared.base / "home/.local/state/agentmon/mine")
    control = shared.run("reach-control", *act)
    assert control.out == b"done\ndone\ndone\n", control
    result = shared.run("reach", *act, options=policy(work, HEAD))
    assert result.out == b"1\n13\n13\n", result


def test_no_daemon_is_started_inside_of_a_session(shared):
    result = shared.run("nested", str(shared.bin / "agentmond"), "--user", "--runtime-dir", "/tmp/nested", "--state-dir", "/tmp/nested")
    assert result.status == 1 and b"inside of a session" in result.err, result


def test_inside_of_a_session_the_caller_is_an_agent(shared):
    agentmon = str(shared.bin / "agentmon")
    result = shared.run("inside", agentmon, "run", "--user", "--", "true")
    assert result.status == 125 and b"inside a session" in result.err, result
    stop = shared.run("inside2", agentmon, "session", "stop", "--user", "--all")
    assert stop.status != 0 and b"role agent" in stop.err, stop
    shown = shared.run("inside3", agentmon, "session", "show", "--user", "--json")
    assert shown.status == 0 and json.loads(shown.out)["name"] == "inside3", shown


def test_other_users_are_not_served(shared):
    for uid in (OTHER_UID, 0):
        result = call(shared.words("status", "--socket", str(shared.socket), uid=uid), env=shared.env())
        assert result.status == 3, result
    with socket.socket(socket.AF_UNIX) as raw:  # root gets past the directory, and is no user of it either
        raw.connect(str(shared.socket))
        raw.settimeout(10)
        assert raw.recv(1) == b""


def test_a_daemon_of_somebody_else_is_not_taken_for_ones_own(shared, own_daemon):
    result = call(shared.words("status", "--user", "--socket", str(own_daemon.socket)), env=shared.env())
    assert result.status == 3 and b"runs as uid 0" in result.err, result
    assert call(shared.words("status", "--socket", str(own_daemon.socket)), env=shared.env()).status == 0


WORKER = ("import os, time\nn = 0\nopen('pid', 'w').write(str(os.getpid()))\nwhile not os.path.exists('stop'):\n"
          " open('f', 'w').close(); os.unlink('f'); n += 1; open('count', 'w').write(str(n)); time.sleep(0.02)\n")


def counted(work):
    text = (work / "count").read_text() if (work / "count").exists() else ""
    return int(text or 0)


def test_a_daemon_that_is_killed_holds_up_nobody_and_its_successor_goes_on(own, work, python):
    with own.running("worker", *python(WORKER), cwd=work) as process:
        wait_until(lambda: counted(work) > 3, what="it works")
        own.kill()
        before = counted(work)
        wait_until(lambda: counted(work) > before + 10, 15, "it works without a daemon")
        own.start()
        assert own.session("worker")["state"] == "running"
        pid = int((work / "pid").read_text())
        assert own.session("worker")["processes"] >= 1
        before = counted(work)
        wait_until(lambda: counted(work) > before + 10, 15, "it works with the next")
        (work / "stop").write_text("")
        assert process.wait(15) == 0
    rows = own.ended("worker")
    one(rows, kind="session", change="adopted")
    one(rows, kind="session", change="gap")
    assert not alive(pid)


def test_what_is_denied_stays_denied_while_there_is_no_daemon(own, work, python):
    (work / "kept").write_text("x")
    os.chown(work / "kept", UID, UID)
    act = python("import os\nopen('ready', 'w').close()\nwhile not os.path.exists('go'): os.nice(0)\n"
                 "try:\n os.unlink('kept')\n print('gone')\nexcept OSError as e:\n print(e.errno)\n")
    with own.running("kept", *act, options=policy(work, HEAD + KEPT), cwd=work, stdout=subprocess.PIPE) as process:
        wait_until((work / "ready").exists, what="it is ready")
        own.kill()
        (work / "go").write_text("")
        out, _ = process.communicate(timeout=30)
    assert out == b"13\n" and (work / "kept").exists()


def around(config, floor=""):
    """Words before a command: a mount namespace in which agentmon is installed for the system, with this configuration."""
    script = ("mkdir -p /etc/agentmon && mount -t tmpfs -o mode=755 none /etc/agentmon && printf %s \"$0\" >/etc/agentmon/agentmond.yaml "
              "&& mkdir /etc/agentmon/floor.d && printf %s \"$1\" >/etc/agentmon/floor.d/10.yaml && shift && exec \"$@\"")
    floor = floor or "version: 1\nname: floor\n"
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, config, floor]


def installed(daemon, config, *words):
    try:
        return call([*around(config), *words], env=daemon.env())
    finally:
        forget_mount_point()


def forget_mount_point():
    with contextlib.suppress(OSError):
        os.rmdir("/etc/agentmon")  # only an empty one goes


def test_where_agentmon_is_installed_the_administrator_decides(shared):
    run = shared.words("run", "--user", "--", "echo", "ran")
    for config in ("log_level: info\n", "client: {fallback: none}\n", "client: {fallback: [user]}\n", "client: {fallback: user\n"):
        result = installed(shared, config, *run)
        assert result.status == 125 and result.out == b"" and b"daemons of their own" in result.err, (config, result)
    allowed = installed(shared, "client: {fallback: user}\n", *run)
    assert (allowed.status, allowed.out) == (0, b"ran\n"), allowed


@pytest.mark.skipif(pathlib.Path("/run/agentmon/agentmond.sock").exists(), reason="a system daemon runs here")
def test_a_system_daemon_that_is_away_is_not_replaced(shared):
    run = shared.words("run", "--", "echo", "ran")
    result = installed(shared, "client: {fallback: user}\n", "sh", "-c", 'start=$(date +%s%N); "$@"; s=$?; '
                       'echo $((($(date +%s%N) - start) / 1000000)); exit $s', "sh", *run)
    assert result.status == 125 and b"/run/agentmon/agentmond.sock" in result.err and b"takes its place" in result.err, result
    assert 5000 <= int(result.out) < 20000


@pytest.mark.skipif(pathlib.Path("/run/agentmon/agentmond.sock").exists() or pathlib.Path("/etc/agentmon/agentmond.yaml").exists(),
                    reason="agentmon is installed here")
def test_where_nothing_is_installed_the_own_daemon_is_used_and_said(shared):
    result = call(shared.words("run", "--", "echo", "ran"), env=shared.env())
    assert (result.status, result.out) == (0, b"ran\n") and b"your own daemon" in result.err, result
    quiet = call(shared.words("run", "--quiet", "--", "echo", "ran"), env=shared.env())
    assert (quiet.status, quiet.err) == (0, b""), quiet
    assert call(shared.words("status"), env=shared.env()).err == b""


def test_a_floor_of_the_administrator_holds(bin_dir, work, python):
    daemon = UserDaemon(bin_dir)
    try:
        act = python("import os\ntry:\n os.execv('/usr/bin/id', ['id', '-u'])\nexcept OSError as e:\n print(e.errno)\n")
        daemon.start(around("log_level: info\n", f"version: 1\nname: floor\n{NO_ID}"))
        result = daemon.run("floor", *act, options=policy(work, HEAD))
        assert (result.status, result.out) == (0, b"13\n"), result
        row = one(daemon.ended("floor"), kind="exec", verdict="deny")
        assert row["enforced"] and row["rule"] == "no-id"
        daemon.kill(signal.SIGTERM)
        # The user's file cannot say where the floor lies.
        daemon.write_config("floor_dir: /nowhere\n")
        result = call([*as_user(UID), str(bin_dir / "agentmond"), "--user"], env=daemon.env())
        assert result.status == 1 and b"floor_dir" in result.err and b"/etc/agentmon/agentmond.yaml only" in result.err, result
    finally:
        daemon.close()
        forget_mount_point()
