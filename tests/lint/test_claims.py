"""What a page claims against what ran, on a small tree; the page of this repository against its tests' files."""
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import claims  # noqa: E402
import junit  # noqa: E402


@pytest.fixture
def tree(tmp_path):
    """What is found for one row, when these cases passed."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "tests/test_a.py").write_text("")
    (tmp_path / "tests/b_test.cc").write_text('TEST_CASE("links are followed") {}\n')

    def found(row, passed=(), report="end-to-end", outcome="pass", suite="tests.host.test_a"):
        (tmp_path / "docs/security-model.md").write_text(f"# S\n## Ways round\n| kind | by |\n|---|---|\n{row}\n## Other\n| x | closed |\n")
        junit.write(tmp_path / f"results/{report}.xml", suite, [junit.Case(name, outcome) for name in passed])
        return claims.faults(tmp_path, tmp_path / "results")
    return found


def test_a_row_that_says_closed_names_a_test(tree):
    assert "names no test" in tree("| way | closed: by us |")[0]
    assert tree("| way | open, and not recorded |") == []
    assert tree("| way | refused (test_a.py) |", ["test_way"]) == []


def test_each_of_the_words_stands_in_the_name_of_a_case_that_passed(tree):
    row = "| way | closed (test_a.py: by a link, moved out) |"
    both = ["test_reads[by a link]", "test_it_moved_out"]
    assert tree(row, both) == []
    assert '"moved out"' in tree(row, both[:1])[0]
    assert len(tree(row, both, outcome="fail")) == 1
    assert tree(row, both, suite="tests.host.test_another") != []


def test_a_file_that_is_not_there_is_found(tree):
    assert "there is no test_gone.py" in tree("| way | closed (test_gone.py: x) |")[0]


def test_cases_of_cpp_tests_are_known_by_their_file(tree):
    row = "| way | closed (b_test.cc: followed) |"
    assert tree(row, ["x_test: links are followed"], "unit") == []
    assert tree(row, ["x_test: links are followed"], "unit", "fail") != []
    assert tree(row, ["x_test: another"], "unit") != []


def test_a_tier_that_did_not_run_is_not_asked(tree):
    assert tree("| way | closed (b_test.cc: whatever) |") == []


def test_the_page_of_this_repository_names_tests(tmp_path):
    assert claims.faults(ROOT, tmp_path) == []
    assert len(claims.rows((ROOT / claims.PAGE).read_text())) > 40
