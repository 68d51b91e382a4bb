"""Policies from end to end: what is judged, by which layer, and how it changes under running sessions."""
import json
import os
import socket
import subprocess

import pytest

from harness import OTHER_UID, UID, one, select, wait_until

DENY_SRV = """version: 1
name: company
file_rules:
  - name: no-data
    paths: ["{path}/**"]
    decision: {decision}
"""


def write_file(path, text):
    """As an editor does: a new file takes the place of the old one."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.chmod(0o644)
    fresh.rename(path)


def denied(rows, **fields):
    return select(rows, verdict="deny", **fields)


@pytest.fixture
def judging(own_daemon):
    """A daemon with the policy `default` whose floor denies what lies in `secret`."""
    own_daemon.config.write_text(own_daemon.config.read_text().replace("default_policy: observe", "default_policy: default"))
    secret = own_daemon.base / "secret"
    secret.mkdir(mode=0o755)
    os.chown(secret, UID, UID)
    write_file(own_daemon.floor / "10-company.yaml", DENY_SRV.format(path=secret, decision="deny"))
    own_daemon.restart()
    own_daemon.secret = secret
    return own_daemon


def test_the_default_policy_stops_and_says_by_which_rule(daemon, work):
    result = daemon.run("sh", "-c", "mkdir -p .git/hooks; (echo x > .git/hooks/pre-commit); git push --force;"
                        " : > notes.txt; (echo SECRET=1 > .env); env git -C . push origin +main; true", cwd=work,
                        options=("--policy", "default"))
    assert result.status == 126, result  # the whole script: a command in it is asked, and nobody is there
    result = daemon.run("sh", "-c", "mkdir -p .git/hooks; (echo x > .git/hooks/pre-commit); ./push; : > notes.txt;"
                        " (echo SECRET=1 > .env); true", cwd=self_made(work), options=("--policy", "default"))
    assert result.status == 0, result
    assert not (work / ".env").exists() and not (work / ".git/hooks/pre-commit").exists()
    rows = daemon.events(result.name)
    env = one(denied(rows, kind="create", path=f"{work}/.env"))
    assert (env["rule"], env["enforced"], env["layer"], env["errno_name"]) == ("secret-files", True, "base: default", "EACCES")
    assert env["rule_file"] == "built-in/default.yaml" and env["rule_line"] > 0
    assert one(rows, kind="create", path=f"{work}/.git/hooks/pre-commit")["verdict"] == "ask"
    pushes = select(rows, kind="exec", rule="git-force-push")
    # Once for each directory of PATH that has it.
    assert {tuple(p["argv"]) for p in pushes} == {("git", "push", "--force")} and pushes[0]["enforced"], pushes
    plain = one(rows, kind="create", path=f"{work}/notes.txt")
    assert plain["verdict"] == "allow" and "rule" not in plain
    assert not any("verdict" in r for r in select(rows, kind="exit") + select(rows, kind="fork"))
    shown = daemon.timeline("--verdict", "deny", session=result.name)
    assert [r["seq"] for r in shown] == [r["seq"] for r in denied(rows)]
    table = daemon.am("timeline", "--session", result.name, "--verdict", "deny").out.decode()
    assert f"[deny by secret-files built-in/default.yaml:{env['rule_line']}, EACCES]" in table


def self_made(work):
    """A program that starts another in a way that no look at its own arguments shows."""
    (work / "push").write_text("#!/usr/bin/python3\nimport os\nos.execvp('g' + 'it', ['git', 'push', '--force'])\n")
    (work / "push").chmod(0o755)
    return work


def test_a_session_lists_what_enforces_each_rule_and_says_once_what_nothing_does(daemon):
    result = daemon.run("true", options=("--policy", "default"))
    rows = daemon.events(result.name)
    assert "recorded and not enforced" in one(rows, kind="session", change="not_enforced")["detail"]
    with daemon.running("sleep", "60", options=("--policy", "default")) as (_, name):
        policy = daemon.session(name)["policy"]
        assert [layer["kind"] for layer in policy["layers"]] == ["builtin", "base"]
        how = {r["rule"]: (r["enforced"], r.get("mechanism")) for r in policy["rules"]}
        assert how["git-force-push"] == ("kernel", "fanotify, notify")
        assert how["secrets-of-the-user"] == ("kernel", "fanotify, broker")
        assert how["metadata-names"] == ("kernel", "cgroup_bpf, resolver")
        lacking = [r for r in policy["rules"] if r["file"] != "built-in" and r["enforced"] in ("none", "observed")]
        assert policy["not_enforced"] == len(lacking) > 0
        assert daemon.status()["sessions_not_enforced"] >= 1


def test_a_file_of_the_users_is_the_base_and_every_further_one_tightens(daemon, work):
    (work / "open.yaml").write_text("version: 1\nname: open\ndefaults: {file_write: allow, command: allow}\n")
    (work / "tight.yaml").write_text(
        "version: 1\nname: tight\nfile_rules:\n  - {name: no-x, paths: ['${WORKSPACE}/x'], decision: deny}\n"
        "  - {name: all, paths: ['/**'], decision: allow}\n")
    result = daemon.run("sh", "-c", "(: > x); : > y; : > .env", cwd=work,
                        options=("--policy", "./open.yaml", "--policy", "./tight.yaml"))
    assert result.status == 0 and not (work / "x").exists() and (work / ".env").exists(), result
    rows = daemon.events(result.name)
    row = one(denied(rows, kind="create"))
    assert (row["path"], row["rule"], row["rule_file"], row["rule_line"]) == (f"{work}/x", "no-x", f"{work}/tight.yaml", 4)
    strict = daemon.run("true", cwd=work, options=("--policy", "strict"))
    assert "base: strict" in [layer["name"] for layer in daemon.session(strict.name)["policy"]["layers"]]


def test_a_broken_file_starts_nothing_and_every_mistake_is_named(daemon, work):
    (work / "bad.yaml").write_text("version: 1\nname: bad\nposture: enforced\nfile_rules:\n"
                                   "  - {name: a, pths: [/x], decision: deny}\n  - {name: b, paths: [/y], decision: dny}\n")
    result = daemon.run("touch", "ran", cwd=work, options=("--policy", "./bad.yaml"))
    assert result.status == 125 and not (work / "ran").exists()
    lines = result.err.decode().splitlines()
    for place in ("bad.yaml:3:", "bad.yaml:5:", "bad.yaml:6:"):
        assert any(place in line for line in lines), lines
    assert all(line.startswith("agentmon: ") for line in lines)
    missing = daemon.run("true", options=("--policy", "no-such-policy"))
    assert missing.status == 125 and b"strict" in missing.err, missing
    undefined = work / "undefined.yaml"
    undefined.write_text("version: 1\nname: u\ndefaults: {command: allow}\nfile_rules: [{name: a, paths: ['${NOT_SET}/x'], decision: deny}]\n")
    result = daemon.run("true", options=("--policy", str(undefined)))
    assert result.status == 125 and b"NOT_SET" in result.err
    set_ = daemon.run("sh", "-c", ": > $NOT_SET/x", options=("--policy", str(undefined)),
                      env={**os.environ, "NOT_SET": str(work)})
    assert one(denied(daemon.events(set_.name), kind="create", path=f"{work}/x"))["rule"] == "a"


@pytest.mark.parametrize("how", [
    "posture: monitor", "enforcement: best_effort", "posture: warn", "nested: allow",
    "defaults: {file_read: allow, file_write: allow, command: allow, network: allow, unix_socket: allow, signal: allow}",
    "transparent_commands: {remove: [sh, env]}",
    "file_rules: [{name: all, paths: ['/**', '**'], decision: allow}]",
    "variables",
])
def test_nothing_that_a_user_says_switches_the_floor_off(judging, work, how):
    text = "" if how == "variables" else how
    if "defaults" not in text:
        text += "\ndefaults: {command: allow, file_write: allow}"
    (work / "p.yaml").write_text(f"version: 1\nname: p\n{text}\n")
    env = dict(os.environ)
    if how == "variables":
        env.update(HOME="/", WORKSPACE="/", PROJECT_ROOT="/", USER="root", AGENTMON_FLOOR="off", AGENTMON_POLICY="observe")
    for file, options in (("a", ("--policy", "./p.yaml")), ("b", ("--policy", "observe", "--policy", "./p.yaml"))):
        result = judging.run("sh", "-c", f": > {judging.secret}/{file}", cwd=work, options=options, env=env)
        assert result.status == 2 and not os.path.exists(judging.secret / file), result
        row = one(denied(judging.events(result.name), kind="create"))
        assert (row["rule"], row["layer"], row["enforced"]) == ("no-data", "floor: company", True)


def touches(judging, work, name, file):
    """Has the running agent touch a file below `secret`; the row of it."""
    (work / "todo").write_text(file)
    path = f"{judging.secret}/{file}"
    rows = judging.events(name, until=lambda rows: select(rows, kind="create", path=path))
    return select(rows, kind="create", path=path)[0]


LOOP = "while :; do if [ -s todo ]; then f=$(cat todo); rm todo; touch {secret}/$f; fi; sleep 0.05; done"


def test_a_change_of_a_file_reaches_running_sessions_and_a_bad_one_changes_nothing(judging, work):
    with judging.running("sh", "-c", LOOP.format(secret=judging.secret), cwd=work) as (_, name):
        assert touches(judging, work, name, "a")["verdict"] == "deny"
        write_file(judging.floor / "10-company.yaml", DENY_SRV.format(path=judging.secret, decision="ask"))
        judging.events(name, until=lambda rows: select(rows, kind="session", change="policy_changed"))
        assert touches(judging, work, name, "b")["verdict"] == "ask"

        write_file(judging.floor / "10-company.yaml", "version: 1\nname: company\nfile_rules: [{nam: x}]\n")
        rows = judging.events(name, until=lambda rows: select(rows, kind="session", change="policy_rejected"))
        assert "10-company.yaml:3:" in select(rows, change="policy_rejected")[0]["detail"]
        assert touches(judging, work, name, "c")["verdict"] == "ask"
        warnings = judging.status()["warnings"]
        assert any("still in force" in w for w in warnings) and any("10-company.yaml:3:" in w for w in warnings)
        reload = judging.am("policy", "reload")
        assert reload.status == 1 and b"10-company.yaml:3:" in reload.err and b"still in force" in reload.err

        (judging.floor / "10-company.yaml").unlink()
        wait_until(lambda: not judging.status()["warnings"], 10, "the warning goes")
        assert touches(judging, work, name, "d")["verdict"] == "allow"
        assert judging.am("policy", "reload").out == b"nothing has changed\n"
        write_file(judging.floor / "20.yaml", DENY_SRV.format(path=judging.secret, decision="deny"))
        judging.process.send_signal(1)  # what systemctl reload does
        wait_until(lambda: judging.status()["floor"] == [f"{judging.floor}/20.yaml"], 10, "the new floor")
        assert touches(judging, work, name, "e")["verdict"] == "deny"


def test_the_owner_gives_a_running_session_another_policy_and_it_outlives_the_daemon(judging, work):
    (work / "tight.yaml").write_text(
        "version: 1\nname: tight\nfile_rules: [{name: no-ask, paths: ['/**'], operations: [create], decision: ask}]\n"
        "defaults: {command: allow}\n")
    with judging.running("sh", "-c", LOOP.format(secret=judging.secret), cwd=work) as (_, name):
        other = judging.am("session", "set-policy", name, "--policy", "observe", uid=OTHER_UID)
        assert other.status == 1 and b"no running session" in other.err, other
        own = judging.new_name()
        inside = judging.run("sh", "-c", f"{judging.bin}/agentmon --socket {judging.socket} session set-policy {own}"
                             " --policy observe; true", name=own)
        assert b"inside a session" in inside.err, inside
        done = judging.am("session", "set-policy", name, "--policy", str(work / "tight.yaml"), uid=UID)
        assert done.status == 0 and b"tight" in done.out, done
        assert touches(judging, work, name, "a")["rule"] == "no-data"  # the floor holds
        judging.kill()
        judging.start()
        assert "base: tight" in [layer["name"] for layer in judging.session(name)["policy"]["layers"]]
        (work / "env.yaml").write_text("version: 1\nname: e\nenv_policy: {deny: ['AWS_*']}\n")
        needs = judging.am("session", "set-policy", name, "--policy", str(work / "env.yaml"), uid=UID)
        assert needs.status == 1 and b"needs a new session" in needs.err and b"env" in needs.err, needs
        assert "base: tight" in [layer["name"] for layer in judging.session(name)["policy"]["layers"]]


def test_a_floor_whose_directory_is_gone_stays_until_it_is_put_back(judging, work):
    with judging.running("sh", "-c", LOOP.format(secret=judging.secret), cwd=work) as (_, name):
        away = judging.floor.with_name("away")
        judging.floor.rename(away)
        reload = judging.am("policy", "reload")
        assert reload.status == 1 and b"the directory is gone, and with it the floor" in reload.err, reload
        assert touches(judging, work, name, "a")["rule"] == "no-data"
        judging.restart()  # and with it in force
        assert any("the directory is gone" in w for w in judging.status()["warnings"])
        assert touches(judging, work, name, "b")["rule"] == "no-data"
        assert judging.run("true", cwd=work).status == 125
        away.rename(judging.floor)
        assert judging.am("policy", "reload").status == 0
        assert judging.run("true", cwd=work).status == 0 and not judging.status()["warnings"]
        # Who wants no floor says so.
        (judging.floor / "10-company.yaml").unlink()
        assert judging.am("policy", "reload").status == 0
        judging.floor.rmdir()
        assert judging.am("policy", "reload").status == 0
        assert touches(judging, work, name, "c")["verdict"] == "allow"


def test_a_daemon_that_starts_with_broken_files_begins_no_session_and_keeps_those_that_run(judging, work):
    good = (judging.floor / "10-company.yaml").read_text()
    with judging.running("sh", "-c", LOOP.format(secret=judging.secret), cwd=work) as (_, name):
        write_file(judging.floor / "10-company.yaml", "version: [")
        judging.restart()
        warnings = judging.status()["warnings"]
        assert any("last good" in w for w in warnings), warnings
        assert touches(judging, work, name, "a")["rule"] == "no-data"
        refused = judging.run("true", cwd=work)
        assert refused.status == 125, refused
        assert f"{judging.floor}/10-company.yaml:".encode() in refused.err and b"no session begins" in refused.err
        write_file(judging.floor / "10-company.yaml", good)
        wait_until(lambda: not judging.status()["warnings"], 10, "the warning goes")
        assert judging.run("true", cwd=work).status == 0


def test_policies_are_listed_explained_and_shown_as_they_are_in_force(judging, work):
    listed = {p["name"]: p for p in json.loads(judging.am("policy", "list", "--json", uid=UID).out)}
    assert listed["default"]["default"] and listed["10-company"]["floor"]
    with judging.running("sleep", "60", cwd=work) as (_, name):
        explain = judging.am("policy", "explain", "--session", name, "write", f"{judging.secret}/x", uid=UID)
        assert explain.status == 1
        lines = explain.out.decode().splitlines()
        assert lines[0].startswith("deny: no-data (") and any("base: default: allow" in line for line in lines), lines
        allowed = judging.am("policy", "explain", "--session", name, "write", "/srv/x", uid=UID)
        assert allowed.status == 0, allowed
        got = json.loads(judging.am("policy", "get", name, "--json", uid=UID).out)
        assert [layer["layer"] for layer in got] == ["floor", "base"]
        assert judging.am("policy", "get", name, uid=OTHER_UID).status == 1
    local = judging.am("policy", "explain", "exec", "git push --force", uid=UID, cwd=work)
    assert local.status == 1 and b"git-force-push" in local.out
    assert judging.am("policy", "reload", uid=UID).status == 1  # administrators only


@pytest.mark.parametrize("posture", ["enforce", "monitor"])
def test_other_names_of_a_socket_or_file_get_its_verdict(daemon, work, python, posture):
    (work / "real").mkdir()
    os.chown(work / "real", UID, UID)
    (work / "real" / "f").touch()
    os.chown(work / "real" / "f", UID, UID)
    (work / "p.yaml").write_text(
        f"version: 1\nname: p\nposture: {posture}\nenforcement: best_effort\n"
        "defaults: {unix_socket: allow, command: allow, file_write: allow}\n"
        "unix_socket_rules: [{name: no-sk, paths: ['${WORKSPACE}/real/sk'], decision: deny}]\n"
        "file_rules: [{name: no-f, paths: ['${WORKSPACE}/real/f'], decision: deny}]\n")
    server = socket.socket(socket.AF_UNIX)  # outside: what a session serves itself is its own
    server.bind(f"{work}/real/sk")
    os.chmod(work / "real/sk", 0o666)
    server.listen()
    result = daemon.run(*python("""
