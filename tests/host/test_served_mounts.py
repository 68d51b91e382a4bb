"""Reads on mounts of file systems that ask a server: asked as others are, and a server that hangs holds up nobody else."""
import contextlib
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time

import pytest

from fuse import Mount, mounted
from harness import OTHER_UID, UID, alive, as_user, one, select, wait_until
from test_enforcement import TRY, policy

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/fuse") or shutil.which("bindfs") is None,
                                reason="needs /dev/fuse and bindfs")

SERVED = "file_rules: [{{name: no-secret, paths: ['{at}/secret/**'], operations: [open, read, list], decision: deny}}]\n"


@pytest.fixture(params=["its owner's alone", "for others too"])
def served(request, work):
    with mounted(work, others=request.param == "for others too") as mount:
        mount.put("secret/f", "TOP")
        mount.put("plain", "hello")
        yield mount


def rules(work, mount, extra=""):
    return policy(work, SERVED.format(at=mount.at), extra=extra)


def named(program):
    """Processes of that name."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(program.encode() + b"\0") and alive(int(folder.name)):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def keepers():
    """The mount keepers of this machine."""
    return named("agentmon-mounts")


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


# Puts a mount of ours where it lies into the mounts of a process, by system calls alone: open_tree, setns, move_mount.
BRING = """
import ctypes, os, sys
libc, at, target = ctypes.CDLL(None, use_errno=True), -100, sys.argv[1].encode()
tree = libc.syscall(428, at, target, 1)
there = os.open(f"/proc/{sys.argv[2]}/ns/mnt", os.O_RDONLY)
done = tree >= 0 and libc.setns(there, 0) == 0 and libc.syscall(429, tree, b"", at, target, 4) == 0
os._exit(0 if done else ctypes.get_errno())
"""


def test_a_mount_that_comes_later_and_has_no_keeper_is_told_of(own_daemon, work, python):
    """The daemon may open nothing more when it comes."""
    for name in ("served", "next"):
        (work / name).mkdir()
    options = policy(work, SERVED.format(at=work / "served"))
    with Opener(own_daemon, python(OPENS), cwd=work, options=options) as session, contextlib.ExitStack() as mounts:
        assert enforced(own_daemon, session.name) == ("kernel", "fanotify")
        inside = (own_daemon.cgroup(own_daemon.session(session.name)) / "cgroup.procs").read_text().split()[0]

        def bring(name):
            (work / name).rmdir()
            mounts.enter_context(mounted(work, name=name))
            subprocess.run(["/usr/bin/python3", "-c", BRING, work / name, inside], check=True)

        limits = resource.prlimit(own_daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(own_daemon.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            bring("served")
            wait_until(lambda: "that are new are not asked" in own_daemon.log_text(), 10, "the daemon has seen it")
        finally:
            resource.prlimit(own_daemon.pid, resource.RLIMIT_NOFILE, limits)
        rule = one(own_daemon.session(session.name)["policy"]["rules"], rule="no-secret")
        assert rule["enforced"] == "none" and str(work / "served") in rule["why"], rule
        bring("next")
        wait_until(lambda: enforced(own_daemon, session.name) == ("kernel", "fanotify"), 10, "the next change of mounts mends it")


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


def test_a_mount_that_another_one_covers_is_nobodys_concern(daemon, work, served):
    subprocess.run(["mount", "-t", "tmpfs", "none", served.at], check=True)
    try:
        with daemon.running("sleep", "60", cwd=work, options=rules(work, served)) as (_, name):
            assert enforced(daemon, name) == ("kernel", "fanotify")
    finally:
        subprocess.run(["umount", served.at], check=True)


def test_a_mount_that_lets_only_another_user_in_is_nobodys_concern(daemon, work, python):
    with mounted(work, uid=OTHER_UID) as mount:
        mount.hang()
        reaching = policy(work, "file_rules: [{name: no-secret, paths: ['**/secret/**'], operations: [open, read, list], decision: deny}]\n")
        with daemon.running("sleep", "60", cwd=work, options=reaching) as (_, name):
            assert enforced(daemon, name) == ("kernel", "fanotify")
        look = daemon.run(*python(TRY.format(act=f"os.listdir('{mount.at}')") + TRY.format(act=f"os.mkdir('{mount.at}/d')")),
                          cwd=work, options=reaching)
        assert look.out.decode().split() == ["EACCES", "EACCES"], look


def test_a_session_of_root_is_asked_there_too(daemon, work, python):
    with mounted(work, others=True) as mount:
        mount.put("secret/f", "TOP")
        code = "".join(TRY.format(act=act.format(at=mount.at)) for act in (
            "open('{at}/secret/f').read()", "open('{at}/made', 'w').write('x')", "os.chmod('{at}/made', 0o600)",
            "os.rename('{at}/made', '{at}/moved')", "os.unlink('{at}/moved')"))
        stopped = daemon.run(*python(code), uid=0, cwd=work, options=("--allow-root", *rules(work, mount)))
        assert stopped.out.decode().split() == ["EPERM"] + ["done"] * 4, stopped
        free = daemon.run(*python(code), uid=0, cwd=work, options=("--allow-root", "--policy", "observe"))
        assert free.out.decode().split() == ["done"] * 5, free  # the control


@pytest.mark.parametrize("loads", ["a program there", "a program here, by a loader there"])
def test_what_a_loader_is_given_behind_a_server_is_refused(daemon, work, served, loads):
    loader = "/lib64/ld-linux-x86-64.so.2"
    shutil.copy("/usr/bin/id", served.back / "copy")
    shutil.copy(os.path.realpath(loader), served.back / "loader")
    command = f"{loader} {served.at}/copy" if loads == "a program there" else f"{served.at}/loader /usr/bin/id"
    ran = daemon.run("sh", "-c", command, cwd=work, options=("--policy", "observe"))
    assert ran.status == 0 and b"uid=" in ran.out  # the control
    options = policy(work, "command_rules: [{name: no-id, commands: [id], decision: deny}]\n")
    stopped = daemon.run("sh", "-c", command, cwd=work, options=options)
    assert stopped.status == 126 and b"uid=" not in stopped.out, stopped
    row = one(select(daemon.events(stopped.name), enforced=True), kind="exec")
    assert (row["mechanism"], row["errno_name"]) == ("notify", "EACCES"), row
    assert row["rule"] == ("no-id" if "by a loader" in loads else "programs for a loader, behind a server"), row


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


CHANGES = {
    "mkdir": ("os.mkdir('{at}/kept/d')", "mkdir"),
    "rmdir": ("os.rmdir('{at}/kept/sub')", "rmdir"),
    "unlink": ("os.unlink('{at}/kept/f')", "delete"),
    "rename away": ("os.rename('{at}/kept/f', '{at}/gone')", "rename"),
    "rename by a link": ("os.rename('way/kept/f', '{at}/gone')", "rename"),
    "link": ("os.link('{at}/kept/f', '{at}/alias')", "link"),
    "symlink": ("os.symlink('x', '{at}/kept/l')", "symlink"),
    "chmod": ("os.chmod('{at}/kept/f', 0o600)", "chmod"),
    "truncate": ("os.truncate('{at}/kept/f', 0)", "truncate"),
    "create": ("open('{at}/kept/new', 'w')", "create"),
    "write": ("open('{at}/kept/f', 'w')", "open_write"),
    "relative": ("os.chdir('{at}/kept'); os.unlink('f')", "delete"),
}


@pytest.mark.parametrize("act", CHANGES)
def test_a_file_behind_a_server_that_may_not_be_changed_is_not_changed(daemon, work, python, served, act):
    code, kind = CHANGES[act]
    code = code.format(at=served.at)
    os.symlink(served.at, work / "way")

    def lay_out(name):
        served.put(f"{name}/f", "text")
        (served.back / name / "sub").mkdir()
        os.chown(served.back / name / "sub", UID, UID)

    lay_out("kept")
    lay_out("free")
    options = policy(work, f"file_rules: [{{name: kept, paths: ['{served.at}/kept/**'], operations: [write, create, delete, "
                           "rename, link, symlink, chmod, chown, mkdir, rmdir, mknod], decision: deny}]\n")
    stopped = daemon.run(*python(TRY.format(act=code)), cwd=work, options=options)
    assert stopped.out.decode().split() == ["EACCES"], stopped
    row = one(select(daemon.events(stopped.name), enforced=True), kind=kind)
    assert (row["rule"], row["mechanism"], row["errno_name"]) == ("kept", "broker", "EACCES"), row
    assert row["path"].startswith(f"{served.at}/kept"), row
    assert (served.back / "kept/f").read_text() == "text" and sorted(os.listdir(served.back / "kept")) == ["f", "sub"]
    # Beside it the same is done, and recorded; and so it is without enforcement.
    allowed = daemon.run(*python(TRY.format(act=code.replace("kept", "free"))), cwd=work, options=options)
    assert allowed.out.decode().split() == ["done"], allowed
    assert select(daemon.events(allowed.name), kind=kind)
    shutil.rmtree(served.back / "free")
    (served.back / "gone").unlink(missing_ok=True)
    (served.back / "alias").unlink(missing_ok=True)
    free = daemon.run(*python(TRY.format(act=code)), cwd=work, options=("--policy", "observe"))
    assert free.out.decode().split() == ["done"], free


def test_calls_that_wait_for_a_server_hold_up_no_other_session(own_daemon, work, python):
    threads = """
