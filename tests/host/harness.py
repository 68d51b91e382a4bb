"""What the end-to-end tests use: a private daemon, sessions, and their timelines. No sleeps: wait_until."""
import base64
import contextlib
import ctypes
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

# What a login has; the folders of root's own PATH may be closed to users, and then "not found" is "permission denied".
os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

UID = 61001        # the user of most sessions; needs no account
OTHER_UID = 61002
SILENT = object()  # no stdin was asked for


def wait_until(condition, seconds=10.0, what="condition", every=0.05):
    """The first true answer of condition(); fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(every)


@contextlib.contextmanager
def own_network(addresses):
    """This process, and what it starts meanwhile, is in a network namespace of its own, whose loopback has these addresses."""
    clone_newnet = 0x40000000
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    assert libc.unshare(clone_newnet) == 0, os.strerror(ctypes.get_errno())
    try:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for address in addresses:
            subprocess.run(["ip", "addr", "add", address, "dev", "lo"], check=True)
        yield
    finally:
        assert libc.setns(before, clone_newnet) == 0
        os.close(before)


def end(process, seconds=10):
    """Waits for a client whose session was stopped, and ends it by force where that is not enough."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    if process.poll() is None:
        process.kill()
        process.wait()


def as_user(uid, groups=()):
    """Words to put before a command so that root runs it as that user."""
    if uid == 0:
        return []
    chosen = [f"--groups={','.join(map(str, groups))}"] if groups else ["--clear-groups"]
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", *chosen]


