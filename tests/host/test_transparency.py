"""A program does not notice that it runs in a session."""
import json
import os
import pty
import resource
import shutil
import signal
import subprocess

import pytest

import harness
from harness import UID, as_user

STATUSES = [0, 1, 2, 7, 77, 124, 125, 126, 127, 128, 130, 137, 254, 255]
SIGNALS = [1, 2, 3, 6, 9, 11, 13, 14, 15, 31]


@pytest.mark.parametrize("status", STATUSES)
def test_the_exit_status_is_the_agents(daemon, work, status):
    assert daemon.run("sh", "-c", f"exit {status}", cwd=work).status == status


@pytest.mark.parametrize("number", SIGNALS)
def test_an_agent_killed_by_a_signal_ends_as_128_plus_its_number(daemon, work, number):
    # A shell cannot tell 128+N from a death by N, and callers of waitpid must always see the same of the two.
    shell = ["sh", "-c", "ulimit -c 0; \"$@\"; exit $?", "sh"]
    words = daemon.run_words("sh", "-c", f"ulimit -c 0; kill -{number} $$")
    assert harness.call([*shell, *words], cwd=work).status == 128 + number


def test_a_python_that_aborts_ends_with_134(daemon, work):
    words = daemon.run_words("/usr/bin/python3", "-c", "import os, resource\nresource.setrlimit(4, (0, 0))\nos.abort()")
    assert harness.call(["sh", "-c", "\"$@\"; exit $?", "sh", *words], cwd=work).status == 134


def test_run_does_not_wait_for_background_jobs(daemon, work):
    # Descriptors of the job go elsewhere, or our own reading of its output would wait.
    result = daemon.run("sh", "-c", "sleep 60 >/dev/null 2>&1 & exit 3", cwd=work, timeout=20)
    assert result.status == 3
    assert daemon.session(result.name)["state"] == "running"
    assert daemon.am("session", "stop", result.name).status == 0


MIRROR = """
import json, os, resource, signal, sys
json.dump({
    "uids": os.getresuid(), "gids": os.getresgid(), "groups": sorted(os.getgroups()),
    "cwd": os.getcwd(), "env": {k: v for k, v in os.environ.items() if k != "_"},
    "umask": os.umask(0),
    "limits": {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")},
    "nice": os.getpriority(os.PRIO_PROCESS, 0), "affinity": sorted(os.sched_getaffinity(0)),
    "blocked signals": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    "ignored signals": [n for n in range(1, 65) if n not in (32, 33) and signal.getsignal(n) == signal.SIG_IGN],
    "ttys": [os.isatty(n) for n in (0, 1, 2)], "argv": sys.argv,
    "fds": {n: os.readlink("/proc/self/fd/" + n).split(":")[0] for n in sorted(os.listdir("/proc/self/fd"))
            if os.path.exists("/proc/self/fd/" + n) and not os.readlink("/proc/self/fd/" + n).startswith("/proc/")},
    "oom": open("/proc/self/oom_score_adj").read(),
}, sys.stdout)
"""


@pytest.fixture(scope="module")
def mirrors(shared_daemon, scripts):
    """What a program sees of itself, bare and in a session, started in one odd but legal environment."""
    script = scripts / "mirror.py"
    script.write_text(MIRROR)
    reader, writer = os.pipe()
    regular = os.open(script, os.O_RDONLY)
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", "ODD": "a b\nc", "EMPTY": "",
           "TMPDIR": "/var/tmp", "LD_LIBRARY_PATH": "/nonexistent", "MALLOC_ARENA_MAX": "2", "BASH_FUNC_x%%": "() { :; }"}

    def prepare():
        os.umask(0o027)
        os.nice(3)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])

    program = ["/usr/bin/python3", "-I", "-S", "-B", str(script), "an argument", ""]

    def see(words):
        done = subprocess.run(words, cwd="/usr", env=env, preexec_fn=prepare, pass_fds=(reader, regular), timeout=60,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    groups = (UID, 61007, 61008)
    yield see([*as_user(UID, groups), *program]), see(shared_daemon.run_words(*program, groups=groups))
    for fd in (reader, writer, regular):
        os.close(fd)


@pytest.mark.parametrize("what", ["uids", "gids", "groups", "cwd", "env", "umask", "limits", "nice", "affinity",
                                  "blocked signals", "ignored signals", "ttys", "argv", "fds", "oom"])
def test_inside_equals_outside(mirrors, what):
    bare, inside = mirrors
    expected = bare[what]
    if what == "env":  # the default policy's secrets and loader variables are unset, the session is named
        expected = {k: v for k, v in expected.items() if not k.startswith("LD_")}
        expected["AGENTMON_SESSION"] = inside["env"]["AGENTMON_SESSION"]
    assert inside[what] == expected


def test_the_terminal_stays_the_agents(daemon, work):
    master, slave = pty.openpty()
    try:
        result = daemon.run("sh", "-c", "test -t 0 && test -t 1 && tty", cwd=work, stdin=slave, stdout=slave)
        assert result.status == 0, result
        assert os.read(master, 1000).strip().decode() == os.ttyname(slave)
    finally:
        os.close(master)
        os.close(slave)


def test_ten_mebibytes_of_random_bytes_pass_through_pipes(daemon, work):
    data = os.urandom(10 * 1024 * 1024)
    result = daemon.run("sh", "-c", "tee copy && cat copy >&2", cwd=work, input=data)
    assert result.status == 0
    assert result.out == data
    assert result.err == data


def test_run_writes_nothing_of_its_own_into_a_clean_run(daemon, work):
    result = daemon.run("true", options=("--quiet",), cwd=work)
    assert (result.status, result.out, result.err) == (0, b"", b"")


def test_closed_standard_descriptors_stay_usable(daemon, work):
    words = daemon.run_words("sh", "-c", "echo text > out; cat out > copy", options=("--quiet",))
    assert harness.call(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *words], cwd=work).status == 0
    assert (work / "copy").read_text() == "text\n"


def test_process_substitution_reaches_the_agent(daemon, work):
    words = [str(daemon.bin / "agentmon"), "--socket", str(daemon.socket), "run", "--"]
    result = harness.call([*as_user(UID), "bash", "-c", '"$@" cat <(echo one; echo two)', "bash", *words], cwd=work)
    assert result.status == 0, result
    assert result.out == b"one\ntwo\n"


def test_a_make_in_a_session_uses_the_job_server_of_the_make_outside(daemon, work):
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    agentmon = " ".join([*daemon.am_words("run", "--quiet", "--")])
    (work / "Makefile").write_text(f"all:\n\t+{agentmon} $(MAKE) -f inner.mk\n")
    (work / "inner.mk").write_text("all: a b c d\na b c d:\n\t@touch $@.done\n.PHONY: all a b c d\n")
    result = harness.call([*as_user(UID), "make", "-j4"], cwd=work)
    assert result.status == 0, result
    assert b"jobserver" not in result.err
    assert len(list(work.glob("*.done"))) == 4


def test_a_slow_consumer_does_not_lose_output(daemon, work):
    words = daemon.run_words("seq", "1", "200000")
    result = harness.call(["bash", "-c", 'set -o pipefail; "$@" | (sleep 1; tail -n 1)', "bash", *words], cwd=work)
    assert result.status == 0, result
    assert result.out == b"200000\n"


def test_the_agent_has_no_privileges_it_did_not_have(daemon, work):
    result = daemon.run("sh", "-c", "grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status", cwd=work)
    assert result.status == 0
    assert {line.split()[1] for line in result.out.decode().splitlines()} == {"0" * 16}
