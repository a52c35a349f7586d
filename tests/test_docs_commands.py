"""Each `heliograph` command of a block in README and the documentation is one: its name, its options, its arguments."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.commands.cli import parser_for

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/examples/node-js/README.md")),
    *(
        page
        for kind in ("how-to", "reference", "tutorial", "explanation")
        for page in (ROOT / "docs" / kind).rglob("*.md")
    ),
]
BLOCK = re.compile(r"^ *```(?:sh|console|ini)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"(?:ExecStart=)?(?:[\w./-]*/)?heliograph")
STARTS = {"$", "|", "&&", "--", ";", "gateway", "heliograph", "heliograph-0"}  # what a command stands behind
ENDS = {"|", "&&", ";", "<", ">", ">>", "\\"}
NO_COMMAND = re.compile(r"[^a-z]")


def lines_of(page: Path) -> Iterator[str]:
    for block in BLOCK.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.strip()


def commands_of(line: str) -> Iterator[list[str]]:
    """Those that the line runs, also within `$(…)`."""
    for inner in re.findall(r"\$\(([^()]*)\)", line):
        yield from commands_of(inner)
    try:
        words = shlex.split(re.sub(r"\$\([^()]*\)", "VALUE", line), comments=True)
    except ValueError:  # of an output, or of a string over several lines
        return
    for at, word in enumerate(words[:-1]):
        before = [one for one in words[:at] if not re.match(r"[A-Z_]+=", one)]
        if PROGRAM.fullmatch(word) and (not before or before[-1] in STARTS) and not NO_COMMAND.match(words[at + 1]):
            end = next((place for place in range(at + 1, len(words)) if words[place] in ENDS), len(words))
            yield words[at + 1 : end]


ALL = [(page, argv) for page in PAGES for line in lines_of(page) for argv in commands_of(line)]


def test_commands_are_found() -> None:
    assert len(ALL) > 80
    found = list(commands_of("$ T=x .venv/bin/heliograph nodes --json | head  # all"))
    assert found == [["nodes", "--json"]]
    assert list(commands_of("T=$(heliograph token mint --tenant t)")) == [["token", "mint", "--tenant", "t"]]


@pytest.mark.parametrize(("page", "argv"), ALL, ids=[f"{page.stem}-{' '.join(argv)[:60]}" for page, argv in ALL])
def test_command_of_a_page_is_one(page: Path, argv: list[str]) -> None:
    parser_for(argv).parse_args(argv)
