"""End-to-end tests of the built programs: ./dev test --host. They need root and a cgroup v2 mount."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "tools")]
import default_signals  # noqa: E402
import harness  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def pytest_configure():
    # A run that is told to end cleans up as one that is interrupted.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    default_signals.restore()


def pytest_collection_modifyitems(items):
    if os.geteuid() != 0:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture(scope="session")
def bin_dir():
    folder, remove = harness.programs(os.environ.get("AGENTMON_BUILD", ROOT / "build"))
    yield folder
    remove()


@pytest.fixture(scope="session")
def shared_daemon(bin_dir):
    daemon = harness.Daemon(bin_dir).start()
    yield daemon
    daemon.close()


@pytest.fixture
def daemon(shared_daemon):
    """The daemon that tests share. A test that kills or reconfigures one takes own_daemon."""
    if shared_daemon.process is None or shared_daemon.process.poll() is not None:
        shared_daemon.start()
    return shared_daemon


@pytest.fixture
def own_daemon(bin_dir):
    daemon = harness.Daemon(bin_dir).start()
    yield daemon
    daemon.close()


@pytest.fixture
def work():
    """An empty folder of the ordinary user; the session's files go here."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="agentmon-e2e-work-", dir="/tmp"))
    os.chown(folder, harness.UID, harness.UID)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def scripts():
    """A folder that every user can read, for programs of the tests."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="agentmon-e2e-scripts-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cc(scripts):
    """Compiles C text to a program that every user can run."""

    def compile_(name, text):
        program = scripts / name
        if not program.exists():
            subprocess.run(["cc", "-O1", "-w", "-pthread", "-o", program, "-x", "c", "-"], input=text.encode(), check=True)
        return str(program)

    return compile_


@pytest.fixture
def python(work):
    """python(TEXT, *ARGV): the words that run TEXT as a script in the work folder; no site, no cache files."""
    count = iter(range(1000))

    def words(text, *argv):
        script = work / f"script{next(count)}.py"
        script.write_text(text)
        script.chmod(0o644)
        return ["/usr/bin/python3", "-I", "-S", "-B", str(script), *map(str, argv)]

    return words
