"""The tutorial of echo spaces, run as a newcomer runs it: commands print what is shown, its program does its work."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.gateway import Gateway, Space

ROOT = Path(__file__).parent.parent
TUTORIAL = (ROOT / "docs" / "tutorial" / "a-room-for-two-agents-and-a-person.md").read_text()
PATIENCE_S = 60
DIFFERS = {  # from run to run
    r"\d{4}-\d\d-\d\dT[\d:]+\.\d{3}Z": r"[\d:.TZ-]{24}",
    r"01[0-9a-z]{24}": r"01[0-9a-z]{24}",
    r"01[0-9A-Z]{24}": r"01[0-9A-Z]{24}",
    r"e[si]_[\w-]+…": r"e[si]_[\w-]{43}",
    r"localhost:8420": r"localhost:\d+",
    r"…": r".*",
}


def pattern_of(shown: str) -> str:
    parts = re.split(f"({'|'.join(DIFFERS)})", shown)
    return "".join(
        next((instead for form, instead in DIFFERS.items() if re.fullmatch(form, part)), re.escape(part))
        for part in parts
    )


class Shell:
    """Runs the commands of a page in a folder whose `.venv` is the environment of this test."""

    def __init__(self, folder: Path, gateway: Gateway) -> None:
        self._folder = folder
        self._url = gateway.url
        self._variables = f"export PYTHONPATH={ROOT}"
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        for name, arguments in (("python", ""), ("heliograph", " -m gateway.commands.cli")):
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable}{arguments} "$@"\n')
            (programs / name).chmod(0o755)

    def keep(self, assignments: str) -> None:
        self._variables += f"\n{assignments}"

    def run(self, command: str) -> str:
        if re.fullmatch(r"\w+=\$\(.*\)", command):
            self.keep(command)
            return ""
        process = self.start(command)
        printed, complaints = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, complaints) == (0, "")
        return printed

    def start(self, command: str) -> subprocess.Popen[str]:
        script = f"{self._variables}\n{command.replace('http://localhost:8420', self._url)}"
        pipe, shell = subprocess.PIPE, ["bash", "-c", script]
        return subprocess.Popen(shell, cwd=self._folder, text=True, stdout=pipe, stderr=pipe)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    one = Gateway(tmp_path)
    one.start()
    yield one
    one.end()


def steps_of(page: str) -> list[tuple[str, str]]:
    """The commands of a page with what each is shown to print."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    return [(command, shown) for block in blocks for command, shown in re.findall(r"\$ (.*)\n((?:[^$].*\n)*)", block)]


def test_tutorial_of_a_room_prints_what_it_shows(tmp_path: Path, gateway: Gateway) -> None:
    shell = Shell(tmp_path, gateway)
    create, *steps = steps_of(TUTORIAL)
    assert len(steps) == 10
    (program,) = re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)
    (tmp_path / "clerk.py").write_text(program)
    (start,) = re.findall(r"^(\.venv\S+ clerk\.py .*) &$", TUTORIAL, re.MULTILINE)

    made = shell.run(create[0])
    assert re.fullmatch(pattern_of(create[1]), made), made
    link, claim = re.findall(r"(?:http|ei_)\S+", made)
    shell.keep(f"LINK={link} CLAIM={claim}")

    with Space(gateway, {"token": link.rpartition("/")[2]}).join("ada") as ada:
        clerk = shell.start(f"exec {start}")
        try:
            assert ada.next("join")["uid"] == "clerk"
            ada.say({"text": "summarize readings"})
            assert ada.next()["data"] == {"text": "I find no list of numbers there."}
            for command, shown in steps:
                printed = shell.run(command)
                assert re.fullmatch(pattern_of(shown), printed.rstrip("\n") + "\n" if shown else printed), printed
            assert [ada.next()["data"]["text"] for _ in range(2)] == [
                "summarize readings",
                "3 numbers, 19.8 to 24.1, mean 21.8",
            ]
            assert clerk.communicate(timeout=PATIENCE_S)[0] == "the room has closed with 4410\n"
        finally:
            clerk.kill()
            clerk.communicate()
