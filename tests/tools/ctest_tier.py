#!/usr/bin/env python3
"""Runs the programs that ctest knows under a label and counts their test cases one by one.

Catch2 programs report each TEST_CASE; any other program is one case by its exit status. With --uid (as
root) the programs run as that uid, without groups and privileges. With --skip REASON the cases are only
listed and counted as skipped.
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(__file__))
import default_signals  # noqa: E402
import junit  # noqa: E402


def programs(build, label):
    """[(name, argv, properties)] in ctest's order; argv is None for a program that is not built."""
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", "-L", f"^{label}$"],
                             capture_output=True, text=True, check=True)
    found = []
    for test in json.loads(listing.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        found.append((test["name"], test.get("command"), properties))
    return found


def is_catch(build, argv):
    return len(argv) == 1 and pathlib.Path(argv[0]).parent == pathlib.Path(build).resolve() / "tests"


def failures_of(case):
    """The failed assertions of a Catch2 <TestCase>, as text."""
    lines = []
    for node in case.iter():
        if node.tag == "Expression" and node.get("success") == "false":
            lines.append(f"{node.get('filename')}:{node.get('line')}: "
                         f"{(node.findtext('Original') or '').strip()}  is  "
                         f"{(node.findtext('Expanded') or '').strip()}")
        elif node.tag in ("Failure", "FatalErrorCondition", "Exception"):
            lines.append(f"{node.get('filename')}:{node.get('line')}: {node.tag}: {(node.text or '').strip()}")
    return "\n".join(lines) or "failed"


def cases_of(xml):
    """The cases of a Catch2 XML report. A report that breaks off keeps its complete cases."""
    parser = ET.XMLPullParser(events=("end",))
    cases = []
    try:
        parser.feed(xml[xml.index("<?xml"):])
        for _, node in parser.read_events():
            if node.tag != "TestCase":
                continue
            result = node.find("OverallResult")
            good = result is not None and result.get("success") == "true"
            seconds = float(result.get("durationInSeconds", "0")) if result is not None else 0.0
            cases.append(junit.Case(node.get("name"), "pass" if good else "fail",
                                    "" if good else failures_of(node), seconds))
    except (ET.ParseError, ValueError):
        pass
    return cases


def prefix_for(options, scratch):
    if options.uid is None:
        return []
    os.chown(scratch, options.uid, options.uid)
    return ["setpriv", f"--reuid={options.uid}", f"--regid={options.uid}", "--clear-groups",
            "--inh-caps=-all", "--bounding-set=-all"]


def run_program(options, name, argv, properties):
    if argv is None:
        return [junit.Case(name, "fail", "not built")]
    catch = is_catch(options.build, argv)
    scratch = tempfile.mkdtemp(prefix="agentmon-test-")
    try:
        command = prefix_for(options, scratch) + options.wrap + argv
        if catch:
            command += ["-r", "xml", "-d", "yes"] + ([f"*{options.keyword}*"] if options.keyword else [])
        env = dict(os.environ, TMPDIR=scratch, HOME=scratch)
        env.update(e.split("=", 1) for e in properties.get("ENVIRONMENT", []))
        began = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, env=env, stdin=subprocess.DEVNULL,
                                  cwd=properties.get("WORKING_DIRECTORY", options.build),
                                  timeout=float(properties.get("TIMEOUT", 600)))
            status, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as expired:
            status, out, err = "a timeout", expired.stdout or b"", expired.stderr or b""
        tail = err.decode(errors="replace")[-4000:]
        cases = cases_of(out.decode(errors="replace")) if catch else []
        if not catch:
            tail = out.decode(errors="replace")[-2000:] + tail
            skip = properties.get("SKIP_RETURN_CODE")
            outcome = "pass" if status == 0 else "skip" if skip is not None and status == skip else "fail"
            cases = [junit.Case(name, outcome, "" if status == 0 else f"exit status {status}\n{tail}",
                                time.monotonic() - began)]
        elif status != 0 and not any(c.outcome == "fail" for c in cases):
            cases.append(junit.Case(f"{name} as a whole", "fail", f"ended with {status}\n{tail}"))
        return cases
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def listed(options, name, argv):
    if argv is None or not is_catch(options.build, argv):
        return [junit.Case(name, "skip", options.skip)]
    pattern = [f"*{options.keyword}*"] if options.keyword else []
    done = subprocess.run(argv + ["--list-test-names-only"] + pattern, capture_output=True, text=True, check=False)
    return [junit.Case(line.strip(), "skip", options.skip) for line in done.stdout.splitlines() if line.strip()]


def main():
    default_signals.restore()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="build folder")
    parser.add_argument("--label", required=True, help="ctest label: unit or host")
    parser.add_argument("--suite", required=True, help="name of the suite in the report")
    parser.add_argument("--out", required=True, help="JUnit file to write")
    parser.add_argument("--uid", type=int, help="run the programs as this uid")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--skip", help="do not run, count as skipped for this reason")
    parser.add_argument("-k", dest="keyword", help="only cases whose name contains this")
    parser.add_argument("--wrap", type=shlex.split, default=[], help="words to put before each program")
    parser.add_argument("--names", action="store_true", help="print the names of the programs and stop")
    options = parser.parse_args()
    options.build = str(pathlib.Path(options.build).resolve())

    found = programs(options.build, options.label)
    if options.names:
        print("\n".join(name for name, _, _ in found))
        return 0

    def one(item):
        name, argv, properties = item
        began = time.monotonic()
        cases = listed(options, name, argv) if options.skip else run_program(options, name, argv, properties)
        words = {"pass": "passed", "fail": "failed", "skip": "skipped"}
        counts = ", ".join(f"{n} {word}" for outcome, word in words.items()
                           if (n := sum(c.outcome == outcome for c in cases)))
        print(f"  {options.suite} {name}: {counts or 'no case'} ({time.monotonic() - began:.1f} s)", flush=True)
        for case in cases:
            if case.outcome == "fail":
                print(f"    FAILED {case.name}\n      " + case.message.strip().replace("\n", "\n      "), flush=True)
        return [junit.Case(f"{name}: {c.name}", c.outcome, c.message, c.seconds) for c in cases]

    with ThreadPoolExecutor(max_workers=max(1, options.jobs)) as pool:
        cases = [case for batch in pool.map(one, found) for case in batch]
    junit.write(options.out, options.suite, cases)
    return 1 if any(c.outcome == "fail" for c in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
