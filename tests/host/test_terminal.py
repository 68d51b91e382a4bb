"""agentmon run on a real terminal: each check of run_pty_test.py, with agentmon and, as its control, without."""
import os
import pathlib
import re

import pytest

import harness

SCRIPT = pathlib.Path(__file__).parent / "run_pty_test.py"
CHECKS = re.findall(r"\w+", re.search(r"^CHECKS = \[(.*?)\]", SCRIPT.read_text(), re.S | re.M).group(1))
ONLY_WITH_US = {"line_at_the_end"}


def run(check, wrapper, work, scripts):
    # The script is read by an ordinary user, who may not reach the checkout.
    copy = scripts / SCRIPT.name
    copy.write_bytes(SCRIPT.read_bytes())
    words = [*harness.as_user(harness.UID), "/usr/bin/python3", "-B", str(copy), check]
    return harness.call(words, cwd=work, timeout=90, env={**os.environ, "AM": " ".join(wrapper), "HOME": str(work)})


@pytest.mark.parametrize("check", CHECKS)
def test_on_a_terminal(daemon, work, scripts, check):
    wrapper = [str(daemon.bin / "agentmon"), "--socket", str(daemon.socket), "run", "--"]
    result = run(check, wrapper, work, scripts)
    assert result.status == 0, result


@pytest.mark.parametrize("check", [c for c in CHECKS if c not in ONLY_WITH_US])
def test_control_without_agentmon(work, scripts, check):
    result = run(check, [], work, scripts)
    assert result.status == 0, result
