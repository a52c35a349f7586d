"""Troubleshooting has every error code, every close and every finding; the lines that it quotes are in the code."""

import re
from pathlib import Path

from schemas.closes import NodeClose, StreamClose
from schemas.errors import Code

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text()
OPERATIONS = (ROOT / "docs" / "reference" / "operations.md").read_text()


def first_cells(page: str, heading: str) -> list[str]:
    rows = re.findall(r"^\| ([^|]+) \|", page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0], re.MULTILINE)
    return [row.strip() for row in rows[1:] if not row.startswith("---")]


def test_every_error_code_has_a_remedy() -> None:
    assert {f"`{code.value}`" for code in Code} == set(first_cells(PAGE, "A call fails"))


def test_every_close_of_a_stream_has_a_remedy() -> None:
    listed = [cell for cell in first_cells(PAGE, "A stream ends") if cell[0].isdigit()]
    assert listed == [f"{close.value.code} `{close.value.reason}`" for close in StreamClose]


def test_every_close_of_a_node_has_a_remedy() -> None:
    listed = [cell for cell in first_cells(PAGE, "A node does not stay") if cell[0].isdigit()]
    assert listed == [f"{close.value.code} `{close.value.reason}`" for close in NodeClose]


def test_everything_that_doctor_finds_has_a_remedy() -> None:
    table = OPERATIONS.partition("| about |")[2].partition("\n\n")[0]
    about = {
        word for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for word in re.findall("`([^`]+)`", row)
    }
    listed = {word for cell in first_cells(PAGE, "What doctor finds") for word in re.findall("`([^`]+)`", cell)}
    assert listed == about


def test_lines_of_a_start_that_are_quoted_are_said_by_the_code() -> None:
    quoted = [
        text for cell in first_cells(PAGE, "The gateway does not start") for text in re.findall("`([^`]+)`", cell)
    ]
    assert len(quoted) == 5
    code = "".join(module.read_text() for module in (ROOT / "gateway").rglob("*.py"))
    said = re.sub(r"\{[^{}]*\}", "", code).replace("is in use ", "is in use by a running gateway")
    assert [text for text in quoted if text not in said] == []
