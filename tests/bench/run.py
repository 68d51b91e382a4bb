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
and with --network, into docs/network-benchmarks.md, in a network namespace of their own:
  bare       no daemon
  recorded   the work runs in a session whose policy only records
  programs   under an allowlist of addresses and names that the programs on the session's cgroup judge alone: its user's
             agentmon-ns has no capability, so unix sockets are not judged and nothing is asked before a connect
  policy     under the same, as sessions are: a connect is asked before it is made, since it may name a unix socket
  nft        the same destinations as plain sets of nftables on a cgroup, no daemon
  proxy      through tinyproxy, no daemon; of what a proxy can do
Exit status 1 when a budget is exceeded by more than noise: the lower quartile of the ratios is above it.
"""
import argparse
import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
from dataclasses import dataclass

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests/host")]
import harness  # noqa: E402
import network  # noqa: E402
import workloads  # noqa: E402
from report import part_bench, progress, report, rows_of  # noqa: E402
from rig import Rig  # noqa: E402


@dataclass(frozen=True)
class Kind:
    columns: dict
    names: list
    report: str
    rig: type = Rig


OBSERVED = Kind({"bare": "bare", "inside": "in a session", "outside": "outside of one", "strace": "strace -f"}, workloads.NAMES,
                "docs/benchmarks.md")
ENFORCED = Kind({"bare": "bare", "enforced": "under `default`", "asked": "each open asked", "bwrap": "bubblewrap"}, workloads.NAMES,
                "docs/enforcement-benchmarks.md")
NETWORK = Kind(network.COLUMNS, network.NAMES, "docs/network-benchmarks.md", network.NetworkRig)


def arguments():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds: a check that it works, not a measurement")
    parser.add_argument("--only", action="append", metavar="NAME", help="this workload only; may be given again")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--enforced", dest="kind", action="store_const", const=ENFORCED,
                       help="under a policy that stops things, beside bubblewrap")
    which.add_argument("--network", dest="kind", action="store_const", const=NETWORK,
                       help="connections, datagrams and names, beside plain nft sets and tinyproxy")
    parser.add_argument("--variants", type=lambda text: text.split(","), help="some of those columns only: bare,inside")
    parser.add_argument("--runs", type=int, help="rounds (9; 3 with --quick)")
    parser.add_argument("--list", action="store_true", help="print the names of the workloads and stop")
    parser.add_argument("--no-write", dest="write", action="store_false", help="do not write the report in docs")
    options = parser.parse_args()
    options.kind = options.kind or OBSERVED
    options.runs = options.runs or (3 if options.quick else 9)
    options.variants = options.variants or list(options.kind.columns)
    for unknown in [v for v in options.variants if v not in options.kind.columns]:
        parser.error(f"no variant {unknown}")
    for unknown in [n for n in options.only or () if n not in options.kind.names]:
        parser.error(f"no workload {unknown}; there are {', '.join(options.kind.names)}")
    if "bare" not in options.variants:
        options.variants = ["bare", *options.variants]
    return options


def whole_daemon(rig, lines, over):
    """What is no ratio."""
    progress("session start, idle daemon")
    run, clients = rig.session_start()
    lines += ["", f"- session start: {run:.1f} ms, two client starts {clients:.1f} ms (budget: 20 ms more)"]
    if run > clients + 20:
        over.append(f"session start: {run:.1f} ms against {clients:.1f} ms, budget 20 ms more")
    resident, wake_ups = rig.idle()
    lines.append(f"- idle daemon: {resident:.1f} MB resident (budget 25), {wake_ups} wake-ups in 10 s (budget 1)")
    if resident > 25:
        over.append(f"idle daemon: {resident:.1f} MB, budget 25")


def main():
    options = arguments()
    kind = options.kind
    if options.list:
        print("\n".join(kind.names))
        return 0
    build = pathlib.Path(os.environ.get("AGENTMON_BUILD", ROOT / "build")).resolve()
    over, lines = [], ["| work | " + " | ".join(kind.columns.values()) + " |", "|---" * (len(kind.columns) + 1) + "|"]
    with contextlib.ExitStack() as stack:
        folder, remove = harness.programs(build)
        stack.callback(remove)
        base = pathlib.Path(tempfile.mkdtemp(prefix="agentmon-bench-"))
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        base.chmod(0o755)
        rig = kind.rig(folder, base, options)
        stack.callback(rig.close)
        rig.prove()
        for name in options.only or kind.names:
            progress(f"{name}: preparing")
            workload = rig.workload(name)
            if workload is None:
                progress(f"{name}: its program is not installed; left out")
                continue
            lines.append(rows_of(workload, rig.measure(workload), kind.columns, over))
        lines += ["", "Median ratio [lower..upper quartile], and the added time of one operation."]
        if not options.only and kind is OBSERVED:
            whole_daemon(rig, lines, over)
    if not options.only and kind is OBSERVED:
        part_bench(build, "store_bench", "The store", lines)
        part_bench(build, "policy_bench", "Policies", lines)
    if not options.only and kind is NETWORK:
        part_bench(build, "network_bench", "Network rules of 1,000 sessions", lines)
    if over:
        lines += ["", "Over budget:", *(f"- {line}" for line in over)]
    report(options, kind.report, lines)
    for line in over:
        progress(f"over budget: {line}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
