#!/usr/bin/env python3
"""Checks every #include of C and C++ files against the table "Folders" in docs/architecture.md.

  includes.py [ROOT]     print one line per include that the table does not allow; exit 1 when there is one

A folder may use what its row names and, through it, what those folders may use. Libraries that some row
names (gRPC, sqlite, libbpf, libseccomp) may be included only where a row names them; other libraries and libc
are free. Tests beside the sources (x_test.cc, x_fixture.h) may
also use tests/ and the fixtures of other folders, files below tests/ everything.
"""
import pathlib
import re
import sys

# Libraries that the table may confine, by the word it uses for them.
LIBRARIES = {
    "gRPC": r"grpc(pp|\+\+)?/|.*\.grpc\.pb\.h$",
    "sqlite": r"sqlite3(ext)?\.h$",
    "libbpf": r"bpf/(libbpf|libbpf_common|libbpf_legacy|libbpf_version|bpf|btf|bpf_\w+)\.h$|.*\.skel\.h$",
    "libseccomp": r"seccomp\.h$",
    "ldns": r"ldns/",
    "Boost": r"boost/",
    "c-ares": r"ares(_\w+)?\.h$",
}
PROTO = re.compile(r"(agentmon/v1|google/rpc)/\w+(\.grpc)?\.pb\.h$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">]+)[">]', re.MULTILINE)
TEST_FILE = re.compile(r"_(test\.cc|fixture\.(h|cc))$")
SUFFIXES = {".h", ".cc", ".c"}


class TableError(Exception):
    pass


def rows_of(text):
    """{folder: [words]} from the Markdown table that starts with | folder |."""
    lines = iter(text.splitlines())
    for line in lines:
        if re.match(r"\|\s*folder\s*\|", line):
            break
    else:
        raise TableError("no table with a column 'folder'")
    next(lines, None)  # |---|
    rows = {}
    for line in lines:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        folders = [name.strip("/") for name in re.findall(r"`([^`]+)`", cells[0])]
        words = [word.strip().strip("`").removesuffix("'s headers") for word in cells[-1].split(",")]
        for folder in folders:
            rows[folder] = [word for word in words if word not in ("nothing", "libc", "")]
    if not rows:
        raise TableError("the table of folders is empty")
    return rows


class Table:
    def __init__(self, text):
        self.rows = rows_of(text)
        self._confined = {word for words in self.rows.values() for word in words if word in LIBRARIES}
        self._closure = {}

    def folder_of(self, path):
        """The row that a file belongs to: the longest that is a prefix of its folder."""
        parts = pathlib.PurePosixPath(path).parent.parts
        for length in range(len(parts), 0, -1):
            name = "/".join(parts[:length])
            if name in self.rows:
                return name
        return None

    def named(self, word):
        """The folders that a word of the table stands for."""
        if word.startswith("all of "):
            top = word.removeprefix("all of ")
            return [f for f in self.rows if f.startswith(top + "/")]
        exact = [f for f in self.rows if f == word or f.endswith("/" + word)]
        return exact or [f for f in self.rows if f.startswith(word + "/")]

    def allowed(self, folder):
        """(folders, single files, libraries) that a folder may use."""
        if folder in self._closure:
            return self._closure[folder]
        self._closure[folder] = ({folder}, set(), set())  # ends cycles
        folders, files, libraries = {folder}, set(), set()
        for word in self.rows[folder]:
            if word in LIBRARIES:
                libraries.add(word)
                continue
            if word.endswith(".h"):
                files.add(word)
                continue
            for used in self.named(word):
                below = self.allowed(used)
                folders |= below[0]
                files |= below[1]
                if word.startswith("all of "):
                    libraries |= below[2]
        self._closure[folder] = (folders, files, libraries)
        return self._closure[folder]

    def refuse(self, path, include):
        """Why a file may not have this include; None when it may."""
        if path.startswith("tests/"):
            return None
        folder = self.folder_of(path)
        folders, files, libraries = self.allowed(folder)
        if include.startswith(("../", "./")) or "/../" in include:
            return "names its target relative to the file; includes start at the root"
        for word in self._confined:
            if re.match(LIBRARIES[word], include):
                if word in libraries:
                    break
                return f"{folder}/ may not use {word}"
        if PROTO.match(include):
            return None if "proto" in folders else f"{folder}/ may not use proto/"
        if include in files:
            return None
        if include.startswith("tests/"):
            return None if TEST_FILE.search(path) else "only tests may use tests/"
        if TEST_FILE.search(path) and include.endswith("_fixture.h"):
            return None
        target = self.folder_of(include)
        if target is None or target in folders:
            return None
        if target == "bpf" and re.match(LIBRARIES["libbpf"], include):
            return None  # libbpf's own <bpf/...> headers, judged above
        return f"{folder}/ may not use {target}/"


def sources(root):
    skip = re.compile(r"(build[^/]*|\.[^/]+)(/|$)")
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix in SUFFIXES and not skip.match(name) and path.is_file():
            yield name


def check(root):
    root = pathlib.Path(root)
    table = Table((root / "docs/architecture.md").read_text())
    findings = []
    for name in sources(root):
        if not name.startswith("tests/") and table.folder_of(name) is None:
            findings.append(f"{name}:1: the table of folders has no row for this file")
            continue
        text = (root / name).read_text(errors="replace")
        for match in INCLUDE.finditer(text):
            why = table.refuse(name, match.group(1))
            if why:
                line = text.count("\n", 0, match.start()) + 1
                findings.append(f'{name}:{line}: "{match.group(1)}": {why}')
    return findings


def main(argv):
    root = pathlib.Path(argv[0]) if argv else pathlib.Path(__file__).resolve().parents[2]
    try:
        findings = check(root)
    except (TableError, OSError) as error:
        print(f"docs/architecture.md: {error}", file=sys.stderr)
        return 2
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