import os, socket, sys
def attempt(act):
    try:
        act()
    except PermissionError as e:
        assert e.errno == 13 and sys.argv[1] == "enforce", (e, act)
    else:
        assert sys.argv[1] == "monitor", act
os.symlink("real", "dl"); os.symlink("real/sk", "sl"); os.symlink("real/f", "fl")
for link in ("dl", "sl", "fl"):  # see ResolvedPath: one that was just made may not be followed
    os.utime(link, (2**32 - 1, 1), follow_symlinks=False)
for name in ("real/sk", "sl", "dl/sk", "real/../dl/./sk"):
    attempt(lambda: socket.socket(socket.AF_UNIX).connect(name))
for act in (lambda: open("real/f", "w"), lambda: os.chmod("fl", 0o600), lambda: os.truncate("fl", 0), lambda: open("fl", "w")):
    attempt(act)
""", posture), cwd=work, options=("--policy", "./p.yaml"))
    server.close()
    assert result.status == 0, result
    rows = daemon.events(result.name)
    connects = [r for r in select(rows, kind="unix_connect") if str(work) in r.get("path", "")]
    assert connects and all(r.get("rule") == "no-sk" for r in connects), [(r["path"], r.get("rule")) for r in connects]
    assert sum(int(r["count"]) for r in denied(rows, kind="unix_connect")) == 4
    for kind in ("chmod", "truncate", "open_write"):
        assert denied(rows, kind=kind, rule="no-f"), (kind, rows)


def test_watched_and_attached_trees_are_judged_too(daemon, work):
    sleeper = subprocess.Popen(["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "sh", "-c",
                                "while [ ! -e go ]; do sleep 0.05; done; sudo -n true; git push --force; sleep 60"],
                               cwd=work, stderr=subprocess.DEVNULL)
    try:
        attached = json.loads(daemon.am("attach", "--pid", str(sleeper.pid), "--policy", "strict", "--json", uid=UID).out)
        (work / "go").touch()
        rows = daemon.events(attached["session"]["id"], until=lambda rows: select(rows, kind="exec", argv=["git", "push", "--force"]))
        assert one(rows, kind="exec", argv=["git", "push", "--force"])["verdict"] in ("ask", "deny")
    finally:
        sleeper.kill()
        sleeper.wait()
