"""Programs that agents use run under the shipped policies with no false denial, and what these refuse is refused with a
reason. Each script runs without enforcement first."""
import contextlib
import http.server
import json
import os
import pathlib
import shutil
import socketserver
import threading
import zipfile

import pytest

from harness import UID, brief, select

GIT = """
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
git init -q --bare bare; git init -q -b work repo; cd repo
for i in 1 2 3; do echo $i > f$i; git add .; git commit -qm "c$i"; done
git remote add origin "$PWD/../bare"; git push -q origin work; git worktree add -q ../tree -b other
git -C ../tree commit -q --allow-empty -m empty; git stash list; git log --oneline | wc -l; git gc -q; git fsck --no-progress
cd ..; git clone -q -b work bare copy; git -C bare update-server-info; git -C bare gc -q; git -C bare update-server-info
python3 -u -m http.server --bind 127.0.0.1 0 > port 2>/dev/null & server=$!
until port=$(sed -n 's/.*port \\([0-9]*\\).*/\\1/p' port) && [ -n "$port" ]; do :; done
git clone -q -b work "http://127.0.0.1:$port/bare" by-http; kill $server; diff -r copy/f1 by-http/f1
"""

C = """
cat > main.c <<'END'
#include <stdio.h>
int add(int, int);
int main(void) { printf("%d\\n", add(40, 2)); return 0; }
END
echo 'int add(int a, int b) { return a + b; }' > add.c
printf 'prog: main.o add.o\\n\\tgcc -g -o $@ $^\\n%%.o: %%.c\\n\\tgcc -g -c $<\\n' > Makefile
make -s -j4; ./prog | grep -qx 42; make -s -j4
"""

PYTHON = """
/usr/bin/python3 -m venv --system-site-packages env
echo 'def test_sum(): assert sum([1, 2]) == 3' > test_sum.py
env/bin/python -m pytest -q -p no:cacheprovider test_sum.py | grep -q '1 passed'
env/bin/python - <<'END'
import asyncio, multiprocessing, socket, sqlite3, subprocess, tempfile, threading
with multiprocessing.Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
assert subprocess.run(["sh", "-c", "exit 7"]).returncode == 7
with tempfile.TemporaryDirectory() as folder:
    db = sqlite3.connect(folder + "/x.db"); db.execute("create table t(a)"); db.commit()
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname()); client.sendall(b"x")
assert server.accept()[0].recv(1) == b"x"
asyncio.run(asyncio.sleep(0))
END
"""

SHELL = r"""
bash -c 'set -euo pipefail
a=(x y z); [ ${#a[@]} = 3 ]; diff <(seq 9) <(seq 9); for i in $(seq 20); do (exit 0) & done; wait
mkdir -p d/e; echo t > d/e/f; mv d/e/f d/e/g; ln -s g d/e/l; ln d/e/g d/e/h; chmod 600 d/e/g; touch -d @1 d/e/g; truncate -s 100 d/e/g
coproc cat; echo hi >&${COPROC[1]}; read -r -u ${COPROC[0]} line; [ $line = hi ]
find d -type f -name g | xargs -P2 ls >/dev/null; rmdir d/x 2>/dev/null || true; printf "%s\n" b a | sort | head -1 | grep -qx a'
"""

FILES = """
mkdir src; seq 1000 > src/a; ln -s a src/l; cp -a src copy
tar czf a.tgz src; mkdir out; tar xzf a.tgz -C out; diff -r src out/src
sqlite3 x.db 'pragma journal_mode=wal; create table t(a); insert into t values(1),(2);' >/dev/null
[ "$(sqlite3 x.db 'select sum(a) from t')" = 3 ]
"""

RSYNC = "mkdir src; seq 1000 > src/a; rsync -a src/ dst/; seq 9 > src/b; rsync -a --delete src/ dst/; diff -r src dst"

VIM = "printf 'one\\ntwo\\n' > f; vi -u NONE -es -c '%s/two/three/' -c 'wq' f; grep -qx three f"

# Its socket has the name of those that the policy keeps the session from; this one is the session's own.
TMUX = """
export SHELL=/bin/sh; trap 'rm -f /tmp/tmux-$(id -u)/own$$; rmdir /tmp/tmux-$(id -u) || true' EXIT
tmux -L own$$ -f /dev/null new-session -d -x 80 -y 24 'echo inside > made; tmux wait-for -S done; cat'
tmux -L own$$ wait-for done; grep -qx inside made
tmux -L own$$ display-message -p '#{session_windows}' | grep -qx 1; tmux -L own$$ kill-server
"""

