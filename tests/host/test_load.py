"""Many sessions leave nothing behind; a storm of processes and files adds up exactly."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import cgroup2_mount, select, total, wait_until


def footprint(daemon):
    """What a session could leave behind, by kind."""
    proc = pathlib.Path(f"/proc/{daemon.pid}")
    programs = json.loads(subprocess.run(["bpftool", "-j", "prog", "show"], capture_output=True, check=True).stdout)
    # A descriptor of the connection that asks is not a leak.
    return {
        "cgroups": sum(1 for _ in cgroup2_mount().glob("agentmon-*/*/")),
        "bpf programs": len([p for p in programs if daemon.pid in [u["pid"] for u in p.get("pids", [])]]),
        "descriptors": len(os.listdir(proc / "fd")),
        "threads": len(os.listdir(proc / "task")),
        "session files": len(list(daemon.runtime.rglob("*"))),
        "mounts": len((proc / "mountinfo").read_text().splitlines()),
    }


def test_two_hundred_sessions_leave_nothing_behind(own_daemon, work):
    def run(n):
        result = own_daemon.run("sh", "-c", f"touch f{n}; true", cwd=work, timeout=120)
        assert result.status == 0, result
        return result.name

    def all_ended():
        return own_daemon.status()["sessions"] == 0

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(20)))
        wait_until(all_ended, 20, "the first sessions have ended")
        before = footprint(own_daemon)
        names = list(pool.map(run, range(200)))
    wait_until(all_ended, 30, "all sessions have ended")

    def grown():
        after = footprint(own_daemon)
        # Pools may be a little larger for a while, and closed connections are forgotten by small batches.
        slack = {"descriptors": 12, "threads": 4}
        return {k: (before[k], after[k]) for k in before if after[k] > before[k] + slack.get(k, 0)}

    deadline = time.monotonic() + 45
    while grown() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert grown() == {}
    for name in names[::20]:
        assert select(own_daemon.events(name), kind="exit")


@pytest.fixture(scope="module")
def storm(shared_daemon, scripts):
    """2,000 processes and 20,000 file operations in one session: its rows."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="agentmon-e2e-storm-", dir="/tmp"))
    os.chown(folder, 61001, 61001)
    script = scripts / "storm.py"
    script.write_text("""
import os
for i in range(2000):
    os.waitpid(os.posix_spawn("/bin/true", ["true", str(i)], {}), 0)
for i in range(10000):
    name = "f%d" % (i % 5000)
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink(name)
""")
    result = shared_daemon.run("/usr/bin/python3", "-I", "-S", "-B", str(script), cwd=folder, timeout=300)
    assert result.status == 0, result
    rows = shared_daemon.events(result.name, seconds=60)
    yield [r for r in rows if r["kind"] not in ("session",)], str(folder), result.name
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind, count", [("exec", 2001), ("fork", 2000), ("exit", 2001)])
def test_a_storm_of_processes_adds_up_exactly(storm, kind, count):
    rows, _, _ = storm
    assert total(rows, kind=kind) == count


def test_every_program_of_the_storm_has_its_own_row(storm):
    rows, _, _ = storm
    numbers = {int(r["argv"][1]) for r in select(rows, kind="exec") if r["argv"][0] == "true"}
    assert numbers == set(range(2000))


@pytest.mark.parametrize("kind", ["create", "delete"])
def test_a_storm_of_file_operations_adds_up_exactly(storm, kind):
    rows, folder, _ = storm
    assert sum(r["count"] for r in select(rows, kind=kind) if r["path"].startswith(folder + "/f")) == 10_000


def test_the_storm_lost_nothing(storm, daemon):
    rows, _, name = storm
    assert not select(rows, kind="loss")
    assert [s["lost"] for s in daemon.session(name)["sources"] if s["active"]] == \
        [0] * len([s for s in daemon.session(name)["sources"] if s["active"]])


def test_rows_are_given_in_order_of_time_each_with_its_own_number(storm, daemon):
    _, _, name = storm
    rows = daemon.timeline(session=name)
    times = [r["time_ns"] for r in rows]
    assert times == sorted(times)
    assert len({r["seq"] for r in rows}) == len(rows)
