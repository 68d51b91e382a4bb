"""The include check on small trees, and on this repository."""
import pathlib

import pytest

import includes

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = """# Architecture
| folder | what is in it | may use |
|---|---|---|
| `proto/` | messages | nothing |
| `common/base/` | status | absl, libc |
| `common/kernel/` | kernel objects | base |
| `bpf/` | programs | libbpf's headers |
| `daemon/event/` | events | common, proto, `bpf/event_abi.h` |
| `daemon/store/` | the store | event, sqlite |
| `daemon/app/` | main | all of daemon |
| `shim/`, `shim/stage/` | the shim | common |
"""


@pytest.fixture
def tree(tmp_path):
    """Makes a file in a small project and answers what the check says about it."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/architecture.md").write_text(TABLE)

    def findings(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return includes.check(tmp_path)

    return findings


@pytest.mark.parametrize("name, include", [
    ("daemon/event/decode.cc", "common/base/status.h"),
    ("daemon/event/decode.cc", "bpf/event_abi.h"),
    ("daemon/event/decode.cc", "agentmon/v1/event.pb.h"),
    ("daemon/store/store.cc", "sqlite3.h"),
    ("daemon/store/store.cc", "bpf/event_abi.h"),           # through event
    ("daemon/app/main.cc", "sqlite3.h"),                    # all of daemon
    ("daemon/store/store_test.cc", "tests/fake/fake_clock.h"),
    ("daemon/store/store_fixture.h", "tests/fake/fake_clock.h"),
    ("common/kernel/x_test.cc", "daemon/store/store_fixture.h"),
    ("bpf/process.bpf.c", "bpf/bpf_helpers.h"),
    ("shim/stage/seccomp.cc", "common/kernel/pid_fd.h"),
    ("common/base/log.cc", "sys/types.h"),
    ("tests/fixture/x.cc", "daemon/app/app.h"),
])
def test_an_include_that_the_table_allows_passes(tree, name, include):
    assert tree(name, f'#include "{include}"\n') == []


@pytest.mark.parametrize("name, include, says", [
    ("common/base/log.cc", "daemon/event/event.h", "common/base/ may not use daemon/event/"),
    ("common/base/log.cc", "common/kernel/pid_fd.h", "common/base/ may not use common/kernel/"),
    ("common/kernel/x.cc", "agentmon/v1/event.pb.h", "may not use proto/"),
    ("daemon/event/decode.cc", "daemon/store/store.h", "daemon/event/ may not use daemon/store/"),
    ("daemon/event/decode.cc", "sqlite3.h", "daemon/event/ may not use sqlite"),
    ("daemon/event/decode.cc", "bpf/process.skel.h", "may not use libbpf"),
    ("daemon/event/decode.cc", "bpf/core_types.h", "daemon/event/ may not use bpf/"),
    ("shim/main.cc", "daemon/event/event.h", "shim/ may not use daemon/event/"),
    ("shim/main.cc", "tests/fake/fake_clock.h", "only tests may use tests/"),
    ("daemon/event/decode.cc", "../store/store.h", "relative"),
])
def test_an_include_against_the_table_is_a_finding(tree, name, include, says):
    findings = tree(name, f'// first line\n#include "{include}"\n')
    assert len(findings) == 1
    assert findings[0].startswith(f"{name}:2: ") and says in findings[0]


def test_a_folder_that_the_table_does_not_name_is_a_finding(tree):
    assert tree("daemon/unknown/x.cc", "#include <vector>\n#include <map>\n") == [
        "daemon/unknown/x.cc:1: the table of folders has no row for this file"]


def test_generated_and_hidden_folders_are_not_read(tree):
    assert tree("build-asan/x.cc", '#include "daemon/store/store.h"\n') == []


def test_a_document_without_the_table_is_an_error(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/architecture.md").write_text("# Architecture\n")
    with pytest.raises(includes.TableError):
        includes.check(tmp_path)


def test_this_repository_keeps_to_its_table():
    assert includes.check(ROOT) == []
