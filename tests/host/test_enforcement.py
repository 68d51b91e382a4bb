"""What a policy stops, how the program sees it, and what is stored of it. Each act is tried without enforcement first."""
import errno
import json
import os

import pytest

from harness import UID, one, select, wait_until

BASE = "defaults: {command: allow, file_read: allow, file_write: allow, network: allow, unix_socket: allow, signal: allow}\n"


def policy(work, rules, name="p.yaml", extra=""):
    (work / name).write_text(f"version: 1\nname: p\nposture: enforce\n{BASE}{extra}{rules}")
    return ("--policy", f"./{name}")


SECRET = "file_rules: [{name: no-secret, paths: ['${WORKSPACE}/secret/**'], decision: deny, message: 'not {{.Path}}'}]\n"
NO_WRITE = ("file_rules: [{name: kept, paths: ['${WORKSPACE}/kept', '${WORKSPACE}/tree/**'], "
            "operations: [write, create, delete, rename, link, symlink, chmod, chown, mkdir, rmdir, mknod], decision: deny}]\n")

# name: (what is done, errno of the failure, kind and mechanism of the row)
READS = {
    "plain": ("open('secret/f').read()", "EPERM", "open", "fanotify"),
    "relative with dots": ("open('x/../secret/./f').read()", "EPERM", "open", "fanotify"),
    "symbolic link": ("open('link').read()", "EPERM", "open", "fanotify"),
    "hard link made before": ("open('hard').read()", "EPERM", "open", "fanotify"),
    "/proc/self/root": ("open('/proc/self/root' + os.getcwd() + '/secret/f').read()", "EPERM", "open", "fanotify"),
    "/proc/self/cwd": ("open('/proc/self/cwd/secret/f').read()", "EPERM", "open", "fanotify"),
    "O_PATH reopened": ("os.open(f'/proc/self/fd/{os.open(\"secret/f\", os.O_PATH)}', os.O_RDONLY)", "EPERM", "open", "fanotify"),
    "descriptor of the directory": ("os.open('f', os.O_RDONLY, dir_fd=os.open('secret', os.O_PATH))", "EPERM", "open", "fanotify"),
    "names in its directory": ("os.listdir('secret')", "EPERM", "open", "fanotify"),
    "names by a descriptor": ("os.listdir(os.open('x/../secret', os.O_RDONLY | os.O_DIRECTORY))", "EPERM", "open", "fanotify"),
    "made new under the name": ("os.open('secret/new', os.O_RDWR | os.O_CREAT, 0o600)", "EACCES", "create", "broker"),
    "link to it": ("os.link('secret/f', 'stolen')", "EACCES", "link", "broker"),
    "moved out": ("os.rename('secret/f', 'stolen')", "EACCES", "rename", "broker"),
    "its directory moved": ("os.rename('secret', 'moved')", "EACCES", "rename", "broker"),
    "mmap of it": ("__import__('mmap').mmap(os.open('secret/f', os.O_RDONLY), 1, prot=1)", "EPERM", "open", "fanotify"),
}

WRITES = {
    "open": ("open('kept', 'w')", "open_write"),
    "append": ("open('kept', 'a')", "open_write"),
    "read and write": ("open('kept', 'r+')", "open_write"),
    "O_TRUNC alone": ("os.open('kept', os.O_RDONLY | os.O_TRUNC)", "open_write"),
    "through a link": ("open('keptlink', 'w')", "open_write"),
    "truncate": ("os.truncate('kept', 0)", "truncate"),
    "truncate by a hard link": ("os.truncate('keptalias', 0)", "truncate"),
    "chmod by a hard link": ("os.chmod('keptalias', 0o777)", "chmod"),
    "open by a hard link": ("open('keptalias', 'r+')", "open_write", "EPERM"),
    "O_TRUNC alone by a hard link": ("os.open('keptalias', os.O_RDONLY | os.O_TRUNC)", "open_write", "EPERM"),
    "unlink": ("os.unlink('kept')", "delete"),
    "rename over": ("os.rename('other', 'kept')", "rename"),
    "rename away": ("os.rename('kept', 'gone')", "rename"),
    "hard link of it": ("os.link('kept', 'alias')", "link"),
    "chmod": ("os.chmod('kept', 0o777)", "chmod"),
    "fchmod of a reader": ("os.fchmod(os.open('kept', os.O_RDONLY), 0o777)", "chmod"),
    "chown": ("os.chown('kept', -1, os.getgid())", "chown"),
    "create": ("open('tree/new', 'x')", "create"),
    "O_TMPFILE": ("os.open('tree', os.O_TMPFILE | os.O_RDWR)", "create"),
    "mkdir": ("os.mkdir('tree/d')", "mkdir"),
    "mkfifo": ("os.mkfifo('tree/p')", "mknod"),
    "symlink": ("os.symlink('x', 'tree/l')", "symlink"),
    "rmdir": ("os.rmdir('tree/sub')", "rmdir"),
    "behind a dangling link": ("open('dangling', 'w')", "create"),
    "its parent's directory": ("os.rename('tree', 'wood')", "rename"),
}

