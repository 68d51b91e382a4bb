"""agentmon's own failures are told apart from the agent's: 125, 126, 127, 3, and a message on stderr."""
import pathlib
import subprocess

import harness
from harness import OTHER_UID, UID, as_user, call, select


def test_a_program_that_is_not_there_is_127(daemon, work):
    assert daemon.run("/no/such/program", cwd=work).status == 127
    assert daemon.run("nosuchprogram", cwd=work).status == 127


def test_a_file_that_cannot_be_executed_is_126(daemon, work):
    (work / "text").write_text("not a program")
    (work / "folder").mkdir(mode=0o755)
    assert daemon.run("./text", cwd=work).status == 126
    assert daemon.run("./folder", cwd=work).status == 126


def test_run_without_a_daemon_is_125_and_runs_nothing(own_daemon, work):
    own_daemon.stop()
    result = own_daemon.run("touch", "ran", cwd=work)
    assert result.status == 125, result
    assert b"agentmon" in result.err and result.out == b""
    assert not (work / "ran").exists()


def test_other_verbs_without_a_daemon_are_3(own_daemon):
    own_daemon.stop()
    result = own_daemon.am("session", "list")
    assert result.status == 3, result
    assert result.err and not result.out


FAKE_SERVER = """
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
s.listen(4)
print("ready", flush=True)
c = s.accept()
time.sleep(60)
"""


def test_a_socket_that_another_user_serves_is_not_trusted(daemon, work):
    work.chmod(0o777)
    path = work / "agentmond.sock"
    fake = subprocess.Popen([*as_user(OTHER_UID), "/usr/bin/python3", "-c", FAKE_SERVER, str(path)],
                            stdout=subprocess.PIPE)
    try:
        assert fake.stdout.readline() == b"ready\n"
        words = [*as_user(UID), str(daemon.bin / "agentmon"), "--socket", str(path), "run", "--", "touch", "ran"]
        result = harness.call(words, cwd=work, timeout=30)
        assert result.status == 125, result
        assert not (work / "ran").exists()
    finally:
        fake.kill()
        fake.wait()


def test_root_needs_allow_root(daemon, work):
    refused = daemon.run("touch", "ran", uid=0, cwd=work)
    assert refused.status == 125, refused
    assert b"--allow-root" in refused.err
    assert not (work / "ran").exists()


def test_root_with_allow_root_runs(daemon, work):
    result = daemon.run("touch", "ran", uid=0, options=("--allow-root",), cwd=work)
    assert result.status == 0, result
    assert (work / "ran").exists()
    harness.one(daemon.events(result.name), kind="session", change="started")


def test_an_unknown_option_is_a_usage_error_that_runs_nothing(daemon, work):
    result = daemon.run("touch", "ran", options=("--no-such-option",), cwd=work)
    assert result.status in (2, 125), result
    assert b"--no-such-option" in result.err
    assert not (work / "ran").exists()


def test_words_after_the_double_dash_are_the_agents(daemon, work):
    result = daemon.run("sh", "-c", 'printf "%s|" "$@"', "sh", "--name", "--", "-h", cwd=work)
    assert result.out == b"--name|--|-h|"


def test_every_verb_explains_itself(daemon):
    for verb in ("run", "session", "timeline", "attach", "watch", "status"):
        result = daemon.am(verb, "--help")
        assert result.status == 0 and verb.encode() in result.out, verb


def test_version_is_the_projects(daemon):
    version = (pathlib.Path(__file__).resolve().parents[2] / "VERSION").read_text().strip()
    assert version in daemon.am("--version").out.decode()


LIMITS = [("nofile", n) for n in range(4, 20)] + [("nproc", n) for n in (1, 3, 5, 8, 10, 11, 12, 16, 2000)] + \
         [("as", n << 20) for n in (30, 60, 90, 110, 120, 130, 150, 200)]


def test_a_run_that_gets_no_room_says_so_and_leaves_no_session(daemon, work):
    outcomes = set()
    for resource, limit in LIMITS:
        words = [*as_user(UID), "prlimit", f"--{resource}={limit}:{limit}",
                 *daemon.run_words("/bin/echo", "ran", uid=0, options=("--quiet",))]
        result = call(words, cwd=work, timeout=30)
        if result.status == 0:
            assert result.out == b"ran\n", (resource, limit, result)
        else:  # never 134 (abort), never the time-out of this call (a hang)
            assert result.status == 125 and result.out == b"", (resource, limit, result)
            assert result.err.startswith(b"agentmon: ") and result.err.count(b"\n") == 1, (resource, limit, result)
            assert b"ulimit -" in result.err, (resource, limit, result)
        outcomes.add((resource, result.status))
        assert not select(daemon.sessions(), state="starting"), (resource, limit, result)
    assert outcomes == {(resource, status) for resource in ("nofile", "nproc", "as") for status in (0, 125)}