import os, sys, threading
def call(i):
    try:
        os.mkdir(f"{sys.argv[1]}/d{i}")
        done.append(i)
    except OSError as e:
        print(e, flush=True)
done = []
sys.stdin.readline()
waiting = [threading.Thread(target=call, args=(i,)) for i in range(32)]
for thread in waiting: thread.start()
print("all wait", flush=True)
for thread in waiting: thread.join()
print(len(done), flush=True)
"""
    calls = "import os, sys\nfor line in sys.stdin:\n    os.mkdir('made'); os.rmdir('made'); print('done', flush=True)\n"
    with mounted(work) as mount:
        mount.put("plain", "hello")
        options = rules(work, mount)
        made = own_daemon.run(*python(threads, mount.at), cwd=work, options=options, input=b"go\n")  # the control
        assert made.out.split()[-1] == b"32", made
        for folder in mount.back.glob("d*"):
            folder.rmdir()
        busy = dict(cwd=work, options=options, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def wait_all(stuck):
            mount.hang()
            stuck.stdin.write("go\n")
            stuck.stdin.flush()
            assert stuck.stdout.readline() == "all wait\n"

        with own_daemon.running(*python(threads, mount.at), **busy) as (stuck, _), \
                own_daemon.running(*python(calls), **busy) as (other, _):
            wait_all(stuck)
            longest = 0.0
            for _ in range(20):
                start = time.monotonic()
                other.stdin.write("\n")
                other.stdin.flush()
                assert other.stdout.readline() == "done\n"
                longest = max(longest, time.monotonic() - start)
            assert longest < 1, longest
            assert stuck.poll() is None
            mount.go_on()
            assert stuck.stdout.readline() == "32\n"
        for folder in mount.back.glob("d*"):
            folder.rmdir()
        # The end of a session, and of the daemon, with calls under way.
        with own_daemon.running(*python(threads, mount.at), **busy) as (stuck, name):
            wait_all(stuck)
            start = time.monotonic()
            assert own_daemon.stop() == 0
            assert time.monotonic() - start < 10
            own_daemon.start()
            own_daemon.am("session", "stop", name)
            wait_until(lambda: own_daemon.session(name)["state"] == "ended", 10, "it ended")


def waits_in_server(program):
    """A thread of that program waits for an answer of a FUSE server, or for somebody who does."""
    for pid in named(program):
        with contextlib.suppress(OSError):
            if any(word in (task / "stack").read_text() for word in ("request_wait_answer", "filename_create")
                   for task in pathlib.Path(f"/proc/{pid}/task").iterdir()):
                return True
    return False


def test_a_server_that_has_taken_what_it_does_not_answer_keeps_no_daemon_from_ending(own_daemon, work, python):
    """Then not even a signal that kills ends who waits for it, and who waits must not be the daemon."""
    code = ("import os, sys, threading\n"
            "known = os.open(sys.argv[1] + '/plain', os.O_PATH)\n"
            "print('ready', flush=True)\n"
            "sys.stdin.readline()\n"
            "for act in (lambda: os.mkdir(sys.argv[1] + '/d'), lambda: open(f'/proc/self/fd/{known}')):\n"
            "    threading.Thread(target=act).start()\n"
            "print('wait', flush=True)\n")
    with mounted(work, name="inner") as inner, mounted(work, name="outer", over=inner) as outer:
        inner.put("plain", "hello")
        options = rules(work, outer)
        with own_daemon.running(*python(code, outer.at), cwd=work, options=options, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True) as (stuck, name):
            assert stuck.stdout.readline() == "ready\n"
            inner.hang()
            try:
                stuck.stdin.write("go\n")
                stuck.stdin.flush()
                assert stuck.stdout.readline() == "wait\n"
                wait_until(lambda: waits_in_server("agentmon-mounts") and waits_in_server("agentmon-calls"), 10, "both wait")
                # It is the user's by its ids, and not in the session: the user must not look into it.
                (child,) = [pid for pid in named("agentmon-calls") if
                            f"Uid:\t{UID}\t{UID}" in pathlib.Path(f"/proc/{pid}/status").read_text()]
                for name_in_proc in ("environ", "mem"):
                    looks = [subprocess.run([*as_user(UID), "test", "-r", f"/proc/{pid}/{name_in_proc}"], check=False).returncode
                             for pid in (stuck.pid, child)]  # the first one is the control
                    assert looks == [0, 1], name_in_proc
                own_daemon.kill()
                own_daemon.start()
                assert own_daemon.run("true", cwd=work, options=policy(work, "", "free.yaml")).status == 0
                own_daemon.am("session", "stop", name)
                assert own_daemon.stop() == 0
                own_daemon.start()
            finally:
                inner.go_on()
    wait_until(lambda: not keepers(), 10, "no keeper is left")