def alive(pid):
    """True for a process that exists and is not a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def cgroup2_mount():
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ")
        if after.split()[0] == "cgroup2":
            return pathlib.Path(before.split()[4])
    raise AssertionError("cgroup v2 is not mounted")


def raw(event, key):
    """A field of an event as the bytes that it stands for."""
    if key + "_b64" in event:
        coded = event[key + "_b64"]
        return [base64.b64decode(c) for c in coded] if isinstance(coded, list) else base64.b64decode(coded)
    text = event[key]
    return [t.encode() for t in text] if isinstance(text, list) else text.encode()


def total(events, **fields):
    """How many acts the rows with these fields stand for."""
    return sum(int(e["count"]) for e in select(events, **fields))


def select(events, **fields):
    return [e for e in events if all(e.get(k) == v for k, v in fields.items())]


def one(events, **fields):
    found = select(events, **fields)
    assert len(found) == 1, f"{len(found)} rows with {fields}: {brief(found or events)}"
    return found[0]


def brief(events):
    """Rows for a message: the interesting fields of the last ones."""
    keep = ("kind", "pid", "ppid", "path", "new_path", "argv", "address", "port", "result", "error", "change", "count")
    return "\n".join(json.dumps({k: str(e[k])[:120] for k in keep if k in e}) for e in events[-25:])


def programs(build):
    """The folder of the programs, and a function that removes what was made for it: users must reach it."""
    folder = pathlib.Path(build).resolve() / "bin"
    names = ("agentmond", "agentmon", "agentmon-shim", "agentmon-ns")
    missing = [n for n in names if not (folder / n).is_file()]
    assert not missing, f"{folder} lacks {missing}: ./dev build"
    reach = subprocess.run([*as_user(UID), "test", "-x", folder / "agentmon"], check=False)
    if reach.returncode == 0:
        return folder, lambda: None
    copy = pathlib.Path(tempfile.mkdtemp(prefix="agentmon-e2e-", dir="/var/lib"))
    copy.chmod(0o755)
    for name in names:
        shutil.copy(folder / name, copy / name)
    subprocess.run(["setcap", "cap_sys_admin=ep", copy / "agentmon-ns"], check=False)
    return copy, lambda: shutil.rmtree(copy)


class Result:
    """How a command ended: status, out, err (bytes), and the name of its session."""

    def __init__(self, status, out, err, name=None):
        self.status, self.out, self.err, self.name = status, out, err, name

    def __repr__(self):
        return f"status {self.status}\nout: {self.out[-600:]!r}\nerr: {self.err[-600:]!r}"


class Daemon:
    """One agentmond with its own state and runtime directory, and the command line against it."""

    _names = itertools.count(1)

    def __init__(self, folder, config="log_level: debug\n", limits="on_unavailable: warn", policy="observe"):
        self.bin = folder
        # Below /run and readable, so that users reach the socket.
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="agentmon-e2e-", dir="/run"))
        self.base.chmod(0o755)
        self.runtime = self.base / "run"
        self.runtime.mkdir(mode=0o755)
        self.state = self.base / "state"
        self.state.mkdir(mode=0o700)
        self.floor = self.base / "floor.d"
        self.policies = self.base / "policies"
        for folder in (self.floor, self.policies):
            folder.mkdir(mode=0o755)
        self.config = self.base / "agentmond.yaml"
        # The policies of the machine are not those of the tests.
        # Machines whose cgroup v2 has no controllers run the tests too.
        self.config.write_text(f"{config}limits: {{{limits}}}\ndefault_policy: {policy}\nfloor_dir: {self.floor}\npolicies_dir: {self.policies}\n")
        self.socket = self.runtime / "agentmond.sock"
        self.database = self.state / "agentmon.db"
        self.log = self.base / "log"
        self.process = None

    # -- the daemon

    def command(self):
        return [str(self.bin / "agentmond"), "--config", str(self.config), "--state-dir", str(self.state),
                "--runtime-dir", str(self.runtime)]

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self.answers, 60, f"the daemon answers\n{self.log.read_text(errors='replace')[-2000:]}")
        return self

    def answers(self):
        assert self.process.poll() is None, f"agentmond ended with {self.process.returncode}:\n{self.log_text()[-3000:]}"
        return self.am("status").status == 0

    def stop(self, sig=signal.SIGTERM, seconds=15):
        """Signals the daemon and waits; its exit status."""
        if self.process is None:
            return None
        self.process.send_signal(sig)
        try:
            return self.process.wait(seconds)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process = None

    def kill(self):
        self.stop(signal.SIGKILL)

    def restart(self):
        self.stop()
        return self.start()

    def close(self):
        """Ends all sessions and the daemon, and removes its folders."""
        with contextlib.suppress(Exception):
            if self.process is None:
                self.config.write_text("")
                self.start()  # one that was killed left its sessions
            self.am("session", "stop", "--all")
            wait_until(lambda: self.status()["sessions"] == 0, 10, "no session is left")
        with contextlib.suppress(Exception):
            self.stop()
        shutil.rmtree(self.base, ignore_errors=True)

    @property
    def pid(self):
        return self.process.pid

    def log_text(self):
        return self.log.read_text(errors="replace")

    # -- the command line

    def am_words(self, *argv, uid=0, groups=()):
        return [*as_user(uid, groups), str(self.bin / "agentmon"), "--socket", str(self.socket), *argv]

    def am(self, *argv, uid=0, timeout=60, **options):
        return call(self.am_words(*argv, uid=uid), timeout=timeout, **options)

    def status(self):
        return json.loads(self.am("status", "--json").out)

    def run_words(self, *argv, uid=UID, name=None, options=(), groups=()):
        return self.am_words("run", *(("--name", name) if name else ()), *options, "--", *argv, uid=uid, groups=groups)

    def new_name(self):
        return f"t{os.getpid()}-{next(self._names)}"

    def run(self, *argv, uid=UID, name=None, options=(), groups=(), timeout=60, **rest):
        """agentmon run -- ARGV as an ordinary user; the Result knows the session's name."""
        name = name or self.new_name()
        result = call(self.run_words(*argv, uid=uid, name=name, options=options, groups=groups), timeout=timeout, **rest)
        result.name = name
        return result

    @contextlib.contextmanager
    def running(self, *argv, uid=UID, name=None, options=(), **rest):
        """A session that runs meanwhile: yields (Popen, name), and ends it at the end."""
        name = name or self.new_name()
        rest.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen(self.run_words(*argv, uid=uid, name=name, options=options), **rest)
        try:
            wait_until(lambda: self.session(name) and self.session(name)["state"] == "running" or
                       process.poll() is not None, 15, "the session runs")
            yield process, name
        finally:
            if self.process is not None and self.process.poll() is None:
                self.am("session", "stop", name)
            end(process)

    # -- sessions and events

    def sessions(self, uid=0):
        return json_rows(self.am("session", "list", "--json", uid=uid).out)

    def session(self, name, uid=0):
        """session show --json; None when there is no such session."""
        result = self.am("session", "show", "--json", name, uid=uid)
        return json.loads(result.out) if result.status == 0 else None

    def timeline(self, *argv, session=None, uid=0):
        """The rows of `timeline --format json`."""
        chosen = ("--session", session) if session else ()
        result = self.am("timeline", *chosen, "--format", "json", *argv, uid=uid)
        assert result.status == 0, result
        return json_rows(result.out)

    def events(self, session, until=None, seconds=15):
        """The rows of a session once until(rows) holds; by default once its end is stored."""
        until = until or (lambda rows: select(rows, kind="session", change="ended"))
        rows = []

        def there():
            rows[:] = self.timeline(session=session)
            return until(rows)

        try:
            wait_until(there, seconds, "rows")
        except AssertionError as error:
            raise AssertionError(f"{error} of session {session}; the last ones:\n{brief(rows)}") from None
        return rows

    def recorded(self, *argv, **options):
        """Runs a command that must succeed in a session; all rows of the session."""
        result = self.run(*argv, **options)
        assert result.status == 0, result
        return self.events(result.name)

    def cgroup(self, session):
        """The folder of a session's cgroup."""
        return cgroup2_mount() / session["cgroup"].lstrip("/")


def json_rows(out):
    """Objects of JSON, one a line; a single array or object is taken too."""
    text = out.decode()
    try:
        whole = json.loads(text)
        return whole if isinstance(whole, list) else [whole]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def call(words, timeout=60, stdin=SILENT, input=None, **options):
    """A command with its output as bytes; a hang is a failure that says what ran."""
    if input is None:
        options["stdin"] = subprocess.DEVNULL if stdin is SILENT else stdin
    else:
        options["input"] = input
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    try:
        done = subprocess.run(words, timeout=timeout, check=False, **options)
    except subprocess.TimeoutExpired as expired:
        raise AssertionError(f"hangs ({timeout} s): {words}\n{expired.stderr}") from None
    return Result(done.returncode, done.stdout or b"", done.stderr or b"")
