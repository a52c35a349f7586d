"""Every measured figure of the documentation is in `docs/claims.json` with its command, and the reverse."""

import importlib.util
import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
FILE: dict[str, Any] = json.loads((ROOT / "docs" / "claims.json").read_text())
CLAIMS: list[dict[str, Any]] = FILE["claims"]
# What people read before they choose, and what explains. Limits of reference pages are settings, with their own tests.
HELD = [ROOT / "README.md", *sorted((ROOT / "docs" / "explanation").glob("*.md"))]
NUMBER = r"\d[\d,.]*(?:\s?[–-]\s?\d[\d,.]*)?(?:,? (?:and|to|or|of) \d[\d,.]*)*"
UNIT = r"µs|ms\b|%|[kK]B\b|MB\b|GB\b|times\b|(?:\w+ ){0,2}a(?:n? CPU-second| second\b)|million instructions"
IN_PROSE = re.compile(rf"(?<![\w.`#\[(/-]){NUMBER} ?(?:{UNIT})")
IN_A_TABLE = re.compile(rf"(?<=\| ){NUMBER}(?: (?:µs|ms|s|%))?(?:, {NUMBER})?(?= \|)")


def spaced(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def readable(page: Path) -> str:
    """Without blocks of code, in which nothing is claimed; pictures and links to them neither."""
    return spaced(re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))


def said_of(page: str) -> list[str]:
    """What the file says of a page, in the words of the page."""
    stands = [place for claim in CLAIMS for place in claim["stands"]]
    return [text for place in [*stands, *FILE["not_measured"]] if place["page"] == page for text in place["text"]]


def figures(text: str) -> Iterator[re.Match[str]]:
    yield from IN_PROSE.finditer(text)
    yield from IN_A_TABLE.finditer(text)


@pytest.mark.parametrize("page", HELD, ids=lambda page: page.name)
def test_every_figure_of_a_page_is_claimed(page: Path) -> None:
    text = readable(page)
    covered = [
        range(found.start(), found.end())
        for said in said_of(str(page.relative_to(ROOT)))
        for found in re.finditer(re.escape(said), text)
    ]
    unclaimed = [
        text[max(0, found.start() - 40) : found.end() + 20]
        for found in figures(text)
        if not any(found.start() in span and found.end() - 1 in span for span in covered)
    ]
    assert unclaimed == [], "put them into docs/claims.json"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim["id"])
def test_every_claim_stands_where_the_file_says(claim: dict[str, Any]) -> None:
    for place in claim["stands"]:
        page = spaced((ROOT / place["page"]).read_text())
        assert [text for text in place["text"] if text not in page] == []
        assert [text for text in place["text"] if not re.search(r"\d", text)] == []


def test_what_is_not_measured_stands_where_the_file_says_and_why() -> None:
    for place in FILE["not_measured"]:
        page = spaced((ROOT / place["page"]).read_text())
        assert place["why"]
        assert [text for text in place["text"] if text not in page] == []


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim["id"])
def test_every_claim_names_a_command_that_exists_a_day_and_a_machine(claim: dict[str, Any]) -> None:
    words = claim["command"].split()
    assert words[:2] == ["python", "-m"]
    assert importlib.util.find_spec(words[2]) is not None
    assert [word for word in words[3:] if word.startswith("tests/") and not (ROOT / word).exists()] == []
    assert date(2026, 11, 1) <= date.fromisoformat(claim["date"])
    assert claim["machine"] in FILE["machines"]
    assert claim["says"]


def source(module: str) -> str:
    """Of what `python -m` runs; that of pytest is not ours."""
    found = importlib.util.find_spec(module)
    assert found is not None, module
    assert found.origin is not None
    place = Path(found.origin)
    return (place.with_name("__main__.py") if found.submodule_search_locations else place).read_text()


@pytest.mark.parametrize("page", HELD, ids=lambda page: page.name)
def test_command_beside_a_figure_exists_with_its_options(page: Path) -> None:
    shown = re.findall(r"`python -m (bench[\w.]*)([^`\n]*)`", page.read_text())
    claimed = re.findall(
        r"^python -m (bench[\w.]*)(.*)$", "\n".join(claim["command"] for claim in CLAIMS), re.MULTILINE
    )
    for module, words in [*shown, *claimed]:
        code = source(module)
        assert [word for word in words.split() if word.startswith("-") and f'"{word}"' not in code] == []


def test_claims_are_told_apart() -> None:
    ids = [claim["id"] for claim in CLAIMS]
    assert len(set(ids)) == len(ids)


def test_figures_are_seen_in_prose_and_tables() -> None:
    text = "It takes 5 to 7 ms, 1.12 and 1.32 times nchan. | nginx | 40,400 | 0.50 | 2.65, 2.88 | 19 % | and 12 nodes"
    seen = [found[0] for found in figures(text)]
    assert seen == ["5 to 7 ms", "1.12 and 1.32 times", "19 %", "40,400", "0.50", "2.65, 2.88", "19 %"]