TRY = "import os, errno, sys\ntry:\n    {act}\nexcept OSError as e:\n    print(errno.errorcode[e.errno])\nelse:\n    print('done')\n"


def lay_out(work):
    for folder in ("secret", "x", "tree", "tree/sub"):
        (work / folder).mkdir()
    (work / "secret" / "f").write_text("TOP")
    (work / "kept").write_text("kept")
    (work / "other").write_text("other")
    os.link(work / "secret" / "f", work / "hard")
    os.symlink("secret/f", work / "link")
    os.link(work / "kept", work / "keptalias")
    os.symlink("kept", work / "keptlink")
    os.symlink("tree/made", work / "dangling")
    for path in work.rglob("*"):
        os.chown(path, UID, UID, follow_symlinks=False)


@pytest.mark.parametrize("act", READS)
def test_a_file_that_may_not_be_read_is_not_read(daemon, work, python, act):
    code, error, kind, mechanism = READS[act]
    lay_out(work)
    stopped = daemon.run(*python(TRY.format(act=code)), cwd=work, options=policy(work, SECRET))
    assert stopped.out.decode().split() == [error], stopped
    rows = select(daemon.events(stopped.name), enforced=True)
    row = one(rows, kind=kind)
    assert (row["verdict"], row["mechanism"], row["errno_name"]) == ("deny", mechanism, error), row
    assert row["rule"] in ("no-secret", "another name of a protected file") and row["message"]
    free = daemon.run(*python(TRY.format(act=code)), cwd=work, options=("--policy", "observe"))
    assert free.out.decode().split() == ["done"], free  # the control


@pytest.mark.parametrize("act", WRITES)
def test_a_file_that_may_not_be_changed_is_not_changed(daemon, work, python, act):
    code, kind, error = (*WRITES[act], "EACCES")[:3]
    by_alias = "keptalias" in code
    lay_out(work)
    stopped = daemon.run(*python(TRY.format(act=code)), cwd=work, options=policy(work, NO_WRITE))
    assert stopped.out.decode().split() == [error], stopped
    row = one(select(daemon.events(stopped.name), enforced=True), kind=kind)
    assert row["rule"] == ("another name of a protected file" if by_alias else "kept"), row
    assert (row["mechanism"], row["errno_name"]) == ("fanotify" if error == "EPERM" else "broker", error), row
    assert (work / "kept").read_text() == "kept" and sorted(p.name for p in (work / "tree").iterdir()) == ["sub"]
    assert daemon.run("cat", "kept", cwd=work, options=policy(work, NO_WRITE)).out == b"kept"
    free = daemon.run(*python(TRY.format(act=code)), cwd=work, options=("--policy", "observe"))
    assert free.out.decode().split() == ["done"], free


def test_what_could_not_have_happened_anyway_is_not_blamed_on_the_policy(daemon, work, python):
    lay_out(work)
    code = "".join(TRY.format(act=act) for act in (
        "os.mkdir('tree/sub')", "os.unlink('tree/none')", "os.rename('tree/none', 'y')", "open('tree/none')",
        "os.unlink('')", "os.mkdir('/')", "os.open('kept/x', os.O_WRONLY)", "os.open('kept', os.O_CREAT | os.O_EXCL)",
        "os.rmdir('x/.')", "os.fchmod(999, 0o600)", "os.mkdir('m' * 256)", "os.mkdir('y/' * 2500)"))
    free = daemon.run(*python(code), cwd=work, options=("--policy", "observe"))
    stopped = daemon.run(*python(code), cwd=work, options=policy(work, NO_WRITE))
    assert stopped.out == free.out, (stopped.out, free.out)
    assert not select(daemon.events(stopped.name), enforced=True)


