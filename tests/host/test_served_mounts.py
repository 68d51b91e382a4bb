"""Reads on mounts of file systems that ask a server: asked as others are, and a server that hangs holds up nobody else."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from fuse import Mount, mounted
from harness import alive, one, select, wait_until
from test_enforcement import TRY, policy

SERVED = "file_rules: [{{name: no-secret, paths: ['{at}/secret/**'], operations: [open, read, list], decision: deny}}]\n"


@pytest.fixture(params=["its owner's alone", "for others too"])
def served(request, work):
    with mounted(work, others=request.param == "for others too") as mount:
        mount.put("secret/f", "TOP")
        mount.put("plain", "hello")
        yield mount


def rules(work, mount, extra=""):
    return policy(work, SERVED.format(at=mount.at), extra=extra)


def keepers():
    """The mount keepers of this machine."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(b"agentmon-mounts\0--mounts\0") and alive(int(folder.name)):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def enforced(daemon, name):
    rule = one(daemon.session(name)["policy"]["rules"], rule="no-secret")
    return rule["enforced"], rule.get("mechanism")


def test_a_file_behind_a_server_is_asked_about(daemon, work, python, served):
    code = (TRY.format(act=f"open('{served.at}/plain').read()") + TRY.format(act=f"open('{served.at}/secret/f').read()") +
            TRY.format(act=f"os.listdir('{served.at}')") + TRY.format(act=f"os.listdir('{served.at}/secret')"))
    stopped = daemon.run(*python(code), cwd=work, options=rules(work, served))
    assert stopped.out.decode().split() == ["done", "EPERM", "done", "EPERM"], stopped
    rows = select(daemon.events(stopped.name), enforced=True)
    row = one(rows, path=f"{served.at}/secret/f")
    assert (row["kind"], row["rule"], row["mechanism"], row["errno_name"]) == ("open", "no-secret", "fanotify", "EPERM"), row
    assert one(rows, path=f"{served.at}/secret")["rule"] == "no-secret"
    free = daemon.run(*python(code), cwd=work, options=("--policy", "observe"))
    assert free.out.decode().split() == ["done"] * 4, free  # the control
    with daemon.running("sleep", "60", cwd=work, options=rules(work, served)) as (_, name):
        assert enforced(daemon, name) == ("kernel", "fanotify")
        assert len(keepers()) == 1
    wait_until(lambda: not keepers(), 10, "no keeper is left")


# Opens what it is told, one after the other, and says how each ended and how many seconds it took.
OPENS = """
import errno, os, sys, time
for line in sys.stdin:
    start = time.monotonic()
    try:
        os.close(os.open(line.strip(), os.O_RDONLY))
        word = "done"
    except OSError as e:
        word = errno.errorcode[e.errno]
    print(word, round(time.monotonic() - start, 3), flush=True)
"""


class Opener:
    """A session whose agent opens files when it is told."""

    def __init__(self, daemon, words, **options):
        self.running = daemon.running(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)

    def __enter__(self):
        self.process, self.name = self.running.__enter__()
        return self

    def __exit__(self, *how):
        return self.running.__exit__(*how)

    def ask(self, path):
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()

    def answer(self):
        word, seconds = self.process.stdout.readline().split()
        return word, float(seconds)

    def opens(self, path):
        self.ask(path)
        return self.answer()[0]


def test_a_server_that_hangs_holds_up_only_opens_on_its_mounts(own_daemon, work, python):
    (work / "local").write_text("x")
    with mounted(work) as one_mount, mounted(work, name="other") as other:
        for mount in (one_mount, other):
            mount.put("plain", "hello")
        options = rules(work, one_mount)
        with Opener(own_daemon, python(OPENS), cwd=work, options=options) as session, \
                Opener(own_daemon, python(OPENS), cwd=work, options=options) as stuck:
            assert stuck.opens(one_mount.at / "plain") == session.opens(other.at / "plain") == "done"
            one_mount.hang()
            for _ in range(4):
                stuck.ask(one_mount.at / "plain")
            began = time.monotonic()
            for path in (work / "local", other.at / "plain", work / "local", other.at / "plain"):
                assert session.opens(path) == "done"
            assert own_daemon.session(session.name)["state"] == "running"
            assert time.monotonic() - began < 5
            assert stuck.process.poll() is None
            one_mount.go_on()
            assert [stuck.answer()[0] for _ in range(4)] == ["done"] * 4
            one_mount.hang()
            stuck.ask(one_mount.at / "plain")
            assert session.opens(other.at / "plain") == "done"
            began = time.monotonic()
            assert own_daemon.am("session", "stop", stuck.name).status == 0
            wait_until(lambda: own_daemon.session(stuck.name)["state"] == "ended", 10, "it ended")
            assert session.opens(other.at / "plain") == "done"
            assert own_daemon.stop() == 0 and time.monotonic() - began < 15
            own_daemon.start()
            assert session.opens(other.at / "plain") == "done"


