#!/usr/bin/env python3
"""What docs/security-model.md claims, against the tests that it names.

  claims.py RESULTS    exit 1 when a row of "Ways round" that says closed or refused names no test, or one that is not
                       among the passed cases of the JUnit files in RESULTS

A row names tests in parentheses: (test_x.py: words, other words; y_test.cc: words; z.sh: words). Each of the words stands in
the name of a case of that file, `_` and space being one; without words any case of it counts. A tier that did not run (no report
of it in RESULTS) is not asked: host for .py, unit and host for .cc, the virtual machine for .sh.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import junit  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE, TITLE = "docs/security-model.md", "## Ways round"
CLAIM = re.compile(r"\b(closed|refused|dropped)\b", re.I)
CITED = re.compile(r"\b(\w+\.(?:py|cc|sh))(?::([^;)]*))?")
REPORTS = {"py": ["end-to-end.xml"], "cc": ["unit.xml", "host.xml"], "sh": ["vm.xml"]}


def rows(text):
    """[(line number, kind, what is said of it)] of the table below the title."""
    found, inside = [], False
    for number, line in enumerate(text.splitlines(), 1):
        inside = line == TITLE or (inside and not line.startswith("## "))
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if inside and line.startswith("|") and len(cells) == 2 and not set(cells[0]) <= set("- "):
            found.append((number, *cells))
    return found[1:]  # the head


def citations(text):
    """[(file, [words])] of one row."""
    found = []
    for inner in re.findall(r"\(([^()]*\.(?:py|cc|sh)[^()]*)\)", text):
        last = None
        for part in re.split(r"[;,]", inner):
            cited = CITED.search(part)
            if cited:
                last = (cited.group(1), [])
                found.append(last)
                words = (cited.group(2) or "").strip()
            else:
                words = part.strip()
            if last and words:
                last[1].append(words)
    return found


def plain(name):
    return name.lower().replace("_", " ")


def file_of(name, root):
    return next((p for p in root.glob(f"**/{name}") if not p.relative_to(root).parts[0].startswith("build")), None)


def passed_cases(name, root, results):
    """The passed cases of a test file, plain; None when its tier did not run."""
    suffix = name.rsplit(".", 1)[1]
    reports = [results / report for report in REPORTS[suffix] if (results / report).exists()]
    if not reports:
        return None
    passed = [case.name for report in reports for case in junit.read(report) if case.outcome == "pass"]
    if suffix == "py":
        module = re.compile(rf"\b{name[:-3]}: ")
        return [plain(case) for case in passed if module.search(case)]
    text = file_of(name, root).read_text()
    own = re.findall(r'TEST_CASE\("([^"]+)"', text) if suffix == "cc" else re.findall(r"^test_(\w+)\(\)", text, re.M)
    return [plain(case) for case in passed if any(plain(case).endswith(plain(mine)) for mine in own)]


def faults(root, results):
    out = []
    for number, kind, said in rows((root / PAGE).read_text()):
        cited = citations(said)
        if CLAIM.search(said) and not cited:
            out.append(f"{PAGE}:{number}: {kind}: says closed or refused, and names no test")
        for name, words in cited:
            if file_of(name, root) is None:
                out.append(f"{PAGE}:{number}: {kind}: there is no {name}")
                continue
            cases = passed_cases(name, root, results)
            if cases is None:
                continue
            if not cases:
                out.append(f"{PAGE}:{number}: {kind}: no case of {name} passed")
            out += [f"{PAGE}:{number}: {kind}: no case of {name} that passed has \"{wanted}\" in its name"
                    for wanted in words if cases and not any(plain(wanted) in case for case in cases)]
    return out


def main(argv):
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    found = faults(ROOT, pathlib.Path(argv[0]))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
