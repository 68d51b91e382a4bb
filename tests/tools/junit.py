#!/usr/bin/env python3
"""JUnit files of one test run: writes single cases, adds everything up.

  junit.py case FILE SUITE NAME pass|fail|skip [MESSAGE]   write a file with one case
  junit.py sum DIR                                         print the cases that failed and the closing line

`sum` exits 1 when a case failed. A file that cannot be read counts as one failed case.
"""
import pathlib
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass

# Characters that XML 1.0 cannot carry.
_CONTROL = {c: "?" for c in range(32) if c not in (9, 10, 13)}


def clean(text):
    return text.translate(_CONTROL).encode("utf-8", "replace").decode()


@dataclass
class Case:
    name: str
    outcome: str  # pass, fail, skip
    message: str = ""
    seconds: float = 0.0


def write(path, suite, cases):
    root = ET.Element("testsuites")
    node = ET.SubElement(root, "testsuite", name=suite, tests=str(len(cases)),
                         failures=str(sum(c.outcome == "fail" for c in cases)),
                         skipped=str(sum(c.outcome == "skip" for c in cases)))
    for case in cases:
        item = ET.SubElement(node, "testcase", classname=suite, name=clean(case.name), time=f"{case.seconds:.3f}")
        if case.outcome == "fail":
            lines = case.message.strip().splitlines()
            ET.SubElement(item, "failure", message=clean(lines[0] if lines else "")).text = clean(case.message)
        elif case.outcome == "skip":
            ET.SubElement(item, "skipped", message=clean(case.message))
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def read(path):
    """The cases of one file, those of pytest included."""
    try:
        root = ET.parse(path).getroot()
    except (ET.ParseError, OSError) as error:
        return [Case(f"{path}", "fail", f"cannot be read: {error}")]
    cases = []
    for item in root.iter("testcase"):
        name = f"{item.get('classname', '')}: {item.get('name', '')}"
        bad = item.find("failure") if item.find("failure") is not None else item.find("error")
        skipped = item.find("skipped")
        if bad is not None:
            cases.append(Case(name, "fail", bad.get("message", "")))
        elif skipped is not None:
            cases.append(Case(name, "skip", skipped.get("message", "")))
        else:
            cases.append(Case(name, "pass"))
    return cases


def summarise(directory):
    cases = [case for path in sorted(pathlib.Path(directory).glob("*.xml")) for case in read(path)]
    failed = [case for case in cases if case.outcome == "fail"]
    reasons = {}
    for case in cases:
        if case.outcome == "skip":
            reasons[case.message] = reasons.get(case.message, 0) + 1
    for reason, count in sorted(reasons.items()):
        print(f"skipped: {count} ({reason})")
    for case in failed:
        first = case.message.splitlines()[0] if case.message else ""
        print(f"failed: {case.name}: {first}"[:300])
    passed = sum(case.outcome == "pass" for case in cases)
    print(f"{passed} passed, {len(failed)} failed, {sum(reasons.values())} skipped")
    return 1 if failed else 0


def main(argv):
    if len(argv) == 2 and argv[0] == "sum":
        return summarise(argv[1])
    if len(argv) in (5, 6) and argv[0] == "case" and argv[4] in ("pass", "fail", "skip"):
        write(argv[1], argv[2], [Case(argv[3], argv[4], argv[5] if len(argv) == 6 else "")])
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