def test_the_broker_makes_what_the_kernel_would_have_made(daemon, work, python):
    """Owner, mode, umask, set-group-id directories, sticky ones: the same with and without it."""
    code = """
import os, json, stat
os.umask(0o027)
os.mkdir('d'); os.mkdir('open', 0o777); os.mkfifo('p', 0o666); os.symlink('t', 'l'); os.link('p', 'p2')
os.mkdir('sg'); os.chmod('sg', 0o2770); os.mkdir('sg/below'); open('sg/file', 'w').close(); os.chmod('sg/file', 0o4755)
os.umask(0); os.mkdir('um0', 0o1777)
os.open('tmp', os.O_CREAT | os.O_WRONLY, 0o640)
fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600); os.link(f'/proc/self/fd/{fd}', 'named', src_dir_fd=fd)
os.truncate('tmp', 77); os.ftruncate(os.open('tmp', os.O_RDWR), 33)
os.makedirs('a/b/c'); os.chdir('a/b'); os.rename('c', '../e'); os.mkdir('../../rel'); os.chdir('../..')
rows = {}
for base, dirs, files in os.walk('.'):
    for name in dirs + files:
        st = os.lstat(os.path.join(base, name))
        rows[os.path.join(base, name)] = [oct(st.st_mode), st.st_uid, st.st_gid, st.st_nlink, st.st_size if stat.S_ISREG(st.st_mode) else 0]
print(json.dumps(rows, sort_keys=True))
"""
    results = []
    for name, options in (("one", ("--policy", "observe")), ("two", policy(work, NO_WRITE))):
        (work / name).mkdir()
        os.chown(work / name, UID, UID)
        (work / name / "p.yaml").write_text((work / "p.yaml").read_text() if (work / "p.yaml").exists() else "")
        (work / name / "p.yaml").chmod(0o644)
        results.append(daemon.run(*python(code), cwd=work / name, options=options))
    assert results[0].status == results[1].status == 0, results
    first, second = (json.loads(r.out) for r in results)
    for rows in (first, second):
        rows.pop("./p.yaml", None)
    assert first == second


def test_programs_are_stopped_by_path_by_name_and_by_their_arguments(daemon, work, python):
    rules = ("command_rules:\n  - {name: no-id, commands: [/usr/bin/id], decision: deny}\n"
             "  - {name: no-touch, commands: [touch], args: ['--reference=x'], decision: deny}\n")
    for argv, expected in ((["id"], 126), (["env", "id"], 126), (["sh", "-c", "/usr/bin/../bin/id"], 126),
                           (["touch", "--reference=x", "y"], 126), (["touch", "y"], 0), (["true"], 0)):
        result = daemon.run(*argv, cwd=work, options=policy(work, rules))
        assert result.status == expected, (argv, result)
        rows = select(daemon.events(result.name), kind="exec", enforced=True)
        assert bool(rows) == (expected == 126), (argv, rows)
        for row in rows:
            assert row["errno_name"] == "EACCES" and row["rule"] in ("no-id", "no-touch"), row
    assert daemon.run("id", cwd=work, options=("--policy", "observe")).status == 0


def test_a_copy_of_a_program_that_may_not_run_does_not_run(daemon, work):
    rules = ("command_rules:\n  - {name: no-id, commands: [/usr/bin/id], decision: deny}\n"
             "  - {name: no-touch, commands: [touch], args: ['--reference=x'], decision: deny}\n")
    for name in ("id", "touch", "true"):
        (work / f"my{name}").write_bytes(open(f"/usr/bin/{name}", "rb").read())
        (work / f"my{name}").chmod(0o755)
    for argv, rule in ((["./myid"], "no-id"), (["./mytouch", "--reference=x", "y"], "no-touch"),
                       (["./mytouch", "y"], None), (["./mytrue"], None)):
        result = daemon.run(*argv, cwd=work, options=policy(work, rules))
        assert result.status == (126 if rule else 0), (argv, result)
        rows = select(daemon.events(result.name), kind="exec", enforced=True)
        if not rule:
            assert rows == []
            continue
        row = one(rows)
        assert (row["rule"], row["mechanism"], row["errno_name"]) == (rule, "fanotify", "EPERM"), row
        assert "is a copy of /usr/bin/" in row["message"], row
    assert daemon.run("./myid", cwd=work, options=("--policy", "observe")).status == 0


def test_a_copy_that_a_dynamic_loader_is_given_is_judged_as_the_original(daemon, work):
    rules = "command_rules:\n  - {name: no-id, commands: [/usr/bin/id], decision: deny}\n"
    loader = "/lib64/ld-linux-x86-64.so.2"
    for name, source in (("myid", "/usr/bin/id"), ("mytrue", "/usr/bin/true"), ("myld", loader)):
        (work / name).write_bytes(open(source, "rb").read())
        (work / name).chmod(0o755)
    for program in (loader, "./myld"):
        for words in ([program, "./myid"], [program, "--argv0", "true", "./myid"]):
            stopped = daemon.run(*words, cwd=work, options=policy(work, rules))
            assert stopped.status == 126, (words, stopped)
            row = one(select(daemon.events(stopped.name), kind="exec", enforced=True))
            assert (row["rule"], row["mechanism"], row["errno_name"]) == ("no-id", "notify", "EACCES"), row
            assert "is a copy of /usr/bin/id" in row["message"], row
            assert daemon.run(*words, cwd=work, options=("--policy", "observe")).status == 0, words
        assert daemon.run(program, "./mytrue", cwd=work, options=policy(work, rules)).status == 0, program


