#!/usr/bin/env python3
"""What agentmon costs, measured side by side in one run: ./dev bench

Every round runs each variant once, in an order that turns round by round; a ratio is that of two runs of one
round. A small steady load (processes, files, connections, about 50 a second) runs beside all variants: in a
session where the daemon runs, as it is where it does not.
  bare       no daemon
  inside     the work runs in a session
  outside    the work runs beside a daemon with a busy session
  strace     the work runs under strace -f, no daemon
and with --enforced, into docs/enforcement-benchmarks.md:
  bare       no daemon
  enforced   the work runs in a session under the policy `default`
  asked      the same, and a rule on writes keeps answers about own files from being remembered; of work that reads only
  bwrap      the work runs under bubblewrap: new namespaces, /etc and /usr for reading only, no daemon
Exit status 1 when a budget is exceeded by more than noise: the lower quartile of the ratios is above it.
"""
import argparse
import contextlib
import datetime
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests/host")]
import harness  # noqa: E402
import programs  # noqa: E402
import workloads  # noqa: E402

VARIANTS = {"bare": "bare", "inside": "in a session", "outside": "outside of one", "strace": "strace -f"}
ENFORCED = {"bare": "bare", "enforced": "under `default`", "asked": "each open asked", "bwrap": "bubblewrap"}
NO_WRITES = "version: 1\nname: asked\nfile_rules: [{{name: no-writes, paths: ['{folder}/{{repository,micro}}/**'], operations: [write], decision: deny}}]\n"
MARK = "<!-- measured by ./dev bench; everything below is replaced -->"
LOAD = """
import os, socket, time
while True:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    for _ in range(3):
        os.close(os.open("load", os.O_WRONLY | os.O_CREAT, 0o600)); os.rename("load", "load2"); os.unlink("load2")
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("127.0.0.1", 9)); s.close()
    time.sleep(0.1)
"""


def progress(text):
    print(text, file=sys.stderr, flush=True)


class Bench:
    def __init__(self, folder, base, options):
        self.options, self.folder, self.base = options, folder, base
        self.daemon = harness.Daemon(folder, "log_level: warning\n")
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
        watched = variant in ("inside", "outside", "enforced", "asked")
        if watched and self.daemon.process is None:
            self.stop_load()
            self.daemon.start()
            self.start_load(True)
        elif not watched and (self.daemon.process is not None or self.load is None):
            self.stop_load()
            self.daemon.stop()
            self.start_load(False)

    def once(self, workload, variant):
        """Seconds of one run."""
        self.arrange(variant)
        if workload.before:
            self.as_user(workload.before, workload.folder)
        out = self.work / "timer-says"
        out.unlink(missing_ok=True)
        words = [str(self.programs / "timer"), str(out), *workload.argv]
        policies = {"inside": [], "enforced": ["default"], "asked": ["default", self.no_writes]}.get(variant)
        if policies is not None:
            words = self.daemon.run_words(*words, options=("--quiet", *(w for p in policies for w in ("--policy", p))))
        elif variant == "strace":
            words = [*harness.as_user(harness.UID), "strace", "-f", "-qq", "-o", "/dev/null", *words]
        elif variant == "bwrap":
            words = [*harness.as_user(harness.UID), "bwrap", "--bind", "/", "/", "--ro-bind", "/etc", "/etc", "--ro-bind", "/usr",
                     "/usr", "--dev-bind", "/dev", "/dev", "--unshare-user", "--unshare-ipc", "--die-with-parent", *words]
        else:
            words = [*harness.as_user(harness.UID), *words]
        done = subprocess.run(words, cwd=workload.folder, env=self.home, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, check=False)
        assert done.returncode == 0, f"{workload.name} ({variant}): status {done.returncode}: {done.stderr[-500:]!r}"
        return int(out.read_text()) / 1e9

    def measure(self, workload):
        """{variant: [seconds per round]}; strace gets fewer rounds."""
        variants = [v for v in self.options.variants if v not in ("strace", "bwrap") or shutil.which(v)]
        variants = [v for v in variants if v != "asked" or workload.reads]
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


def quartiles(values):
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def machine():
    model = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    memory = next(int(line.split()[1]) for line in pathlib.Path("/proc/meminfo").read_text().splitlines()
                  if line.startswith("MemTotal"))
    return f"{model}, {os.cpu_count()} cores, {memory / 1024 / 1024:.0f} GB, Linux {platform.release()}"


