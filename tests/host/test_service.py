"""The daemon below a service manager, here a small one of our own: a passed socket, readiness, the watchdog."""
import contextlib
import os
import signal
import socket
import subprocess
import time

import pytest

import harness
from harness import wait_until


class Manager:
    """Starts a daemon as systemd does: with its listening socket, and somebody who hears what it notifies."""

    def __init__(self, daemon, path=None):
        self.daemon = daemon
        self.notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notified.bind(str(daemon.base / "notify.sock"))
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path or daemon.socket))
        self.listener.listen(16)
        os.chmod(path or daemon.socket, 0o666)

    def spawn(self, watchdog_us=None, sockets=1):
        env = dict(os.environ, NOTIFY_SOCKET=str(self.daemon.base / "notify.sock"), LISTEN_FDS=str(sockets))
        watch = ""
        if watchdog_us is not None:
            env["WATCHDOG_USEC"] = str(watchdog_us)
            watch = "export WATCHDOG_PID=$$; "
        fd = self.listener.fileno()
        script = f'exec 3<&{fd}; export LISTEN_PID=$$; {watch}exec "$@"'
        with open(self.daemon.log, "ab") as log:
            self.daemon.process = subprocess.Popen(["bash", "-c", script, "manager", *self.daemon.command()], env=env,
                                                   pass_fds=(fd,), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def start(self, **options):
        self.spawn(**options)
        self.hears("READY=1", 60)
        return self

    def hears(self, word, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.notified.settimeout(max(deadline - time.monotonic(), 0.01))
            with contextlib.suppress(TimeoutError):
                if word in self.notified.recv(4096).decode().splitlines():
                    return
        raise AssertionError(f"no {word} within {seconds} s\n{self.daemon.log_text()[-2000:]}")

    def heard_nothing(self, word, seconds):
        with pytest.raises(AssertionError):
            self.hears(word, seconds)


@pytest.fixture
def daemon(bin_dir):
    daemon = harness.Daemon(bin_dir)
    yield daemon
    daemon.close()


def test_a_passed_socket_is_served_and_stays_when_the_daemon_stops(daemon):
    manager = Manager(daemon).start()
    assert daemon.am("status").status == 0
    inode = os.stat(daemon.socket).st_ino
    assert daemon.stop() == 0
    assert os.stat(daemon.socket).st_ino == inode
    # Who calls meanwhile waits at the socket, and is answered by the next daemon.
    waiting = subprocess.Popen(daemon.am_words("status"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    manager.start()
    out, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, err
    assert out


def test_a_socket_of_another_path_is_refused_and_both_are_named(daemon):
    other = daemon.base / "other.sock"
    Manager(daemon, other).spawn()
    assert daemon.process.wait(20) == 1
    daemon.process = None
    assert str(other) in daemon.log_text() and str(daemon.socket) in daemon.log_text()
    assert "agentmon.socket" in daemon.log_text()


def test_the_watchdog_is_fed_while_the_daemon_works_and_not_while_it_stands_still(daemon):
    manager = Manager(daemon).start(watchdog_us=2_000_000)
    for _ in range(3):
        manager.hears("WATCHDOG=1", 3)
    daemon.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: "T (stopped)" in open(f"/proc/{daemon.pid}/status").read(), 5, "the daemon is stopped")
    with contextlib.suppress(AssertionError):
        manager.hears("WATCHDOG=1", 0.1)  # one that was on its way
    manager.heard_nothing("WATCHDOG=1", 3)
    daemon.process.send_signal(signal.SIGCONT)
    manager.hears("WATCHDOG=1", 5)


def test_without_a_watchdog_nothing_is_fed(daemon):
    Manager(daemon).start().heard_nothing("WATCHDOG=1", 2)
