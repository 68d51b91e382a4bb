"""A host with and without agentmon: what runs beside the work, and the work itself, timed."""
import os
import pathlib
import shutil
import statistics
import subprocess
import time

import harness
import programs
import workloads
from report import progress

NO_WRITES = "version: 1\nname: asked\nfile_rules: [{{name: no-writes, paths: ['{folder}/{{repository,micro}}/**'], operations: [write], decision: deny}}]\n"
LOAD = """
import os, socket, time
while True:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    for _ in range(3):
        os.close(os.open("load", os.O_WRONLY | os.O_CREAT, 0o600)); os.rename("load", "load2"); os.unlink("load2")
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("127.0.0.1", 9)); s.close()
    time.sleep(0.1)
"""


class Rig:
    config = "log_level: warning\n"
    watched = ("inside", "outside", "enforced", "asked")   # beside these a daemon runs

    def __init__(self, folder, base, options):
        self.options, self.folder, self.base = options, folder, base
        self.daemon = harness.Daemon(folder, self.config)
        self.load = None
        self.programs = base / "programs"
        self.programs.mkdir(mode=0o755)
        for name, text in programs.ALL.items():
            subprocess.run(["cc", "-O2", "-w", "-pthread", *(["-static"] if name == "nothing" else []), "-o",
                            self.programs / name, "-x", "c", "-"], input=text.encode(), check=True)
        self.work = base / "work"
        self.work.mkdir()
        os.chown(self.work, harness.UID, harness.UID)
        self.work.chmod(0o755)
        self.no_writes = base / "asked.yaml"
        self.no_writes.write_text(NO_WRITES.format(folder=self.work))
        self.home = {"HOME": str(self.work), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        self.make = workloads.Generator(self.work, self.programs, self.as_user,
                                        workloads.QUICK if options.quick else workloads.FULL)

    def as_user(self, argv, cwd, check=True):
        done = subprocess.run([*harness.as_user(harness.UID), *map(str, argv)], cwd=cwd, env=self.home, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert not check or done.returncode == 0, f"{argv}: {done.stdout[-2000:].decode(errors='replace')}"
        return done

    # -- the state of the host in a variant

    def stop_load(self):
        if self.load is not None:
            if self.daemon.process is not None:
                self.daemon.am("session", "stop", "--all")
            self.load.kill()
            self.load.wait()
            self.load = None

    def start_load(self, watched):
        folder = self.work / "load"
        folder.mkdir(exist_ok=True)
        os.chown(folder, harness.UID, harness.UID)
        words = ["/usr/bin/python3", "-I", "-S", "-c", LOAD]
        words = self.daemon.run_words(*words) if watched else [*harness.as_user(harness.UID), *words]
        self.load = subprocess.Popen(words, cwd=folder, env=self.home, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)

    def arrange(self, variant):
        """Daemon and load as the variant wants them."""
        watched = variant in self.watched
        if watched and self.daemon.process is None:
            self.stop_load()
            self.daemon.start()
            self.start_load(True)
        elif not watched and (self.daemon.process is not None or self.load is None):
            self.stop_load()
            self.daemon.stop()
            self.start_load(False)

    def words_of(self, words, variant):
        """The command as the variant runs it."""
        policies = {"inside": [], "enforced": ["default"], "asked": ["default", self.no_writes]}.get(variant)
        user = harness.as_user(harness.UID)
        if policies is not None:
            return self.daemon.run_words(*words, options=("--quiet", *(w for p in policies for w in ("--policy", p))))
        if variant == "strace":
            return [*user, "strace", "-f", "-qq", "-o", "/dev/null", *words]
        if variant == "bwrap":
            return [*user, "bwrap", "--bind", "/", "/", "--ro-bind", "/etc", "/etc", "--ro-bind", "/usr", "/usr", "--dev-bind", "/dev",
                    "/dev", "--unshare-user", "--unshare-ipc", "--die-with-parent", *words]
        return [*user, *words]

    def workload(self, name):
        return self.make.make(name)

    def prove(self):
        """That the columns are what they say."""

    def applies(self, workload, variant):
        return (variant not in ("strace", "bwrap") or shutil.which(variant)) and (variant != "asked" or workload.reads)

    def once(self, workload, variant):
        """Seconds of one run."""
        self.arrange(variant)
        if workload.before:
            self.as_user(workload.before, workload.folder)
        out = self.work / "timer-says"
        out.unlink(missing_ok=True)
        words = self.words_of([str(self.programs / "timer"), str(out), *workload.argv], variant)
        done = subprocess.run(words, cwd=workload.folder, env=self.home, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, check=False)
        assert done.returncode == 0, f"{workload.name} ({variant}): status {done.returncode}: {done.stderr[-500:]!r}"
        return int(out.read_text()) / 1e9

    def measure(self, workload):
        """{variant: [seconds per round]}; strace gets fewer rounds."""
        variants = [v for v in self.options.variants if self.applies(workload, v)]
        self.once(workload, "bare")  # warm caches
        times = {v: [] for v in variants}
        for turn in range(self.options.runs):
            order = variants[turn % len(variants):] + variants[:turn % len(variants)]
            for variant in order:
                if variant == "strace" and turn >= min(2, self.options.runs):
                    continue
                times[variant].append(self.once(workload, variant))
            progress(f"  {workload.name}: round {turn + 1} of {self.options.runs}: " +
                     ", ".join(f"{v} {times[v][-1]:.3f} s" for v in variants if len(times[v]) > turn))
        return times

    # -- what is no ratio

    def session_start(self):
        """(milliseconds of a run of nothing, of two client starts): medians."""
        self.arrange("outside")

        def median(words):
            samples = []
            for _ in range(10 if self.options.quick else 40):
                began = time.monotonic()
                subprocess.run(words, env=self.home, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, cwd=self.work)
                samples.append((time.monotonic() - began) * 1000)
            return statistics.median(samples)

        nothing = str(self.programs / "nothing")
        bare = median([*harness.as_user(harness.UID), nothing])
        run = median(self.daemon.run_words(nothing, options=("--quiet",)))
        client = median(self.daemon.am_words("status", uid=harness.UID))
        return run - bare, 2 * (client - bare)

    def idle(self):
        """(resident MB, voluntary switches in 10 s of all threads) of a daemon without sessions."""
        self.stop_load()
        if self.daemon.process is None:
            self.daemon.start()
        self.daemon.restart()
        time.sleep(3)

        def wake_ups():
            return sum(int(line.split()[1]) for task in pathlib.Path(f"/proc/{self.daemon.pid}/task").iterdir()
                       for line in (task / "status").read_text().splitlines() if line.startswith("voluntary"))

        before = wake_ups()
        time.sleep(2 if self.options.quick else 10)
        resident = next(int(line.split()[1]) for line in pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text().splitlines()
                        if line.startswith("VmRSS"))
        return resident / 1024, wake_ups() - before

    def close(self):
        self.stop_load()
        self.daemon.close()
