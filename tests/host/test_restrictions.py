"""What a session's shim does to itself: environment, descriptors, capabilities, scope and refused calls. Each refusal with the same act outside of it, or under a policy that only records."""
import errno
import json
import os
import socket
import subprocess

import pytest

from harness import UID, as_user, call, wait_until

OBSERVE = ("--policy", "observe")


@pytest.fixture
def policy(work):
    """policy(TEXT, name): options that make a file with it the base of a session."""

    def options(text, name="p.yaml"):
        (work / name).write_text(
            "version: 1\nname: p\nenforcement: best_effort\ndefaults: {command: allow, file_write: allow, "
            f"network: allow, unix_socket: allow, signal: deny}}\n{text}")
        return ("--policy", str(work / name))

    return options


def outside(words, uid=UID, **rest):
    """The same command without a session."""
    return call([*as_user(uid), *map(str, words)], **rest)


# Prints the errno of each act, 0 = it succeeded; one a line. Acts that would change the process run in children.
TRY = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static long act(const char *n) {
  if (!strcmp(n, "ptrace")) return ptrace(PTRACE_TRACEME, 0, 0, 0);
  if (!strcmp(n, "bpf")) return syscall(SYS_bpf, -1, 0, 1 << 20);
  if (!strcmp(n, "setns")) return syscall(SYS_setns, -1, 0);
  if (!strcmp(n, "unshare")) return unshare(CLONE_NEWUSER | CLONE_NEWNS);
  if (!strcmp(n, "clone_new")) return syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0) == 0 ? (_exit(0), 0) : -(errno != 0);
  if (!strcmp(n, "clone3")) return syscall(SYS_clone3, 0, 0);
  if (!strcmp(n, "io_uring")) return syscall(SYS_io_uring_enter, -1, 0, 0, 0, 0, 0);
  if (!strcmp(n, "perf")) return syscall(SYS_perf_event_open, 0, 0, -1, -1, -1L);
  if (!strcmp(n, "keyctl")) return syscall(SYS_keyctl, -1);
  if (!strcmp(n, "personality")) return syscall(SYS_personality, 8);
  if (!strcmp(n, "tiocsti")) return ioctl(-1, TIOCSTI, "x");
  if (!strcmp(n, "family")) return socket(4000, SOCK_STREAM, 0);
  if (!strcmp(n, "inet")) return socket(AF_INET, SOCK_STREAM, 0);
  if (!strncmp(n, "kill:", 5)) return kill(atoi(n + 5), 0);
  if (!strcmp(n, "mknod")) { unlink("device"); return syscall(SYS_mknod, "device", 060600, 0x700); }
  if (!strcmp(n, "chown")) { close(open("owned", O_CREAT | O_WRONLY, 0600)); return chown("owned", 61002, 61002); }
  return 0;
}
int main(int c, char **v) {
  for (int i = 1; i < c; ++i) {
    int s; pid_t p = fork();
    if (p == 0) { errno = 0; _exit(act(v[i]) < 0 ? errno : 0); }
    waitpid(p, &s, 0);
    printf("%d\n", WEXITSTATUS(s));
  }
}
"""


@pytest.fixture(scope="session")
def try_acts(cc):
    program = cc("try-acts", TRY)
    return lambda *acts: [program, *map(str, acts)]


def errors(result):
    assert result.status == 0, result
    return [int(line) for line in result.out.split()]


# -- environment

def test_variables_that_the_policy_refuses_do_not_reach_the_agent(daemon, policy):
    env = {**os.environ, "LD_PRELOAD": "", "BASH_ENV": "/x", "GITHUB_TOKEN": "t", "CORP_KEY": "k", "FINE": "f"}
    options = policy("env_policy: {deny: [CORP_*]}\nenv_inject: {MADE: here}\n")
    result = daemon.run("env", "-0", options=options, env=env)
    assert result.status == 0, result
    got = dict(word.split("=", 1) for word in result.out.decode().split("\0") if word)
    assert got["FINE"] == "f" and got["MADE"] == "here"
    assert not {"LD_PRELOAD", "BASH_ENV", "GITHUB_TOKEN", "CORP_KEY"} & got.keys()
    assert got["AGENTMON_SESSION"] == daemon.session(result.name)["id"]
    listed = daemon.run("env", "-0", options=policy("env_policy: {allow: [PATH, LC_*]}\n"), env=env)
    names = {word.split("=", 1)[0] for word in listed.out.decode().split("\0") if word}
    assert names == {"PATH", "AGENTMON_SESSION"}, names
    observed = daemon.run("env", "-0", options=OBSERVE, env=env)
    assert b"CORP_KEY=k\0" in observed.out and b"BASH_ENV=/x\0" in observed.out


def test_an_environment_larger_than_the_policy_allows_starts_nothing(daemon, policy, work):
    options = policy("env_policy: {max_bytes: 2000}\n")
    result = daemon.run("touch", work / "ran", options=options, env={**os.environ, "BIG": "x" * 3000})
    assert result.status == 125 and not (work / "ran").exists()
    assert b"env_policy.max_bytes" in result.err and result.err.count(b"\n") == 1, result
    assert daemon.run("true", options=options, env={"PATH": os.environ["PATH"]}).status == 0


# -- descriptors

def listing(daemon, fds, options=(), **rest):
    """Which of these descriptors the agent has."""
    result = daemon.run("sh", "-c", "ls /proc/$$/fd", options=options, pass_fds=fds, **rest)
    assert result.status == 0, result
    return {int(word) for word in result.out.split()} & set(fds)


def test_a_directory_or_socket_of_the_callers_does_not_reach_the_agent_unless_it_is_kept(daemon, policy):
    directory = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    first, second = socket.socketpair()
    reads, writes = os.pipe()
    fds = (directory, first.fileno(), reads)
    try:
        assert listing(daemon, fds, policy("")) == {reads}
        assert listing(daemon, fds, OBSERVE) == set(fds)
        keep = ("--keep-fd", str(directory), "--keep-fd", str(first.fileno()))
        assert listing(daemon, fds, (*policy(""), *keep)) == set(fds)
        missing = daemon.run("true", options=("--keep-fd", "77"))
        assert missing.status == 125 and b"--keep-fd 77: no such descriptor" in missing.err, missing
    finally:
        os.close(directory), os.close(reads), os.close(writes), first.close(), second.close()


def test_sockets_serve_as_standard_descriptors_and_a_directory_does_not(daemon, policy):
    ours, agents = socket.socketpair()
    with ours, agents:
        process = subprocess.Popen(daemon.run_words("cat", options=policy("")), stdin=agents, stdout=agents,
                                   stderr=subprocess.PIPE)
        ours.sendall(b"over a socket\n")
        ours.settimeout(20)
        assert ours.recv(100) == b"over a socket\n"
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(20) == 0
        process.stderr.close()
    directory = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        result = daemon.run("true", options=policy(""), stdin=directory)
    finally:
        os.close(directory)
    assert result.status == 125 and b"standard input is a directory" in result.err, result


# -- refused calls

ALWAYS = {"bpf": errno.E2BIG, "io_uring": errno.EBADF, "perf": errno.EINVAL, "keyctl": errno.EOPNOTSUPP,
          "personality": 0, "tiocsti": errno.EBADF, "family": errno.EAFNOSUPPORT}


def test_calls_that_lead_out_fail_with_eperm_whatever_the_policy(daemon, policy, try_acts):
    words = try_acts(*ALWAYS, "inet")
    assert errors(daemon.run(*words, options=policy(""))) == [errno.EPERM] * len(ALWAYS) + [0]
    assert errors(daemon.run(*words, options=OBSERVE)) == [*ALWAYS.values(), 0]
    assert errors(outside(words)) == [*ALWAYS.values(), 0]


def test_tracing_and_namespaces_are_refused_where_the_policy_says_so(daemon, policy, try_acts):
    acts = ("ptrace", "setns", "unshare", "clone_new", "clone3")
    strict = policy("linux: {seccomp: {deny_ptrace: true, deny_mount_namespace_changes: true}}\n"
                    "file_rules: [{name: all, paths: ['/**'], decision: allow}]\n")
    eperm = errno.EPERM
    assert errors(daemon.run(*try_acts(*acts), options=strict)) == [eperm, eperm, eperm, eperm, errno.ENOSYS]
    assert errors(daemon.run("sh", "-c", "exec \"$@\"", "sh", *try_acts("ptrace"), options=policy(""))) == [0]
    assert errors(outside(try_acts("ptrace", "setns"))) == [0, errno.EBADF]


def test_threads_and_processes_start_without_clone3(daemon, policy, python):
    options = policy("linux: {seccomp: {deny_mount_namespace_changes: true}}\n")
    text = ("import os, subprocess, threading\nout = []\nt = threading.Thread(target=out.append, args=(1,))\n"
            "t.start(); t.join()\nassert out == [1]\nassert subprocess.run(['sh', '-c', 'exit 3']).returncode == 3\n"
            "pid = os.fork()\nif pid == 0: os._exit(4)\nassert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4\n")
    result = daemon.run(*python(text), options=options)
    assert result.status == 0, result


def test_a_sandbox_inside_is_refused_with_eperm_where_mount_marks_judge(daemon, policy):
    result = daemon.run("unshare", "-Ur", "-m", "true", options=policy(""))
    assert result.status != 0 and b"Operation not permitted" in result.err, result
    assert daemon.run("unshare", "-Ur", "-m", "true", options=OBSERVE).status == \
        outside(["unshare", "-Ur", "-m", "true"]).status


# -- scope

def test_signals_reach_the_sessions_own_processes_and_nobody_else(daemon, policy, try_acts):
    outsider = subprocess.Popen([*as_user(UID), "sleep", "60"])
    try:
        wait_until(lambda: os.stat(f"/proc/{outsider.pid}").st_uid == UID, 5, "the outsider is the user's")
        words = try_acts(f"kill:{outsider.pid}")
        assert errors(daemon.run(*words, options=policy(""))) == [errno.EPERM]
        assert errors(daemon.run(*words, options=OBSERVE)) == [0]
        assert errors(outside(words)) == [0]
    finally:
        outsider.kill()
        outsider.wait()
    own = daemon.run("sh", "-c", "sleep 60 & kill $! && ! wait $!", options=policy(""))
    assert own.status == 0, own


# -- capabilities

def test_a_root_session_keeps_what_files_need_and_loses_what_undoes_us(daemon, policy, try_acts, work):
    words = try_acts("chown", "mknod")
    kept = daemon.run(*words, uid=0, options=("--allow-root", *policy("")), cwd=work)
    assert errors(kept) == [0, errno.EPERM]
    assert errors(outside(words, uid=0, cwd=work)) == [0, 0]
    lines = daemon.run("grep", "^Cap", "/proc/self/status", uid=0, options=("--allow-root", *policy(""))).out.decode()
    sets = {line.split(":")[0]: int(line.split()[1], 16) for line in lines.splitlines()}
    lost = [1 << n for n in (2, 8, 12, 13, 16, 17, 19, 21, 22, 27, 30, 32, 33, 34, 38, 39, 40)]
    assert all(sets[name] & bit == 0 for name in sets for bit in lost), sets
    assert sets["CapInh"] == sets["CapAmb"] == 0


# -- what the session says of it

def test_session_show_names_each_control_as_it_was_tried(daemon, policy):
    with daemon.running("sleep", "60", options=policy("linux: {seccomp: {deny_ptrace: true}}\n")) as (_, name):
        controls = {c["control"]: c for c in wait_until(
            lambda: [c for c in daemon.session(name)["controls"] if c["active"]] and daemon.session(name)["controls"],
            10, "the controls are proven")}
        assert {"call.ptrace", "call.bpf", "call.sockets", "signal"} <= controls.keys()
        assert all(c["active"] or "Landlock" in c["why"] for c in controls.values()), json.dumps(controls)
        assert controls["call.ptrace"]["mechanism"] == "seccomp"
        shown = daemon.am("session", "show", name).out.decode()
        assert "controls" in shown and "call.ptrace" in shown
    with daemon.running("sleep", "60", options=OBSERVE) as (_, name):
        assert daemon.session(name)["controls"] == []


# -- programs that must go on working

@pytest.mark.parametrize("script", [
    "git init -q r && cd r && echo a > a && git add a && git -c user.name=n -c user.email=e@x commit -qm m && git log --oneline",
    "printf 'int main(){return 0;}' > m.c && printf 'm: m.c\\n\\tcc -o m m.c\\n' > Makefile && make -s && ./m",
    "script -qec 'test -t 0 && echo terminal' /dev/null | grep -q terminal",
    "bash -c 'shopt -s expand_aliases; for i in 1 2 3; do (true) & done; wait; echo $((1+1))'",
    "python3 -c 'import multiprocessing as m; p = m.Pool(2); assert p.map(abs, [-1, -2]) == [1, 2]'",
    "python3 -c 'import socket; socket.getaddrinfo(\"localhost\", 80)'",
    "command -v gdb >/dev/null || exit 0; gdb -q -batch -ex run -ex quit /bin/true",
    "command -v strace >/dev/null || exit 0; strace -f -o /dev/null true",
    "command -v tmux >/dev/null || exit 0; tmux -L t -f /dev/null new-session -d 'sleep 30' && tmux -L t kill-server",
    "command -v node >/dev/null || exit 0; node -e 'require(\"fs\").readFile(\"/etc/passwd\", e => process.exit(e ? 1 : 0))'",
])
def test_programs_go_on_working(daemon, policy, work, script):
    result = daemon.run("sh", "-c", script, options=policy(""), cwd=work, env={**os.environ, "HOME": str(work)})
    assert result.status == 0, result