GDB = C + "gdb -q -batch -ex 'break add' -ex run -ex bt ./prog 2>&1 | grep -q '#1.*main'"

NODE = """
cat > a.test.js <<'END'
const test = require('node:test'), assert = require('node:assert'), http = require('node:http');
test('adds', () => assert.equal(1 + 1, 2));
test('serves', async () => {
  const server = http.createServer((q, r) => r.end('ok')).listen(0, '127.0.0.1');
  await new Promise(r => server.on('listening', r));
  assert.equal(await (await fetch(`http://127.0.0.1:${server.address().port}/`)).text(), 'ok');
  server.closeAllConnections(); server.close();
});
test('starts', () => assert.equal(require('node:child_process').execSync('echo hi').toString(), 'hi\\n'));
END
node --test > log 2>&1 || { cat log; exit 1; }
"""

NPM = """
mkdir lib app; echo '{"name":"lib","version":"1.0.0","main":"i.js"}' > lib/package.json; echo 'module.exports = 7' > lib/i.js
npm pack --silent --offline ./lib >/dev/null; cd app; echo '{"name":"app","version":"1.0.0"}' > package.json
npm install --offline --no-audit --no-fund --silent ../lib-1.0.0.tgz
node -e 'if (require("lib") !== 7) process.exit(1)'
"""

PIP = "/usr/bin/python3 -m venv env; env/bin/pip -q install --no-index --find-links wheels tiny; env/bin/python -c 'import tiny'"

# name: (script, program that it needs)
EVERYWHERE = {
    "shell": (SHELL, "bash"), "git": (GIT, "git"), "make and gcc": (C, "gcc"), "python": (PYTHON, "python3"),
    "tar and sqlite": (FILES, "sqlite3"), "rsync": (RSYNC, "rsync"), "vi": (VIM, "vi"), "tmux": (TMUX, "tmux"), "node": (NODE, "node"),
}
# The policy `strict` asks before packages are installed.
INSTALLS = {"npm": (NPM, "npm"), "pip": (PIP, "pip3")}