@pytest.mark.parametrize("way", ["killed", "standing still"])
def test_nothing_denied_passes_without_a_daemon(own_daemon, work, python, served, way):
    with Opener(own_daemon, python(OPENS), cwd=work, options=rules(work, served)) as session:
        assert session.opens(served.at / "secret/f") == "EPERM" and session.opens(served.at / "plain") == "done"
        if way == "killed":
            own_daemon.kill()
        else:
            own_daemon.process.send_signal(signal.SIGSTOP)
        for path in ("secret/f", "plain"):
            session.ask(served.at / path)
            word, seconds = session.answer()
            assert word == "EPERM" and seconds < 5, (path, word, seconds)
        if way == "killed":
            own_daemon.start()
        else:
            own_daemon.process.send_signal(signal.SIGCONT)
        wait_until(lambda: session.opens(served.at / "plain") == "done", 15, "what is allowed opens again")
        assert session.opens(served.at / "secret/f") == "EPERM"
        assert enforced(own_daemon, session.name) == ("kernel", "fanotify")


def test_a_keeper_that_is_killed_is_replaced(own_daemon, work, python, served):
    with Opener(own_daemon, python(OPENS), cwd=work, options=rules(work, served)) as session:
        assert session.opens(served.at / "plain") == "done"
        (keeper,) = keepers()
        os.kill(keeper, signal.SIGKILL)
        assert session.opens(served.at / "secret/f") == "EPERM"
        wait_until(lambda: session.opens(served.at / "plain") == "done", 10, "what is allowed opens again")
        assert keepers() not in ([], [keeper])


def test_a_mount_that_comes_later_is_marked_too(own_daemon, work, python):
    for name in ("served", "served-back"):
        (work / name).mkdir()
    options = policy(work, SERVED.format(at=work / "served"))
    with Opener(own_daemon, python(OPENS), cwd=work, options=options) as session:
        assert not keepers()
        shutil.rmtree(work / "served")
        shutil.rmtree(work / "served-back")
        inside = (own_daemon.cgroup(own_daemon.session(session.name)) / "cgroup.procs").read_text().split()[0]
        mount = Mount(work, into=int(inside))
        try:
            mount.put("secret/f", "TOP")
            mount.put("plain", "hello")
            wait_until(lambda: session.opens(mount.at / "secret/f") == "EPERM", 10, "it is asked about")
            assert session.opens(mount.at / "plain") == "done"
        finally:
            mount.close()


def test_a_copy_of_a_program_behind_a_server_is_that_program(daemon, work, served):
    for name, program in (("copy", "/usr/bin/id"), ("free", "/usr/bin/true")):
        shutil.copy(program, served.back / name)
    rule = "command_rules: [{name: no-id, commands: [id], decision: deny}]\n"
    ran = daemon.run(str(served.at / "copy"), cwd=work, options=("--policy", "observe"))
    assert ran.status == 0 and b"uid=" in ran.out  # the control
    options = policy(work, rule)
    assert daemon.run(str(served.at / "free"), cwd=work, options=options).status == 0
    stopped = daemon.run("sh", "-c", f"{served.at}/copy", cwd=work, options=options)
    assert stopped.status == 126 and b"uid=" not in stopped.out, stopped
    row = one(select(daemon.events(stopped.name), enforced=True), kind="exec")
    assert (row["rule"], row["mechanism"], row["errno_name"]) == ("no-id", "fanotify", "EPERM"), row


def test_a_session_whose_mounts_cannot_be_marked_is_refused(own_daemon, work, python):
    """A mount that asks its server about each permission, and whose server answers nothing."""
    with mounted(work, others=True) as mount:
        mount.put("plain", "hello")
        mount.hang()
        reaching = policy(work, SERVED.format(at=mount.at))
        refused = own_daemon.run("true", cwd=work, options=reaching)
        assert refused.status != 0 and b"no-secret" in refused.err, refused
        lax = policy(work, SERVED.format(at=mount.at), "lax.yaml", "enforcement: best_effort\n")
        with own_daemon.running("sleep", "60", cwd=work, options=lax) as (_, name):
            rule = one(own_daemon.session(name)["policy"]["rules"], rule="no-secret")
            assert rule["enforced"] == "none" and str(mount.at) in rule["why"], rule
            mount.go_on()
            wait_until(lambda: enforced(own_daemon, name) == ("kernel", "fanotify"), 10, "it is marked after all")
        other = policy(work, SERVED.format(at=work / "elsewhere"), "other.yaml")
        mount.hang()
        assert own_daemon.run("true", cwd=work, options=other).status == 0  # no rule reaches into it
