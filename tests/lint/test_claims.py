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
    """What is found for one way, when these cases passed."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests/testcase").mkdir(parents=True)
    (tmp_path / "results").mkdir()
    (tmp_path / "tests/test_a.py").write_text("")
    (tmp_path / "tests/b_test.cc").write_text('TEST_CASE("links are followed") {}\n')
    (tmp_path / "tests/c.sh").write_text("test_it_holds() {\n}\n")

    def found(way, passed=(), report="end-to-end", outcome="pass", suite="tests.host.test_a", made=True):
        (tmp_path / claims.WAYS).write_text(f'[[way]]\nkind = "way"\n{way}\n')
        table = claims.table(claims.read(tmp_path)) if made else claims.HEAD
        (tmp_path / claims.PAGE).write_text(f"# S\n{claims.TITLE}\nText.\n\n{table}\n## Other\n| x | closed |\n")
        junit.write(tmp_path / f"results/{report}.xml", suite, [junit.Case(name, outcome) for name in passed])
        return claims.faults(tmp_path, tmp_path / "results")
    return found


def test_what_is_said_to_be_closed_names_a_test(tree):
    assert "has no tests" in tree('both = "closed: by us"')[0]
    assert tree('both = "open, and not recorded"') == []
    assert tree('both = "refused"\ntests = ["test_a.py"]', ["test_way"]) == []
    assert "has no lsm_tests" in tree('fanotify = "open"\nlsm = "closed"\ntests = ["test_a.py"]', ["test_way"])[0]


def test_each_of_the_words_stands_in_the_name_of_a_case_that_passed(tree):
    way = 'both = "closed"\ntests = ["test_a.py: by a link, moved out"]'
    both = ["test_reads[by a link]", "test_it_moved_out"]
    assert tree(way, both) == []
    assert '"moved out"' in tree(way, both[:1])[0]
    assert len(tree(way, both, outcome="fail")) == 1
    assert tree(way, both, suite="tests.host.test_another") != []


def test_a_file_that_is_not_there_is_found(tree):
    assert "there is no test_gone.py" in tree('both = "closed"\ntests = ["test_gone.py: x"]')[0]


def test_cases_of_cpp_tests_and_of_the_guest_are_known_by_their_file(tree):
    way = 'both = "closed"\ntests = ["b_test.cc: followed"]'
    assert tree(way, ["x_test: links are followed"], "unit") == []
    assert tree(way, ["x_test: links are followed"], "unit", "fail") != []
    assert tree(way, ["x_test: another"], "unit") != []
    way = 'fanotify = "open"\nlsm = "closed"\nlsm_tests = ["c.sh: it holds"]'
    assert tree(way, ["main: it holds"], "vm") == []
    assert tree(way, ["main: another"], "vm") != []


def test_a_tier_that_did_not_run_is_not_asked(tree):
    assert tree('both = "closed"\ntests = ["b_test.cc: whatever"]') == []


def test_a_page_that_is_not_what_the_file_makes_is_found(tree):
    way = 'fanotify = "open"\nlsm = "as well"\nopen = "a part"'
    assert tree(way) == []
    assert "claims.py --write" in tree(way, made=False)[0]


def test_a_key_that_means_nothing_and_hosts_told_twice_are_mistakes(tree):
    for way in ('both = "open"\nclosed = "yes"', 'both = "open"\nfanotify = "open"', 'lsm = "open"'):
        with pytest.raises(AssertionError):
            tree(way)


def test_the_page_of_this_repository_is_made_of_its_file_and_names_tests(tmp_path):
    assert claims.faults(ROOT, tmp_path) == []
    assert len(claims.read(ROOT)) > 40
