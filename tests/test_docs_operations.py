"""The pages on running a gateway: commands print what is shown, and tables have what the code has."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.backup.manifest_rules import FORM, Manifest
from gateway.doctor.engine_rules import ABOUT as ENGINE
from gateway.main.reload_rules import LIVE_NAMES, LIVE_SECTIONS
from gateway.main.start_check import SETTINGS
from tests.test_docs_spaces import steps_of

ROOT = Path(__file__).parent.parent
HOW_TO = (ROOT / "docs" / "how-to" / "back-up-and-restore.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "operations.md").read_text()
PATIENCE_S = 60
DIFFERS = {  # from run to run
    r"\d{8}T\d{6}Z": r"\d{8}T\d{6}Z",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ",
    r"\d+ files": r"\d+ files",
    r"\d+ bytes": r"\d+ bytes",
}


def shows(shown: str, printed: str) -> bool:
    parts = re.split(f"({'|'.join(DIFFERS)})", shown)
    pattern = "".join(
        next((instead for form, instead in DIFFERS.items() if re.fullmatch(form, part)), re.escape(part))
        for part in parts
    )
    return re.fullmatch(pattern, printed) is not None


@contextmanager
def gateway(folder: Path) -> Iterator[None]:
    command = [
        sys.executable,
        "-m",
        "gateway.commands.cli",
        "serve",
        "--http",
        "127.0.0.1:0",
        "--devices",
        "127.0.0.1:0",
    ]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("agents")
        yield
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def run(folder: Path, command: str) -> str:
    """With `heliograph` by its name, on ports that are free."""
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin" / "heliograph"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gateway.commands.cli "$@"\n')
    program.chmod(0o755)
    listen = "HELIOGRAPH_HTTP_LISTEN=127.0.0.1:0 HELIOGRAPH_DEVICES_LISTEN=127.0.0.1:0"
    script = f"export PATH={folder}/bin:$PATH PYTHONPATH={ROOT} {listen}\n{command}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HELIOGRAPH_DATA", "HELIOGRAPH_OPERATOR_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_backup_and_restore_print_what_the_page_shows(tmp_path: Path) -> None:
    steps = [
        (command.strip(), re.sub("^   ", "", shown, flags=re.MULTILINE))
        for command, shown in steps_of(re.sub(r"^   (?=\S)", "", HOW_TO, flags=re.MULTILINE))
    ]
    assert [command.split()[1] for command, _ in steps] == ["backup", "restore", "restore", "serve"]
    (take, taken), *others = steps
    with gateway(tmp_path):
        printed = run(tmp_path, take)
        assert shows(taken, printed), printed
    (made,) = tmp_path.glob("heliograph-backup-*.tar")
    for command, shown in others:
        printed = run(tmp_path, re.sub(r"heliograph-backup-\w+\.tar", made.name, command))
        assert shows(shown, printed), printed


def test_reference_lists_every_live_setting() -> None:
    table = REFERENCE.partition("| live setting |")[2].partition("\n\n")[0]
    listed = set(re.findall(r"`([^`]+)`", "\n".join(line.split("|")[1] for line in table.splitlines()[2:])))
    assert listed == {*(f"[{section}]" for section in LIVE_SECTIONS), *LIVE_NAMES}


def test_reference_has_every_field_of_the_manifest_and_its_form() -> None:
    table = REFERENCE.partition("| field of the manifest |")[2].partition("\n\n")[0]
    fields = [
        name for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    ]
    assert fields == list(Manifest.__struct_fields__)
    assert f"| `form` | {FORM} |" in table


def test_reference_has_every_log_event_of_these_modules() -> None:
    modules = [
        *(ROOT / "gateway" / "backup").glob("*.py"),
        ROOT / "gateway/api/admin_backup.py",
        ROOT / "gateway/main/reload.py",
    ]
    said = {event for module in modules for event in re.findall(r'log\.\w+\(\s*"(\w+)"', module.read_text())}
    table = REFERENCE.partition("## Log events")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == said


def test_reference_names_everything_that_findings_are_about() -> None:
    modules = [*(ROOT / "gateway" / "doctor").glob("*.py"), ROOT / "gateway/main/start_check.py"]
    pattern = re.compile(r'Finding\(\s*(?:[\w.]+(?: if [^,]+)?),\s*"([\w ]+)"')
    about = {word for module in modules for word in pattern.findall(module.read_text())}
    assert len(about) >= 10
    table = REFERENCE.partition("| about |")[2].partition("\n\n")[0]
    listed = {
        word for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for word in re.findall(r"`([^`]+)`", row)
    }
    named = {*re.findall(r'^ {8}\("([\w ]+)", lambda', modules[-1].read_text(), re.MULTILINE), SETTINGS, ENGINE}
    assert listed == about | named
