"""What is measured. Everything is generated below one folder, the same on every run."""
import json
import pathlib
import random
import shutil
import subprocess
import textwrap
from dataclasses import dataclass, field


@dataclass
class Workload:
    name: str
    what: str
    argv: list
    folder: pathlib.Path
    before: list = field(default_factory=list)   # not timed, before each run
    operations: int = 0                          # of a micro benchmark: added time per operation is reported
    inside: float = 1.05                         # budgets: in a session, and outside of one
    outside: float = 1.01
    enforced: float = 0                          # under a policy; 0 = as inside
    reads: bool = False                          # own files only, and writes nothing
    added_ns: int = 0                            # the budget of one operation, in place of a ratio
    proxied: list = field(default_factory=list)  # argv of the same through a proxy


@dataclass(frozen=True)
class Size:
    files: int
    commits: int
    sources: int
    tests: int
    packages: int
    loop: int
    scale: float


FULL = Size(files=10_000, commits=40, sources=60, tests=60, packages=12, loop=2_000, scale=1.0)
QUICK = Size(files=1_000, commits=10, sources=12, tests=10, packages=4, loop=300, scale=0.1)


class Generator:
    """Makes the folders that workloads use, each once and only when asked for. run(argv, cwd) runs as the user."""

    def __init__(self, base, programs, run, size):
        self.base, self.programs, self.run, self.size = pathlib.Path(base), programs, run, size
        self.random = random.Random(42)

    def folder(self, name):
        path = self.base / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def words(self, count):
        return " ".join(self.random.choice(("int", "value", "return", "static", "buffer", "size", "next", "node", "list",
                                            "error", "state")) + str(self.random.randrange(100)) for _ in range(count))

    def repository(self):
        path = self.base / "repository"
        if path.exists():
            return path
        path.mkdir()
        for n in range(self.size.files):
            file = path / f"dir{n % 100:02}" / f"sub{n % 10}" / f"file{n}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(self.words(8) for _ in range(20)) + "\n")
        self.hand_over(path)
        git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@example.invalid", "-c", "gc.auto=0"]
        self.run([*git, "init", "-q"], path)
        self.run([*git, "add", "-A"], path)
        self.run([*git, "commit", "-q", "-m", "all"], path)
        for n in range(self.size.commits):
            script = f"for i in $(seq {n} 97 {self.size.files - 1}); do " \
                     "f=$(printf 'dir%02d/sub%d/file%d.txt' $((i % 100)) $((i % 10)) $i); echo changed >>$f; done"
            self.run(["sh", "-c", script], path)
            self.run([*git, "commit", "-q", "-a", "-m", f"change {n}"], path)
        return path

    def hand_over(self, path):
        subprocess.run(["chown", "-R", f"--reference={self.base}", str(path)], check=True)

    def c_project(self):
        path = self.base / "project"
        if path.exists():
            return path
        path.mkdir()
        for n in range(self.size.sources):
            body = "\n".join(f"int f{n}_{k}(int x) {{ for (int i = 0; i < x; i++) x ^= i * {k + 3}; return x; }}"
                             for k in range(120))
            (path / f"part{n}.c").write_text(f"#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n{body}\n")
        (path / "main.c").write_text("int main(void) { return 0; }\n")
        (path / "Makefile").write_text(textwrap.dedent("""\
            OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))
            program: $(OBJECTS)
            \t$(CC) -o $@ $^
            %.o: %.c
            \t$(CC) -O1 -c -o $@ $<
            clean:
            \trm -f *.o program
            """))
        self.hand_over(path)
        return path

    def python_tests(self):
        path = self.base / "tests"
        if path.exists():
            return path
        path.mkdir()
        for n in range(self.size.tests):
            cases = "\n".join(f"""    def test_{k}(self):
        path = os.path.join(self.folder.name, "f{k}")
        with open(path, "w") as f: f.write("x" * {k * 100})
        self.assertEqual(os.path.getsize(path), {k * 100})
        self.assertEqual(sum(range({k * 500})), {k * 500} * ({k * 500} - 1) // 2)
""" for k in range(20))
            (path / f"test_part{n}.py").write_text(f"""import os, tempfile, unittest
class Part{n}(unittest.TestCase):
    def setUp(self): self.folder = tempfile.TemporaryDirectory()
    def tearDown(self): self.folder.cleanup()
{cases}""")
        self.hand_over(path)
        return path

    def npm_project(self):
        path = self.base / "npm"
        if path.exists():
            return path
        path.mkdir()
        for n in range(self.size.packages):
            package = path / f"package{n}"
            (package / "lib").mkdir(parents=True)
            (package / "package.json").write_text(json.dumps({"name": f"bench-{n}", "version": "1.0.0"}))
            for k in range(60):
                (package / "lib" / f"m{k}.js").write_text(f"module.exports = () => {k};\n" * 40)
        (path / "app").mkdir()
        (path / "app/package.json").write_text(json.dumps({"name": "app", "version": "1.0.0", "private": True}))
        self.hand_over(path)
        for n in range(self.size.packages):
            self.run(["npm", "pack", "--silent", "--offline", f"./package{n}"], path)
        return path

    def make(self, name):
        return getattr(self, "make_" + name.replace("-", "_"))()

    # -- workloads

    def make_git_status(self):
        return Workload("git-status", f"git status, {self.size.files} files, 10 ×",
                        ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do git status --short; done"], self.repository())

    def make_git_log(self):
        return Workload("git-log", f"git log -p, {self.size.commits} commits", ["git", "--no-pager", "log", "-p", "-n", "60"],
                        self.repository(), reads=True)

    def make_grep(self):
        return Workload("grep", f"grep -r, {self.size.files} files, 5 ×",
                        ["sh", "-c", "for i in 1 2 3 4 5; do grep -rc 'value42 ' .; done"], self.repository(), reads=True)

    def make_build(self):
        return Workload("build", f"make -j2, {self.size.sources} C files", ["make", "-s", "-j2"], self.c_project(),
                        before=["make", "-s", "clean"])

    def make_python_tests(self):
        pytest = self.run(["/usr/bin/python3", "-c", "import pytest"], self.base, check=False).returncode == 0
        argv = ["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"] if pytest else \
            ["/usr/bin/python3", "-m", "unittest", "-q"]
        return Workload("python-tests", f"{argv[2]}, {self.size.tests * 20} tests", argv, self.python_tests())

    def make_npm_install(self):
        if not shutil.which("npm"):
            return None
        tarballs = [f"../bench-{n}-1.0.0.tgz" for n in range(self.size.packages)]
        return Workload("npm-install", f"npm install --offline, {self.size.packages} local packages",
                        ["npm", "install", "--offline", "--no-audit", "--no-fund", "--silent", "--no-save", *tarballs],
                        self.npm_project() / "app", before=["rm", "-rf", "node_modules"], enforced=1.15)

    def make_true_loop(self):
        script = f"i=0; while [ $i -lt {self.size.loop} ]; do /bin/true; i=$((i+1)); done"
        return Workload("true-loop", f"a shell loop of {self.size.loop} × /bin/true", ["sh", "-c", script], self.folder("micro"),
                        operations=self.size.loop, inside=1.10)

    def micro(self, name, what, program, count, *argv, **budgets):
        count = int(count * self.size.scale)
        folder = self.folder("micro")
        (folder / "own").touch()
        self.hand_over(folder)
        return Workload(name, f"{what}, {count} ×", [str(self.programs / program), str(count), *map(str, argv)], folder,
                        operations=count, **{"inside": 1.10, **budgets})

    def make_fork_exec(self):
        return self.micro("fork-exec", "fork + exec + wait", "fork_exec", 3_000, self.programs / "nothing")

    def make_open_close(self):
        return self.micro("open-close", "open for reading + close", "open_close", 200_000, "/etc/hostname", "read")

    def make_open_own(self):
        return self.micro("open-own", "open of an own file for reading + close", "open_close", 20_000, "own", "read", reads=True)

    def make_open_write(self):
        return self.micro("open-write", "open for writing + close", "open_close", 20_000, "written", "write", inside=0)

    def make_connect(self):
        return self.micro("connect", "socket + connect + close on loopback", "connect", 20_000)

    def make_getppid(self):
        return self.micro("getppid", "a system call that nothing looks at", "getppid", 2_000_000, inside=1.01)


NAMES = ["git-status", "git-log", "grep", "build", "python-tests", "npm-install", "true-loop", "fork-exec", "open-close",
         "open-own", "open-write", "connect", "getppid"]
