"""Who may do what: a user with own sessions, another user, and an agent from inside."""
import os
import signal
import subprocess

import pytest

from harness import OTHER_UID, UID, as_user, call, cgroup2_mount, one, select, wait_until


def test_another_user_sees_nothing_of_ours(daemon, work):
    with daemon.running("sleep", "60", cwd=work) as (_, name):
        identity = daemon.session(name)["id"]
        assert one(daemon.sessions(uid=UID), id=identity)
        assert not select(daemon.sessions(uid=OTHER_UID), id=identity)
        for which in (name, identity):
            assert daemon.session(which, uid=OTHER_UID) is None
            shown = daemon.am("timeline", "--session", which, "--format", "json", uid=OTHER_UID)
            assert shown.out == b"", shown
        everything = daemon.am("timeline", "--session", "all", "--format", "json", uid=OTHER_UID)
        assert identity.encode() not in everything.out


def test_another_user_stops_nothing_of_ours(daemon, work):
    with daemon.running("sleep", "60", cwd=work) as (process, name):
        identity = daemon.session(name)["id"]
        assert daemon.am("session", "stop", identity, uid=OTHER_UID).status != 0
        daemon.am("session", "stop", "--all", uid=OTHER_UID)
        assert process.poll() is None
        assert daemon.session(name)["state"] == "running"


def test_a_user_stops_own_sessions(daemon, work):
    with daemon.running("sleep", "60", cwd=work) as (process, name):
        assert daemon.am("session", "stop", name, uid=UID).status == 0
        process.wait(10)


def test_verify_is_for_administrators(daemon):
    assert daemon.am("timeline", "verify").status == 0
    assert daemon.am("timeline", "verify", uid=UID).status != 0


def test_the_state_of_the_daemon_is_closed_to_users(daemon):
    for path in (daemon.state, daemon.database):
        assert call([*as_user(UID), "cat", path]).status != 0
        assert call([*as_user(UID), "ls", "-l", f"{path}/"]).status != 0
    assert os.stat(daemon.database).st_mode & 0o777 == 0o600


def inside(daemon, work, *argv, wrap=""):
    """Runs an agentmon verb from inside a session of UID; its Result."""
    words = [str(daemon.bin / "agentmon"), "--socket", str(daemon.socket), *map(str, argv)]
    return daemon.run("sh", "-c", f'{wrap} "$@"', "sh", *words, options=("--quiet",), cwd=work)


@pytest.mark.parametrize("argv", [("session", "list"), ("session", "stop", "--all"), ("timeline", "verify")],
                         ids=lambda argv: " ".join(argv))
def test_an_agent_may_not(daemon, work, argv):
    result = inside(daemon, work, *argv)
    assert result.status not in (0, 125), result
    assert result.err


def test_an_agent_does_not_stop_another_session_of_its_user(daemon, work):
    with daemon.running("sleep", "60", cwd=work) as (process, name):
        result = inside(daemon, work, "session", "stop", daemon.session(name)["id"])
        assert result.status != 0, result
        assert process.poll() is None


def test_an_agent_does_not_stop_its_own_session(daemon, work):
    name = daemon.new_name()
    words = [str(daemon.bin / "agentmon"), "--socket", str(daemon.socket), "session", "stop", name]
    result = daemon.run("sh", "-c", '"$@"; echo "stop said $?"', "sh", *words, name=name, cwd=work)
    assert result.status == 0, result
    assert b"stop said" in result.out and b"stop said 0" not in result.out


def test_an_agent_does_not_attach_processes(daemon, work):
    process = subprocess.Popen([*as_user(UID), "sleep", "60"])
    try:
        assert inside(daemon, work, "attach", "--pid", process.pid).status != 0
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_an_agent_does_not_read_the_timeline_of_another_session(daemon, work):
    other = daemon.run("touch", "secret-name", cwd=work)
    daemon.events(other.name)
    identity = daemon.session(other.name)["id"]
    for which in (identity, "all"):
        result = inside(daemon, work, "timeline", "--session", which, "--format", "json")
        assert b"secret-name" not in result.out, result


def test_an_agent_sees_its_own_session(daemon, work):
    result = inside(daemon, work, "session", "show", "--json")
    assert result.status == 0, result
    assert result.name.encode() in result.out
    assert inside(daemon, work, "timeline", "--format", "json").status == 0
    assert inside(daemon, work, "status").status == 0


