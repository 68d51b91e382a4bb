"""An exec runs with the arguments that were judged, or not at all; and honest ones are never killed."""
import json
import os
import threading

import pytest

from harness import UID, select, wait_until

BASE = "version: 1\nname: p\nposture: enforce\ndefaults: {command: allow, file_read: allow, file_write: allow, network: allow, unix_socket: allow, signal: allow}\n"
RULE = "command_rules: [{name: no-touch, commands: [touch], args: ['--reference=x'], decision: deny}]\n"


@pytest.fixture
def enforced(work):
    (work / "p.yaml").write_text(BASE + RULE)
    return ("--policy", "./p.yaml")


TRIES = os.environ.get("AGENTMON_RACE_TRIES", "2000")  # 10,000 by hand

# What becomes of each try; a child ends with 77 where its exec fails.
TALLY = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static int effects, killed, refused, ran;
static void tally(pid_t pid) {
  int status;
  waitpid(pid, &status, 0);
  if (access("effect", F_OK) == 0) { ++effects; unlink("effect"); }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ++killed;
  else if (WEXITSTATUS(status) == 77) ++refused;
  else ++ran;
}
static int tell(void) {
  printf("{\"effects\": %d, \"killed\": %d, \"refused\": %d, \"ran\": %d}\n", effects, killed, refused, ran);
  return 0;
}
"""

# A thread turns argv[1] over all the time, in memory that the child shares; --ok makes touch fail before it does anything.
RACE = TALLY + r"""
static char *volatile *argv_;
static volatile int stop;
static void *turn(void *unused) {
  while (!stop) { argv_[1] = "--reference=x"; for (volatile int i = 0; i < 200; ++i); argv_[1] = "--ok"; for (volatile int i = 0; i < 200; ++i); }
  return 0;
}
int main(int argc, char **argv) {
  int tries = atoi(argv[1]);
  int use_vfork = argc > 2;
  argv_ = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  argv_[0] = "touch"; argv_[1] = "--ok"; argv_[2] = "effect"; argv_[3] = 0;
  pthread_t thread;
  pthread_create(&thread, 0, turn, 0);
  freopen("/dev/null", "w", stderr);
  for (int i = 0; i < tries; ++i) {
    pid_t pid = use_vfork ? vfork() : fork();
    if (pid == 0) { execv("/usr/bin/touch", (char **)argv_); _exit(77); }
    tally(pid);
  }
  stop = 1;
  pthread_join(thread, 0);
  return tell();
}
"""


@pytest.mark.parametrize("how", ["fork", "vfork"])
def test_arguments_that_are_rewritten_while_they_are_judged_never_run(daemon, work, cc, enforced, how):
    (work / "x").touch()
    words = [cc("exec_race", RACE), TRIES, *(["vfork"] if how == "vfork" else [])]
    result = daemon.run(*words, cwd=work, options=enforced, timeout=1200)
    counts = json.loads(result.out)
    print(counts)
    assert counts["effects"] == 0 and counts["refused"] > 0 and counts["ran"] > 0, counts
    assert counts["killed"] > 0, counts  # in the kernel the race was won
    rows = select(daemon.events(result.name, seconds=60), kind="exec", mechanism="verifier")
    assert rows and sum(int(r["count"]) for r in rows) == counts["killed"], (len(rows), counts)
    for row in rows:
        assert (row["verdict"], row["rule"]) == ("deny", "arguments changed after they were judged"), row
    free = json.loads(daemon.run(words[0], "100", *words[2:], cwd=work, options=("--policy", "observe"), timeout=240).out)
    assert free["effects"] > 0 and free["killed"] == 0, free  # the control


# A link is turned from a program to a file of memory and back all the time.
NAMELESS = TALLY + r"""
static volatile int stop;
static char memory[64];
static void *turn(void *unused) {
  const char *to[] = {"/bin/true", memory};
  for (int i = 0; !stop; ++i) { if (symlink(to[i & 1], "swap.new") == 0) rename("swap.new", "swap"); }
  return 0;
}
int main(int argc, char **argv) {
  char piece[65536];
  int from = open("/usr/bin/touch", O_RDONLY), fd = memfd_create("m", 0);
  for (ssize_t n; (n = read(from, piece, sizeof(piece))) > 0;) if (write(fd, piece, n) != n) return 1;
  int readable;
  snprintf(memory, sizeof(memory), "/proc/self/fd/%d", fd);
  readable = open(memory, O_RDONLY);
  snprintf(memory, sizeof(memory), "/proc/self/fd/%d", readable);
  close(fd);
  if (symlink("/bin/true", "swap")) return 1;
  pthread_t thread;
  pthread_create(&thread, 0, turn, 0);
  for (int i = 0; i < atoi(argv[1]); ++i) {
    pid_t pid = fork();
    if (pid == 0) { execl("./swap", "swap", "effect", (char *)0); _exit(77); }
    tally(pid);
  }
  stop = 1;
  pthread_join(thread, 0);
  return tell();
}
"""


def test_a_file_of_memory_that_a_name_comes_to_mean_while_it_is_judged_never_runs(daemon, work, cc, enforced):
    program = cc("nameless_race", NAMELESS)
    result = daemon.run(program, TRIES, cwd=work, options=enforced, timeout=1200)
    counts = json.loads(result.out)
    print(counts)
    assert counts["effects"] == 0 and counts["ran"] > 0 and counts["killed"] > 0, counts
    rows = select(daemon.events(result.name, seconds=60), kind="exec", mechanism="verifier")
    assert rows and sum(int(r["count"]) for r in rows) == counts["killed"], (len(rows), counts)
    assert {(r["verdict"], r["rule"]) for r in rows} == {("deny", "nameless programs")}, rows
    (work / "swap").unlink()
    free = json.loads(daemon.run(program, "100", cwd=work, options=("--policy", "observe"), timeout=240).out)
    assert free["effects"] > 0 and free["killed"] == 0, free  # the control


def script(work, name, text):
    path = work / name
    path.write_text(text)
    path.chmod(0o755)
    os.chown(path, UID, UID)
    return str(path)


HONEST = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/syscall.h>
#include <unistd.h>
extern char **environ;
static char *empty[] = {0}, *plain[] = {"true", "a", "", "b", 0}, *longs[] = {"true", 0, 0};
static void *exec_it(void *argv) { execv("/bin/true", argv); _exit(70); }
static int kind;
static int child(void) {
  pthread_t thread;
  switch (kind) {
    case 0: execv("/bin/true", plain); break;
    case 1: execv("/bin/true", empty); break;
    case 2: execv("/bin/true", longs); break;
    case 3: pthread_create(&thread, 0, exec_it, plain); pthread_join(thread, 0); break;
    case 4: syscall(SYS_execveat, open("/bin/true", O_PATH), "", plain, environ, AT_EMPTY_PATH); break;
    case 5: execv("/nonexistent", plain); execvp("true", plain); break;
  }
  return 71;
}
int main(void) {
  longs[1] = malloc(100001);
  memset(longs[1], 'a', 100000);
  longs[1][100000] = 0;
  for (kind = 0; kind < 8; ++kind)
    for (int i = 0; i < 20; ++i) {
      pid_t pid;
      int status;
      if (kind == 6) { if (posix_spawn(&pid, "/bin/true", 0, 0, plain, environ)) return 1; }
      else if (kind == 7) { pid = vfork(); if (pid == 0) { execv("/bin/true", plain); _exit(72); } }
      else { pid = fork(); if (pid == 0) _exit(child()); }
      waitpid(pid, &status, 0);
      if (status) { printf("kind %d: %x\n", kind, status); return 1; }
    }
  puts("all");
  return 0;
}
"""


