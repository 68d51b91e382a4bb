"""Secrets do not reach the timeline, nor the file that it is stored in."""
import pytest

from harness import select

SECRETS = {
    "an option with a value": ["--password=hunter2-e2e-secret-a"],
    "an option before its value": ["--password", "hunter2-e2e-secret-b"],
    "a token option": ["--token=e2e-secret-token-c-0123456789"],
    "user information of an address": ["https://user:e2e-secret-d@example.invalid/path"],
    "an authorization header": ["-H", "Authorization: Bearer e2e-secret-e-0123456789abcdef"],
    "a GitHub token": ["ghp_e2eSecretF0123456789abcdefghijABCDEF"],
    "an AWS key": ["AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/e2eSecretGEXAMPLEKEY"],
    "an API key": ["sk-ant-api03-e2eSecretH0123456789abcdefghijklmnopqrstuvwxyz"],
}
WORDS = ["hunter2-e2e-secret-a", "hunter2-e2e-secret-b", "e2e-secret-token-c", "e2e-secret-d", "e2e-secret-e-0123",
         "e2eSecretF", "e2eSecretG", "e2eSecretH"]


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_on_a_command_line_is_not_in_the_rows(daemon, work, kind):
    rows = daemon.recorded("true", "kept", *SECRETS[kind], "also-kept", cwd=work)
    (row,) = [r for r in select(rows, kind="exec") if r["exe"].endswith("/true")]
    text = str(rows)
    assert not [w for w in WORDS if w in text], row["argv"]
    assert row["redacted"] is True
    assert row["argv"][:2] == ["true", "kept"] and row["argv"][-1] == "also-kept"


def test_an_ordinary_command_line_is_not_touched(daemon, work):
    argv = ["true", "--passive", "password", "https://example.invalid/a?b=c", "-p", "8080", "user@host:path"]
    rows = daemon.recorded(*argv, cwd=work)
    (row,) = [r for r in select(rows, kind="exec") if r["exe"].endswith("/true")]
    assert row["argv"] == argv and "redacted" not in row


def test_no_secret_is_in_the_session_list_or_in_the_stored_file(own_daemon, work):
    for argv in SECRETS.values():
        own_daemon.recorded("true", *argv, cwd=work)
    listed = own_daemon.am("session", "list", "--all", "--json").out
    own_daemon.stop()
    stored = b"".join(p.read_bytes() for p in own_daemon.state.rglob("*") if p.is_file())
    left = b"".join(p.read_bytes() for p in own_daemon.runtime.rglob("*") if p.is_file())
    for word in WORDS:
        assert word.encode() not in listed
        assert word.encode() not in stored
        assert word.encode() not in left
        assert word not in own_daemon.log_text()
