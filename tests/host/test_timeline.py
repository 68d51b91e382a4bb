"""The timeline's filters and formats."""
import csv
import io
import json
import os
import pathlib
import queue
import shutil
import subprocess
import tempfile
import threading

import pytest

from harness import UID, one, select, wait_until

WORK = """
import os, socket, subprocess
open("a.txt", "w").close()
os.mkdir("sub"); open("sub/b.txt", "w").close(); open("sub/c.log", "w").close()
subprocess.run(["/bin/echo", "hello"])
subprocess.run(["/bin/true"])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(b"x", ("127.0.0.1", 9)); s.sendto(b"x", ("127.0.0.2", 10))
"""


@pytest.fixture(scope="module")
def session(shared_daemon):
    """A session with a little of everything: (name, folder, all rows)."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="agentmon-e2e-timeline-", dir="/tmp"))
    os.chown(folder, UID, UID)
    folder.chmod(0o755)
    result = shared_daemon.run("/usr/bin/python3", "-I", "-S", "-B", "-c", WORK, cwd=folder)
    assert result.status == 0, result
    yield result.name, folder, shared_daemon.events(result.name)
    shutil.rmtree(folder)


@pytest.fixture
def show(daemon, session):
    return lambda *argv: daemon.timeline(*argv, session=session[0])


def test_a_kind_is_chosen(show):
    assert {r["kind"] for r in show("--kind", "exec")} == {"exec"}
    assert len(show("--kind", "exec")) == 3


def test_kinds_add_up_and_groups_are_kinds(show):
    assert {r["kind"] for r in show("--kind", "mkdir", "--kind", "send")} == {"mkdir", "send"}
    assert {r["kind"] for r in show("--kind", "process")} == {"exec", "fork", "exit"}
    assert {r["kind"] for r in show("--kind", "net")} == {"send"}


def test_paths_are_chosen_by_globs(show, session):
    _, folder, _ = session

    def created(glob):
        return {os.path.relpath(r["path"], folder) for r in show("--kind", "create", "--path", glob)}

    assert created(f"{folder}/*") == {"a.txt"}
    assert created(f"{folder}/**/*.txt") | created(f"{folder}/*.txt") == {"a.txt", "sub/b.txt"}
    assert created(f"{folder}/sub/?.log") == {"sub/c.log"}


@pytest.mark.parametrize("dest, ports", [("127.0.0.1", {9}), ("127.0.0.2:10", {10}), ("127.0.0.1:10", set()),
                                         ("127.0.0.0/8", {9, 10}), ("10.0.0.0/8", set())])
def test_destinations_are_chosen_by_address_port_and_prefix(show, dest, ports):
    assert {r["port"] for r in show("--dest", dest)} == ports


def test_programs_are_chosen_by_globs(show):
    rows = show("--exe", "/**/echo")
    assert rows and {os.path.basename(r["exe"]) for r in rows} == {"echo"}


def test_a_process_is_chosen_by_pid(show, session):
    echo = [r for r in select(session[2], kind="exec") if r["argv"] == ["/bin/echo", "hello"]][0]
    assert {r["pid"] for r in show("--pid", str(echo["pid"]))} == {echo["pid"]}


def test_times_bound_the_rows(show, session):
    rows = session[2]
    middle = rows[len(rows) // 2]["time"]
    assert all(r["time"] >= middle for r in show("--since", middle))
    assert len(show("--since", middle)) + len(show("--until", middle)) >= len(rows)
    assert show("--since", "1h") and not show("--until", "1h")


def test_limit_keeps_the_newest_in_order(show, session):
    assert [r["seq"] for r in show("--limit", "3")] == [r["seq"] for r in session[2][-3:]]


def test_nothing_was_judged_yet(show):
    assert not show("--verdict", "deny")


def test_csv_has_a_header_and_a_line_for_each_row(daemon, session):
    result = daemon.am("timeline", "--session", session[0], "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.out.decode())))
    assert len(rows) == len(session[2])
    assert {r["kind"] for r in rows} == {r["kind"] for r in session[2]}
    assert [r["path"] for r in rows if r["kind"] == "mkdir"] == [str(session[1] / "sub")]


def test_the_table_is_readable(daemon, session):
    text = daemon.am("timeline", "--session", session[0]).out.decode()
    assert "hello" in text and "sub/c.log" in text and "127.0.0.2" in text
    assert "\x1b" not in text


def test_the_tree_shows_children_below_their_parents(daemon, session):
    lines = daemon.am("timeline", "--session", session[0], "--tree").out.decode().splitlines()
    python = next(i for i, line in enumerate(lines) if "/usr/bin/python3 -I" in line)
    echo = next(i for i, line in enumerate(lines) if line.endswith("/bin/echo hello"))
    assert python < echo

    def depth(line):
        return len(line) - len(line.lstrip(" │├└─|`-+"))

    assert depth(lines[python]) < depth(lines[echo])


def test_escape_sequences_in_names_do_not_reach_a_terminal(daemon, work):
    evil = "x\x1b[2J\x1b]0;title\x07"
    result = daemon.run("touch", evil, cwd=work)
    rows = daemon.events(result.name)
    assert one(rows, kind="create", path=str(work / evil))
    for form in ("table", "json", "csv"):
        master, slave = os.openpty()
        shown = subprocess.Popen(daemon.am_words("timeline", "--session", result.name, "--format", form, "--color", "never"),
                                 stdout=slave, stderr=subprocess.DEVNULL)
        os.close(slave)
        text = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
        shown.wait(20)
        os.close(master)
        assert b"\x1b" not in text and b"\x07" not in text, form


def test_follow_shows_new_events_as_they_happen(daemon, work):
    with daemon.running("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; touch seen-live; sleep 30", cwd=work) as (_, name):
        follow = subprocess.Popen(daemon.am_words("timeline", "--session", name, "--follow", "--format", "json"),
                                  stdout=subprocess.PIPE)
        lines = queue.Queue()
        threading.Thread(target=lambda: [lines.put(line) for line in follow.stdout], daemon=True).start()
        try:
            lines.get(timeout=10)  # what is stored comes first
            (work / "go").touch()
            wait_until(lambda: "seen-live" in str(json.loads(lines.get(timeout=10)).get("path")), 10, "the new file is shown")
        finally:
            follow.terminate()
            follow.wait(10)


def test_verify_says_that_the_store_is_whole(daemon, session):
    result = daemon.am("timeline", "verify", "--json")
    assert result.status == 0
    answer = json.loads(result.out)
    assert answer["intact"] is True and answer["events"] > 0 and answer["findings"] == []


def test_status_says_what_is_seen(daemon):
    status = daemon.status()
    assert status["pid"] == daemon.pid and status["role"] == "admin"
    assert status["socket"] == str(daemon.socket) and status["state_dir"] == str(daemon.state)
    sources = {s["source"]: s for s in status["sources"]}
    assert {"process", "network", "notify", "fanotify"} <= set(sources)
    assert [s["counts"] for s in (sources["process"], sources["fanotify"])] == ["exact", "at least"]
    assert all(s["active"] or s["why"] for s in sources.values())


def test_status_tells_a_user_its_role(daemon):
    assert json.loads(daemon.am("status", "--json", uid=UID).out)["role"] == "user"


def test_a_wrong_filter_is_a_usage_error(daemon):
    for argv in (("--kind", "nonsense"), ("--since", "yesterdayish"), ("--limit", "-1"), ("--verdict", "maybe")):
        result = daemon.am("timeline", *argv)
        assert result.status == 2 and result.err, argv