@pytest.fixture
def home(work):
    (work / "home").mkdir()
    (work / "ws").mkdir()
    (work / "ws" / "wheels").mkdir()
    with zipfile.ZipFile(work / "ws/wheels/tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    for path in [*work.rglob("*")]:
        os.chown(path, UID, UID)
    return work


def run(daemon, home, script, policy):
    env = {"HOME": str(home / "home"), "PATH": "/usr/local/bin:/usr/bin:/bin", "USER": "agent", "LC_ALL": "C.UTF-8"}
    return daemon.run("sh", "-ec", script, cwd=home / "ws", env=env, options=("--policy", policy), timeout=180)


def anew(home):
    for path in (home / "ws").iterdir():
        if path.name != "wheels":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def needs(program):
    if shutil.which(program, path="/usr/local/bin:/usr/bin:/bin") is None:
        pytest.skip(f"no {program} on this machine")


CASES = [(policy, name) for name in EVERYWHERE for policy in ("default", "strict")] + [("default", name) for name in INSTALLS]


@pytest.mark.parametrize("policy,name", CASES)
def test_a_program_runs_with_no_false_denial(daemon, home, policy, name):
    script, program = (EVERYWHERE | INSTALLS)[name]
    needs(program)
    free = run(daemon, home, script, "observe")
    assert free.status == 0, free
    anew(home)
    result = run(daemon, home, script, policy)
    rows = select(daemon.events(result.name), enforced=True)
    assert result.status == 0 and rows == [], (result, brief(rows))


@pytest.mark.parametrize("name", INSTALLS)
def test_strict_asks_before_packages_are_installed_and_says_so(daemon, home, name):
    script, program = INSTALLS[name]
    needs(program)
    result = run(daemon, home, script, "strict")
    assert result.status != 0, result
    rows = select(daemon.events(result.name), kind="exec", enforced=True)
    assert {row["rule"] for row in rows} <= {"package-installs", "package-installs-by-python"} and rows, rows


def test_another_user_is_refused_with_a_reason(daemon, home):
    (home / "ws/sudo").write_text("#!/bin/sh\necho ran\n")
    (home / "ws/sudo").chmod(0o755)
    assert run(daemon, home, "./sudo -n true", "observe").out == b"ran\n"
    for policy in ("default", "strict"):
        result = run(daemon, home, "./sudo -n true", policy)
        assert result.status == 126 and b"ran" not in result.out, result
        rows = select(daemon.events(result.name), kind="exec", enforced=True)
        assert rows and all(row["rule"] == "no-other-user" and row["message"] for row in rows), rows
        assert b"no-other-user" in daemon.am("why", uid=UID).out


class Engine(http.server.BaseHTTPRequestHandler):
    """As much of a container engine as a client asks before it starts a container."""

    def do_GET(self):
        body = b"OK" if self.path.endswith("/_ping") else json.dumps({"Version": "engine-of-a-test", "ApiVersion": "1.41"}).encode()
        self.send_response(200)
        self.send_header("Api-Version", "1.41")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    do_HEAD = do_GET

    def address_string(self):
        return "unix"

    def log_message(self, *unused):
        pass


@pytest.fixture
def engine():
    """A socket where container engines have theirs, open to everybody; the calls that reached it."""
    folder = pathlib.Path("/run/podman")
    made = not folder.exists()
    folder.mkdir(exist_ok=True)
    path = folder / f"test-{os.getpid()}.sock"
    server = socketserver.ThreadingUnixStreamServer(str(path), Engine)
    path.chmod(0o666)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield path
    server.shutdown()
    thread.join()
    server.server_close()
    path.unlink()
    if made:
        with contextlib.suppress(OSError):
            folder.rmdir()


def test_a_container_client_is_refused_with_a_reason(daemon, home):
    needs("docker")
    assert b"Docker" in run(daemon, home, "docker --version", "observe").out
    for policy in ("default", "strict"):
        result = run(daemon, home, "docker --version", policy)
        assert result.status == 126 and b"Docker" not in result.out and b"Permission denied" in result.err, result
        rows = select(daemon.events(result.name), kind="exec", enforced=True)
        assert rows and all(row["rule"] == "no-containers" and row["message"] for row in rows), rows
        assert b"no-containers" in daemon.am("why", uid=UID).out


# Whatever the client is called, what it is for lies behind the engine's socket.
def test_a_container_client_under_another_name_does_not_reach_the_engine(daemon, home, engine):
    needs("docker")
    ask = (f"cp \"$(command -v docker)\" ./client; echo >> ./client; "
           f"DOCKER_HOST=unix://{engine} ./client version --format '{{{{.Server.Version}}}}'")
    free = run(daemon, home, ask, "observe")
    assert (free.status, free.out) == (0, b"engine-of-a-test\n"), free
    for policy in ("default", "strict"):
        result = run(daemon, home, ask, policy)
        assert result.status != 0 and b"engine-of-a-test" not in result.out and b"permission denied" in result.err, result
        rows = select(daemon.events(result.name), kind="unix_connect", enforced=True)
        assert rows and {(r["rule"], r["errno_name"]) for r in rows} == {("container-engines", "EACCES")}, rows
        assert all(row["message"] for row in rows) and b"container-engines" in daemon.am("why", uid=UID).out


# Where marks on the session's mounts hold it, mounts of the sandbox's own would have none.
def test_a_nested_sandbox_is_refused_with_a_reason(daemon, home):
    needs("bwrap")
    nested = "bwrap --ro-bind / / --dev /dev --unshare-user --unshare-pid echo inside"
    assert run(daemon, home, nested, "observe").out == b"inside\n"
    result = run(daemon, home, nested, "default")
    assert result.status != 0 and b"inside" not in result.out and b"No permissions to create new namespace" in result.err, result
    rows = select(daemon.events(result.name), kind="call", enforced=True)
    assert rows and all((row["call"], row["errno_name"]) == ("clone", "EPERM") for row in rows), rows
    why = daemon.am("why", uid=UID).out
    assert b"namespace" in why and b"clone" in why, why


def test_a_debugger_works_on_a_program_of_its_own_where_the_policy_lets_it(daemon, home):
    needs("gdb")
    assert run(daemon, home, GDB, "observe").status == 0
    anew(home)
    (home / "ws/trace.yaml").write_text("version: 1\nname: trace\nlinux: {seccomp: {deny_ptrace: false}}\ndefaults: "
                                        "{command: allow, file_write: allow, network: allow, unix_socket: allow, signal: allow}\n")
    result = run(daemon, home, GDB, "./trace.yaml")
    assert result.status == 0, result
