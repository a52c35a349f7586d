"""Of what a client says of itself, only the area and whether it gave a language are ever seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.space.counts import Area
from gateway.spaces.join_hint_rules import area_of, is_locale


@pytest.mark.parametrize(
    ("tz", "area"),
    [
        ("Europe/Helsinki", Area.EUROPE),
        ("America/Argentina/Buenos_Aires", Area.AMERICA),
        ("America/Port-au-Prince", Area.AMERICA),
        ("US/Eastern", Area.AMERICA),
        ("Antarctica/Troll", Area.ANTARCTICA),
        ("UTC", Area.UTC),
        ("Etc/GMT+5", Area.UTC),
        (None, Area.NONE),
        ("", Area.NONE),
        ("Europe", Area.NONE),
        ("europe/Rome", Area.NONE),
        ("Mars/Olympus", Area.NONE),
        ("Europe/", Area.NONE),
        ("Europe//Rome", Area.NONE),
        ("Europe/Rome\n", Area.NONE),
        ("Europe/a/b/c", Area.NONE),
        ("Europe/" + "a" * 57, Area.EUROPE),
        ("Europe/" + "a" * 58, Area.NONE),
    ],
)
def test_a_time_zone_counts_by_its_area_and_what_has_another_form_as_none(tz: str | None, area: Area) -> None:
    assert area_of(tz) is area


@pytest.mark.parametrize("loc", ["fi", "fi-FI", "zh-Hant-TW", "de-CH-1996", "x-ours", "i-klingon", "sr-Latn-x-abc"])
def test_a_language_tag_is_one(loc: str) -> None:
    assert is_locale(loc)


@pytest.mark.parametrize("loc", [None, "", "f", "fi_FI", "fi-", "-fi", "fi--FI", "fi FI", "fi\n", "x", "a" * 9, "ä"])
def test_what_has_another_form_is_no_language_tag(loc: str | None) -> None:
    assert not is_locale(loc)


def test_a_language_tag_has_35_characters_at_most() -> None:
    assert is_locale("de-" + "-".join(["abcdefg"] * 4))
    assert not is_locale("de-" + "-".join(["abcdefg"] * 4) + "-a")


@given(st.text())
def test_whatever_is_sent_is_one_of_the_cells_that_there_are(text: str) -> None:
    assert area_of(text) in Area
    assert is_locale(text) in (False, True)
