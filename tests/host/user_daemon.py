"""A daemon of an ordinary user, for tests of agentmond --user."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from harness import UID, as_user, brief, call, json_rows, select, wait_until

ALLOW = "defaults: {command: allow, file_read: allow, file_write: allow, network: allow, unix_socket: allow, signal: allow}\n"
HEAD = f"version: 1\nname: p\nposture: enforce\n{ALLOW}"


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


def policy(work, text):
    (work / "p.yaml").write_text(text)
    (work / "p.yaml").chmod(0o644)
    return ("--policy", str(work / "p.yaml"), "--workspace", str(work))
