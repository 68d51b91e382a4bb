"""What the package, the units and their pages say of each other."""
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPERATIONS = (ROOT / "docs/operations.md").read_text()
HARDENING = (ROOT / "docs/hardening.md").read_text()
PACKAGING = (ROOT / "packaging/CMakeLists.txt").read_text()


def table_after(text, heading):
    """The rows of the first table after a heading, as lists of cells."""
    rows = []
    for line in text[text.index(heading):].splitlines()[1:]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def installed():
    """The files that packaging/CMakeLists.txt installs, as absolute paths; a glob for its variables."""
    paths = set()
    for kind, words in re.findall(r"^install\((TARGETS|FILES)\s+(.*?)\)$", PACKAGING, re.M | re.S):
        files, destination = words.split("DESTINATION", 1)
        folder, *rest = destination.split()
        folder = folder if folder.startswith("/") else f"/usr/{folder}"
        names = [rest[1]] if rest[:1] == ["RENAME"] else [pathlib.PurePosixPath(f).name for f in files.split()]
        paths |= {f"{folder}/{name}" for name in names}
    return paths


def test_the_configuration_reference_has_every_key_with_its_default():
    keys = dict(re.findall(r'\{"([a-z_.]+)",\s*"([^"]*)"', (ROOT / "daemon/app/config_keys.cc").read_text()))
    documented = {row[0].strip("`"): row[1].strip("`") for row in table_after(OPERATIONS, "## Configuration")}
    assert set(documented) == set(keys)
    for key, default in keys.items():
        said = documented[key].replace("RUNTIME_DIR", "/run/agentmon")
        assert said == (default or "none"), key


def test_the_shipped_configuration_names_every_key():
    text = (ROOT / "packaging/agentmond.yaml").read_text()
    for key in re.findall(r'\{"([a-z_.]+)",', (ROOT / "daemon/app/config_keys.cc").read_text()):
        assert re.search(rf"^#\s*{key.split('.')[-1]}:", text, re.M), key


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_every_option_that_the_unit_does_not_take_is_explained():
    table = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", "systemd/agentmon.service"],
                           cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if "NAME" not in table:
        pytest.skip("this systemd-analyze cannot look at a file")
    missing = []
    for line in table.splitlines():
        found = re.match(r"✗ (\w+)=\S*", line)
        if found and f"`{found[1]}" not in HARDENING:
            missing.append(line.split("  ")[0])
    assert missing == []


def test_each_capability_of_the_unit_has_its_reason():
    unit = (ROOT / "systemd/agentmon.service").read_text()
    for capability in re.findall(r"CAP_(\w+)", "\n".join(re.findall(r"^CapabilityBoundingSet=.*$", unit, re.M))):
        assert f"`{capability}`" in HARDENING, capability


def test_units_and_files_that_operations_names_are_installed():
    paths = installed()
    for unit in ("agentmon.service", "agentmon.socket", "agentmon.slice"):
        assert f"/usr/lib/systemd/system/{unit}" in paths
        assert f"`{unit}`" in OPERATIONS
    assert "/usr/lib/systemd/user/agentmon.service" in paths
    assert "/usr/lib/sysctl.d/60-agentmon.conf" in paths
    assert "/usr/share/agentmon/apparmor/agentmon" in paths


INSTRUCTIONS = {"ARG", "FROM", "COPY", "RUN", "VOLUME", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT"}


def instructions():
    text = (ROOT / "packaging/container/Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line.split(None, 1) for line in "\n".join(lines).replace("\\\n", " ").splitlines()]


def test_the_container_file_parses_and_starts_what_the_package_has():
    words = instructions()
    assert {word for word, _ in words} <= INSTRUCTIONS
    assert [word for word, _ in words][:2] == ["ARG", "FROM"]
    paths = installed()
    for word, rest in words:
        for program in re.findall(r'"(/usr/[^"]+)"', rest):
            assert program in paths, f"{word} {rest}"
    # What is copied in is the package itself, by the name that ./dev package gives it.
    (copied,) = [rest.split()[0] for word, rest in words if word == "COPY"]
    assert pathlib.PurePosixPath("agentmon_1.2.3-1_amd64.deb").match(copied)


def test_a_container_without_privileges_gets_the_capabilities_of_the_unit():
    unit = (ROOT / "systemd/agentmon.service").read_text()
    wanted = set(re.findall(r"CAP_(\w+)", "\n".join(re.findall(r"^CapabilityBoundingSet=.*$", unit, re.M))))
    assert set(re.findall(r"--cap-add=(\w+)", OPERATIONS)) == wanted


@pytest.mark.skipif(shutil.which("apparmor_parser") is None, reason="needs apparmor_parser")
def test_the_apparmor_profile_is_well_formed_but_for_what_parser_3_does_not_know(tmp_path):
    text = (ROOT / "packaging/apparmor/agentmon").read_text()
    plain = tmp_path / "agentmon"
    plain.write_text(re.sub(r"^abi .*\n|^ *userns,\n", "", text, flags=re.M))
    for name in ("agentmon-ns", "agentmon-shim"):
        assert f"/usr/libexec/agentmon/{name}" in installed()
    parsed = subprocess.run(["apparmor_parser", "--skip-kernel-load", "--skip-cache", plain], capture_output=True,
                            text=True, check=False)
    assert parsed.returncode == 0, parsed.stderr
