"""Tables of measurements, and where they are written."""
import datetime
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = "<!-- measured by ./dev bench; everything below is replaced -->"


def progress(text):
    print(text, file=sys.stderr, flush=True)


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
        cell = said = f"{middle:.3f} [{low:.3f}..{high:.3f}]"
        budget = {"inside": workload.inside, "outside": workload.outside, "enforced": workload.enforced or workload.inside,
                  "programs": workload.inside, "policy": workload.inside}.get(variant, 0)
        exceeds = budget and low > budget
        if workload.operations:
            added = quartiles([(t - b) * 1e9 / workload.operations for t, b in zip(times[variant], times["bare"])])
            cell += f" {added[1]:+,.0f} ns"
            if budget and workload.added_ns:
                budget, said = f"{workload.added_ns:,} ns more", f"{added[1]:+,.0f} [{added[0]:+,.0f}..{added[2]:+,.0f}] ns"
                exceeds = added[0] > workload.added_ns
        if exceeds:
            cell += f" **over {budget}**"
            over.append(f"{workload.name} {variant}: {said}, budget {budget}")
        cells.append(cell)
    return "| " + " | ".join(cells) + " |"


def report(options, path, lines):
    command = "./dev bench" + ("" if not sys.argv[1:] else " " + " ".join(sys.argv[1:]))
    head = [MARK, "", f"{machine()}; {datetime.date.today().isoformat()}; `{command}`; {options.runs} rounds"
            f"{', small sizes' if options.quick else ''}.", ""]
    text = "\n".join(head + lines) + "\n"
    print(text)
    if options.write:
        path = ROOT / path
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