def test_every_honest_way_of_starting_a_program_goes_on(daemon, work, cc, enforced):
    result = daemon.run(cc("exec_honest", HONEST), cwd=work, options=enforced, timeout=120)
    assert result.out == b"all\n", result
    assert not select(daemon.events(result.name), enforced=True)


def test_honest_scripts_go_on(daemon, work, enforced):
    first = script(work, "first", "#!/bin/sh\nprintf '%s.' \"$@\"\n")
    words = {
        "sh": first,
        "with an option": script(work, "option", "#!/bin/sh -e\nprintf '%s.' \"$@\"\n"),
        "python": script(work, "python", "#!/usr/bin/python3 -IS\nimport sys\nprint(*(sys.argv[1:] or ['']), '', sep='.', end='')\n"),
        "env": script(work, "env", "#!/usr/bin/env sh\nprintf '%s.' \"$@\"\n"),
        "env -S": script(work, "env_s", "#!/usr/bin/env -S sh -e\nprintf '%s.' \"$@\"\n"),
        "nested": script(work, "nested", f"#!{first}\n"),
        "nested twice": script(work, "twice", f"#!{work}/nested word\n"),
    }
    before = {"nested": f"{work}/nested.", "nested twice": f"{work}/nested.word.{work}/twice."}
    for how, path in words.items():
        for argv in (["a", "b c", ""], [], ["x" * 100_000]):
            result = daemon.run(path, *argv, cwd=work, options=enforced)
            expected = before.get(how, "") + "".join(f"{word}." for word in argv or ([""] if how not in before else []))
            assert result.out.decode() == expected, (how, argv, result)
            assert not select(daemon.events(result.name), enforced=True), how
    relative = daemon.run("sh", "-c", "./first a; cd /; PATH=$OLDPWD:$PATH; first b; exec first c", cwd=work, options=enforced)
    assert relative.out == b"a.b.c.", relative


