#!/usr/bin/env python3
"""What tests/testcase/ways.toml claims, against the tests that it names, and the table that docs/security-model.md has of it.

  claims.py RESULTS    exit 1 when a way that is said to be closed, refused, dropped, killed or unset names no test, or one that
                       is not among the passed cases of the JUnit files in RESULTS, or the page is not what is made of the file
  claims.py --write    makes the table of the page anew

A tier that did not run (no report of it in RESULTS) is not asked: host for .py, unit and host for .cc, the virtual machine for .sh.
"""
import pathlib
import re
import sys
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import junit  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE, WAYS, TITLE = "docs/security-model.md", "tests/testcase/ways.toml", "## Ways round"
HEAD = "| kind | host | what becomes of it | tests |\n|---|---|---|---|\n"
CLAIM = re.compile(r"\b(closed|refused|dropped|killed|unset)\b", re.I)
REPORTS = {"py": ["end-to-end.xml"], "cc": ["unit.xml", "host.xml"], "sh": ["vm.xml"]}
KEYS = {"kind", "both", "user", "fanotify", "lsm", "open", "tests", "lsm_tests"}


def read(root):
    """The ways, each with the keys that the file explains."""
    ways = tomllib.loads((root / WAYS).read_text())["way"]
    for way in ways:
        wrong = way.keys() - KEYS
        told = [key for key in ("both", "user", "fanotify") if key in way]
        assert not wrong and len(told) == 1 and way["kind"], f"{WAYS}: {way.get('kind')}: {wrong or told}"
    return ways


def table(ways):
    """Markdown: a row for each host that a way is told of apart."""
    lines = []
    for way in ways:
        tests, lsm_tests = way.get("tests", []), way.get("lsm_tests", [])
        rows = [("without BPF LSM", way["fanotify"], tests)] if "fanotify" in way else []
        rows += [(host, way[key], tests + lsm_tests) for key, host in (("both", "all"), ("user", "a user's daemon")) if key in way]
        if "lsm" in way:
            rows.append(("BPF LSM", way["lsm"], lsm_tests))
        for number, (host, said, cited) in enumerate(rows):
            stays = f". Open: {way['open']}" if "open" in way and number == len(rows) - 1 else ""
            lines.append(f"| {way['kind'] if number == 0 else ''} | {host} | {said}{stays} | {'; '.join(cited)} |\n")
    return HEAD + "".join(lines)


def with_table(page, made):
    """The page with this table below the title and its text, in place of the one that is there."""
    before, after = page.split(TITLE + "\n", 1)
    text, _, rest = after.partition("\n|")
    rest = re.sub(r"\A[^\n]*\n(\|[^\n]*\n)*", "", rest)
    return f"{before}{TITLE}\n{text}\n{made}{rest}"


def citation(text):
    """(file, [words])"""
    name, _, words = text.partition(":")
    return name.strip(), [word.strip() for word in words.split(",") if word.strip()]


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
    ways = read(root)
    page = (root / PAGE).read_text()
    if with_table(page, table(ways)) != page:
        out.append(f"{PAGE}: its table is not that of {WAYS}: tests/tools/claims.py --write")
    for way in ways:
        for said, tests in ((way.get("both") or way.get("user") or way.get("fanotify"), "tests"), (way.get("lsm"), "lsm_tests")):
            if said and CLAIM.search(said) and not way.get(tests):
                out.append(f"{WAYS}: {way['kind']}: '{said}' has no {tests}")
        for name, words in map(citation, way.get("tests", []) + way.get("lsm_tests", [])):
            if file_of(name, root) is None:
                out.append(f"{WAYS}: {way['kind']}: there is no {name}")
                continue
            cases = passed_cases(name, root, results)
            if cases is None:
                continue
            if not cases:
                out.append(f"{WAYS}: {way['kind']}: no case of {name} passed")
            out += [f"{WAYS}: {way['kind']}: no case of {name} that passed has \"{wanted}\" in its name"
                    for wanted in words if cases and not any(plain(wanted) in case for case in cases)]
    return out


def main(argv):
    if argv == ["--write"]:
        page = ROOT / PAGE
        page.write_text(with_table(page.read_text(), table(read(ROOT))))
        return 0
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    found = faults(ROOT, pathlib.Path(argv[0]))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