@pytest.mark.parametrize("how", ["memfd", "unlinked"])
@pytest.mark.parametrize("by_loader", [False, True])
def test_a_program_without_a_name_does_not_run(daemon, work, python, how, by_loader):
    make = {"memfd": "fd = os.memfd_create('m')\n", "unlinked": "fd = os.open('gone', os.O_RDWR | os.O_CREAT, 0o755)\nos.unlink('gone')\n"}
    words = "['/lib64/ld-linux-x86-64.so.2', name]" if by_loader else "[name]"
    code = ("import os\n" + make[how] + "os.write(fd, open('/bin/true', 'rb').read())\n"
            "os.set_inheritable(fd, True)\nread = os.open(f'/proc/self/fd/{fd}', os.O_RDONLY)\nos.close(fd)\n"
            "os.set_inheritable(read, True)\nname = f'/proc/self/fd/{read}'\n"
            f"try: os.execv({words}[0], {words})\nexcept OSError as e: raise SystemExit(e.errno)")
    rules = "command_rules:\n  - {name: no-id, commands: [/usr/bin/id], decision: deny}\n"
    stopped = daemon.run(*python(code), cwd=work, options=policy(work, rules))
    assert stopped.status == errno.EACCES, stopped
    row = one(select(daemon.events(stopped.name), kind="exec", enforced=True))
    assert (row["rule"], row["mechanism"], row["errno_name"]) == ("nameless programs", "notify", "EACCES"), row
    assert daemon.run(*python(code), cwd=work, options=("--policy", "observe")).status == 0


def test_a_program_that_is_denied_by_its_file_runs_by_no_other_way(daemon, work, python):
    rules = "command_rules: [{name: none-here, commands: ['${WORKSPACE}/**'], decision: deny}]\n"
    for name in ("prog", "script"):
        path = work / name
        path.write_bytes(open("/bin/true", "rb").read() if name == "prog" else b"#!/bin/sh\n")
        path.chmod(0o755)
    tries = {"by path": ["./prog"], "script": ["./script"], "loader": ["/lib64/ld-linux-x86-64.so.2", "./prog"],
             "memfd": python("import os\nfd = os.memfd_create('m')\nos.write(fd, open('/bin/true', 'rb').read())\n"
                             "os.execve(fd, ['x'], {})"),
             "thread": python("import os, threading\nok = []\ndef go():\n try: os.execv('./prog', ['prog'])\n"
                              " except PermissionError: ok.append(1)\nt = threading.Thread(target=go); t.start(); t.join()\n"
                              "raise SystemExit(126 if ok else 0)")}
    for how, argv in tries.items():
        stopped = daemon.run(*argv, cwd=work, options=policy(work, rules))
        assert stopped.status != 0, (how, stopped)
        assert select(daemon.events(stopped.name), kind="exec", enforced=True), how
        assert daemon.run(*argv, cwd=work, options=("--policy", "observe")).status == 0, how


def test_a_name_that_changes_between_asking_and_opening_gains_nothing(daemon, work, python):
    """A thread swaps a link all the time: what is opened is judged, not what was named."""
    lay_out(work)
    code = """
import os, threading, time
stop = False
def swap():
    while not stop:
        for target in ('other', 'kept'):
            try: os.symlink(target, 'swap.new'); os.rename('swap.new', 'swap')
            except OSError: pass
os.symlink('other', 'swap')
thread = threading.Thread(target=swap); thread.start()
good = 0
for i in range(2000):
    try:
        with open('swap', 'r+') as f: f.write('X'); good += 1
    except OSError: pass
stop = True; thread.join()
print(good > 0, open('kept').read())
"""
    stopped = daemon.run(*python(code), cwd=work, options=policy(work, NO_WRITE), timeout=120)
    assert stopped.out.decode().split() == ["True", "kept"], stopped
    (work / "swap").unlink()
    lay = daemon.run(*python(code.replace("range(2000)", "range(4000)")), cwd=work, options=("--policy", "observe"), timeout=120)
    assert lay.out.decode().split()[1] != "kept", lay  # the control: without enforcement the race is won