def test_an_agent_does_not_leave_its_cgroup(daemon, work, python):
    out = python("""
import os, sys
for directory in sys.argv[1:]:
    try:
        with open(directory + "/cgroup.procs", "w") as procs: procs.write(str(os.getpid()))
        print("left")
    except OSError as error: print(error.errno)
""")
    with daemon.running("sleep", "60", cwd=work) as (_, name):
        mine = daemon.cgroup(daemon.session(name))
        places = [mine, mine.parent, cgroup2_mount()]
        result = daemon.run(*out, *map(str, places), cwd=work)
        assert result.out.decode().split() == ["13", "13", "13"], result
        # Root, from outside, may: then it is another session's.
        (pid,) = (mine / "cgroup.procs").read_text().split()
        (cgroup2_mount() / "cgroup.procs").write_text(pid)
        assert pid not in (mine / "cgroup.procs").read_text().split()
        os.kill(int(pid), signal.SIGKILL)


def test_a_nested_run_is_refused_with_125(daemon, work):
    result = inside(daemon, work, "run", "--", "touch", "ran")
    assert result.status == 125, result
    assert result.err and not (work / "ran").exists()


DETACHED = """
import os, subprocess, sys
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
done = subprocess.run(sys.argv[1:], capture_output=True)
open("answer.part", "w").write("%d" % done.returncode)
os.rename("answer.part", "answer")
"""


@pytest.mark.parametrize("argv, refused", [(("session", "list"), (1, 2, 3)), (("run", "--", "true"), (125,))],
                         ids=["list", "run"])
def test_a_process_that_left_its_parent_is_still_an_agent(daemon, work, python, argv, refused):
    words = [str(daemon.bin / "agentmon"), "--socket", str(daemon.socket), *argv]
    result = daemon.run(*python(DETACHED, *words), cwd=work)
    assert result.status == 0, result
    wait_until(lambda: (work / "answer").exists(), 15, "the answer")
    assert int((work / "answer").read_text()) in refused


# An agent connects and hands the connection to an accomplice outside, who serves it to a command line there.
GIVE = """
import array, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
out = socket.socket(socket.AF_UNIX); out.connect("give")
out.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno()]))])
out.recv(1)
"""
TAKE = """
import os, select, socket
give = socket.socket(socket.AF_UNIX); give.bind("give"); give.listen(1)
open("listening", "w").close()
giver, _ = give.accept()
_, fds, _, _ = socket.recv_fds(giver, 1, 1)
daemon = socket.socket(fileno=fds[0])
proxy = socket.socket(socket.AF_UNIX); proxy.bind("proxy"); proxy.listen(1)
client, _ = proxy.accept()
open_ends = {client: daemon, daemon: client}
while True:
    for end in select.select(list(open_ends), [], [])[0]:
        data = end.recv(65536)
        if not data: os._exit(0)
        open_ends[end].sendall(data)
"""


def test_a_connection_made_inside_stays_an_agents_when_it_is_passed_on(daemon, work, python):
    taker = subprocess.Popen([*as_user(UID), *python(TAKE)], cwd=work)
    try:
        wait_until(lambda: (work / "listening").exists(), 10, "the accomplice listens")
        with daemon.running("sleep", "60", cwd=work) as (victim, name):
            identity = daemon.session(name)["id"]
            with daemon.running(*python(GIVE, daemon.socket), cwd=work):
                wait_until(lambda: (work / "proxy").exists(), 10, "the connection is passed on")
                words = [str(daemon.bin / "agentmon"), "--socket", str(work / "proxy"), "session", "stop", identity]
                result = call([*as_user(UID), *words], timeout=30)
                assert result.status != 0, result
                assert victim.poll() is None
    finally:
        taker.kill()
        taker.wait()


def test_a_token_works_once_and_for_its_user_only(daemon, work, bin_dir):
    # Without a token, or with another one, the shim runs nothing.
    for uid in (UID, OTHER_UID):
        token = "0" * 32
        words = [*as_user(uid), str(bin_dir / "agentmon-shim"), "--socket", str(daemon.socket), "--token-fd", "0",
                 "--session", "none", "--", "touch", "ran"]
        result = call(words, cwd=work, input=token.encode(), timeout=20)
        assert result.status == 125, result
        assert not (work / "ran").exists()