STORM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int count = atoi(argv[1]), bad = 0;
  for (int lane = 0; lane < 4; ++lane) {
    if (fork()) continue;
    for (int i = 0; i < count / 4; ++i) {
      char number[32];
      int status;
      sprintf(number, "%d", i);
      pid_t pid = fork();
      if (pid == 0) { execl(argv[2], argv[2], number, "word", (char *)0); _exit(127); }
      waitpid(pid, &status, 0);
      bad |= status != 0;
    }
    _exit(bad);
  }
  for (int lane = 0, status; lane < 4; ++lane) { wait(&status); bad |= status; }
  puts(bad ? "bad" : "good");
  return 0;
}
"""


def test_in_a_storm_of_20000_execs_none_is_killed(daemon, work, cc, enforced):
    result = daemon.run(cc("exec_storm", STORM), "20000", cc("exec_nothing", "int main(void) { return 0; }"), cwd=work, options=enforced, timeout=400)
    assert result.out == b"good\n", result
    assert not select(daemon.timeline("--kind", "exec", "--limit", "100000", session=result.name), enforced=True)


def test_over_kills_of_the_daemon_no_honest_exec_is_killed(own_daemon, work, python, enforced):
    code = """
import os
ran = refused = killed = 0
open('began', 'w').close()
while not os.path.exists('stop'):
    try: pid = os.posix_spawn('/bin/true', ['true', str(ran)], {})
    except PermissionError: refused += 1; continue
    status = os.waitpid(pid, 0)[1]
    ran += status == 0; killed += os.WIFSIGNALED(status)
print(ran > 20, killed)
"""
    result = []
    run = threading.Thread(target=lambda: result.append(own_daemon.run(*python(code), cwd=work, options=enforced, timeout=120)))
    run.start()
    try:
        wait_until(lambda: (work / "began").exists(), 20, "it runs")
        for _ in range(5):
            own_daemon.kill()
            own_daemon.start()
    finally:
        (work / "stop").touch()
        run.join()
    assert result[0].out.decode().split() == ["True", "0"], result


def test_after_the_daemon_was_killed_arguments_are_verified_again(own_daemon, work, cc, enforced):
    (work / "x").touch()
    race = cc("exec_race", RACE)
    os.mkfifo(work / "fifo")
    (work / "fifo").chmod(0o644)
    with own_daemon.running("sh", "-c", f"read x < fifo; {race} 500 > result", cwd=work, options=enforced) as (process, _):
        own_daemon.kill()
        own_daemon.start()
        (work / "fifo").write_text("go\n")
        assert process.wait(120) == 0
    counts = json.loads((work / "result").read_text())
    assert counts["effects"] == 0 and counts["killed"] > 0, counts