def test_a_policy_that_cannot_be_enforced_is_refused_and_best_effort_runs(daemon, work):
    rules = "file_rules: [{name: no-look, paths: ['${WORKSPACE}/secret/**'], operations: [stat], decision: deny}]\n"
    refused = daemon.run("touch", "ran", cwd=work, options=policy(work, rules))
    assert refused.status == 125 and b"no-look" in refused.err and b"best_effort" in refused.err, refused
    assert not (work / "ran").exists()
    runs = daemon.run("touch", "ran", cwd=work, options=policy(work, rules, extra="enforcement: best_effort\n"))
    assert runs.status == 0 and (work / "ran").exists(), runs


def test_why_tells_agent_and_user_what_was_stopped(daemon, work):
    lay_out(work)
    am = f"{daemon.bin}/agentmon --socket {daemon.socket}"
    result = daemon.run("sh", "-c", f"cat secret/f; {am} why; {am} why --json", cwd=work, options=policy(work, SECRET))
    text, row = result.out.decode().rsplit("\n{", 1)[0], json.loads("{" + result.out.decode().rsplit("\n{", 1)[1])
    for words in (f"open {work}/secret/f: Operation not permitted", f"no-secret, {work}/p.yaml:5", f"not {work}/secret/f", "cat, pid"):
        assert words in text, result
    assert row["rule"] == "no-secret" and row["session"] == daemon.session(result.name)["id"]
    named = json.loads(daemon.am("why", "--session", result.name, "--json", uid=UID).out)
    assert named["session"] == row["session"]
    assert daemon.am("why", "--session", "none-of-this-name", uid=UID).status != 0
    outside = daemon.am("why", uid=UID)
    assert outside.status == 0 and b"no-secret" in outside.out
    nothing = daemon.run("sh", "-c", f"cat /nonexistent; {am} why", cwd=work, options=policy(work, SECRET))
    assert nothing.status == 1 and b"nothing was stopped" in nothing.err


def test_a_file_that_the_session_wrote_is_asked_about_once(daemon, work, python):
    lay_out(work)
    code = "import os\nopen('x/own', 'w').write('1')\nfor _ in range(3): open('x/own').read()\nopen('x/own', 'a').write('2')\n"
    ran = daemon.run(*python(code), cwd=work, options=policy(work, SECRET))
    assert ran.status == 0, ran
    rows = [row for row in daemon.events(ran.name) if row.get("path") == str(work / "x" / "own")]
    assert [(row["kind"], row["count"]) for row in rows if row["kind"] != "write"] == \
        [("create", 1), ("open", 1), ("open_write", 1)], rows


def test_a_policy_switch_reaches_files_that_were_allowed_and_cached(daemon, work):
    lay_out(work)
    loop = "while :; do cat secret/f >/dev/null 2>&1 && echo y || echo n; sleep 0.05; done > x/log"
    with daemon.running("sh", "-c", loop, cwd=work, options=policy(work, "", "open.yaml")) as (_, name):
        log = work / "x" / "log"
        last = lambda: log.exists() and log.read_text().split()[-1:]  # noqa: E731
        wait_until(lambda: last() == ["y"], 10, "it reads")
        policy(work, SECRET)
        assert daemon.am("session", "set-policy", name, "--policy", str(work / "p.yaml"), uid=UID, cwd=work).status == 0
        wait_until(lambda: last() == ["n"], 10, "it is stopped")
        assert daemon.am("session", "set-policy", name, "--policy", str(work / "open.yaml"), uid=UID, cwd=work).status == 0
        wait_until(lambda: last() == ["y"], 10, "it reads again")


def test_without_a_daemon_what_is_asked_is_denied(own_daemon, work):
    lay_out(work)
    loop = "while [ ! -e stop ]; do cat other; cat secret/f 2>/dev/null || echo denied; done > x/log"
    with own_daemon.running("sh", "-c", loop, cwd=work, options=policy(work, SECRET)) as (process, _):
        log = work / "x" / "log"
        wait_until(lambda: log.exists() and b"other" in log.read_bytes(), 10, "it reads")
        own_daemon.kill()
        before = (work / "x" / "log").read_bytes().count(b"denied")
        # One of these may have been answered before the end; the others had nobody to ask.
        wait_until(lambda: (work / "x" / "log").read_bytes().count(b"denied") > before + 2, 20, "it is denied")
        (work / "stop").touch()
        process.wait(20)
        assert b"TOP" not in (work / "x" / "log").read_bytes()
        own_daemon.start()