def rows_of(workload, times, columns, over):
    """Table cells of one workload; adds to `over` the budgets that it exceeds."""
    bare = statistics.median(times["bare"])
    cells = [workload.what, f"{bare * 1000:.0f} ms"]
    for variant in list(columns)[1:]:
        if variant not in times:
            cells.append("")
            continue
        ratios = [t / b for t, b in zip(times[variant], times["bare"])]
        low, middle, high = quartiles(ratios)
        cell = f"{middle:.3f} [{low:.3f}..{high:.3f}]"
        if workload.operations:
            added = statistics.median([t - b for t, b in zip(times[variant], times["bare"])]) * 1e9 / workload.operations
            cell += f" {added:+,.0f} ns"
        budget = {"inside": workload.inside, "outside": workload.outside,
                  "enforced": workload.enforced or workload.inside}.get(variant, 0)
        if budget and low > budget:
            cell += f" **over {budget}**"
            over.append(f"{workload.name} {variant}: {middle:.3f} [{low:.3f}..{high:.3f}], budget {budget}")
        cells.append(cell)
    return "| " + " | ".join(cells) + " |"


def report(options, lines):
    command = "./dev bench" + ("" if not sys.argv[1:] else " " + " ".join(sys.argv[1:]))
    head = [MARK, "", f"{machine()}; {datetime.date.today().isoformat()}; `{command}`; {options.runs} rounds"
            f"{', small sizes' if options.quick else ''}.", ""]
    text = "\n".join(head + lines) + "\n"
    print(text)
    if options.write:
        path = ROOT / ("docs/enforcement-benchmarks.md" if options.enforced else "docs/benchmarks.md")
        before = path.read_text().split(MARK)[0] if path.exists() else "# Benchmarks\n\n"
        path.write_text(before + text)
        progress(f"written: {path.relative_to(ROOT)}")


def part_bench(build, name, title, lines):
    """The output of a program that measures one part alone."""
    for program in (build / "tests" / name, build / "bin" / name):
        if program.is_file():
            progress(f"  {name}")
            done = subprocess.run([program], capture_output=True, text=True, check=False, cwd=tempfile.gettempdir())
            lines += ["", f"{title} alone (`{name}`):", "```", done.stdout.strip(), "```"]
            return


def arguments():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds: a check that it works, not a measurement")
    parser.add_argument("--only", action="append", choices=workloads.NAMES, help="this workload only; may be given again")
    parser.add_argument("--enforced", action="store_true", help="under a policy that stops things, beside bubblewrap")
    parser.add_argument("--variants", type=lambda text: text.split(","), help="some of those columns only: bare,inside")
    parser.add_argument("--runs", type=int, help="rounds (9; 3 with --quick)")
    parser.add_argument("--list", action="store_true", help="print the names of the workloads and stop")
    parser.add_argument("--no-write", dest="write", action="store_false", help="do not write docs/benchmarks.md")
    options = parser.parse_args()
    options.runs = options.runs or (3 if options.quick else 9)
    options.columns = ENFORCED if options.enforced else VARIANTS
    options.variants = options.variants or list(options.columns)
    unknown = [v for v in options.variants if v not in options.columns]
    if unknown:
        parser.error(f"no variant {unknown[0]}")
    if "bare" not in options.variants:
        options.variants = ["bare", *options.variants]
    return options


def main():
    options = arguments()
    if options.list:
        print("\n".join(workloads.NAMES))
        return 0
    build = pathlib.Path(os.environ.get("AGENTMON_BUILD", ROOT / "build"))
    over, lines = [], ["| work | " + " | ".join(options.columns.values()) + " |", "|---" * (len(options.columns) + 1) + "|"]
    with contextlib.ExitStack() as stack:
        folder, remove = harness.programs(build)
        stack.callback(remove)
        base = pathlib.Path(tempfile.mkdtemp(prefix="agentmon-bench-"))
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        base.chmod(0o755)
        bench = Bench(folder, base, options)
        stack.callback(bench.close)
        for name in options.only or workloads.NAMES:
            progress(f"{name}: preparing")
            workload = bench.make.make(name)
            if workload is None:
                progress(f"{name}: its program is not installed; left out")
                continue
            lines.append(rows_of(workload, bench.measure(workload), options.columns, over))
        lines += ["", "Median ratio [lower..upper quartile], and the added time of one operation."]
        if not options.only and not options.enforced:
            progress("session start, idle daemon")
            run, clients = bench.session_start()
            lines += ["", f"- session start: {run:.1f} ms, two client starts {clients:.1f} ms (budget: 20 ms more)"]
            if run > clients + 20:
                over.append(f"session start: {run:.1f} ms against {clients:.1f} ms, budget 20 ms more")
            resident, wake_ups = bench.idle()
            lines.append(f"- idle daemon: {resident:.1f} MB resident (budget 25), {wake_ups} wake-ups in 10 s (budget 1)")
            if resident > 25:
                over.append(f"idle daemon: {resident:.1f} MB, budget 25")
    if not options.only and not options.enforced:
        part_bench(build, "store_bench", "The store", lines)
        part_bench(build, "policy_bench", "Policies", lines)
        part_bench(build, "network_bench", "Network rules of 1,000 sessions", lines)
    if over:
        lines += ["", "Over budget:", *(f"- {line}" for line in over)]
    report(options, lines)
    for line in over:
        progress(f"over budget: {line}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
