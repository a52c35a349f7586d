"""Patterns of tools and agents: `*` within a part, `**` for the rest."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.governance.policy.patterns import Pattern, pattern_trouble

ECHO = "sysecho.01jz0000000000000000000000.echo.invoke"

parts = st.text("ab_", min_size=1, max_size=5)
names = st.lists(parts, min_size=1, max_size=4).map(".".join)
globs = st.text("ab_*", min_size=1, max_size=6).filter(lambda part: "**" not in part)
patterns = st.tuples(st.lists(globs, min_size=1, max_size=4), st.booleans()).map(
    lambda made: ".".join([*made[0], "**"] if made[1] else made[0])
)


def naive(pattern: str, name: str) -> bool:
    """The rule, word by word."""
    wanted, given_parts = pattern.split("."), name.split(".")
    if wanted[-1] == "**":
        wanted.pop()
        if len(given_parts) <= len(wanted):
            return False
        given_parts = given_parts[: len(wanted)]
    return len(wanted) == len(given_parts) and all(map(naive_part, wanted, given_parts))


def naive_part(pattern: str, part: str) -> bool:
    if not pattern:
        return not part
    if pattern[0] == "*":
        return any(naive_part(pattern[1:], part[skip:]) for skip in range(len(part) + 1))
    return bool(part) and part[0] == pattern[0] and naive_part(pattern[1:], part[1:])


@given(patterns, parts, parts, st.tuples(parts, parts))
def test_pattern_that_matches_some_name_could_match_its_kind_and_verb(
    pattern: str, first: str, last: str, between: tuple[str, str]
) -> None:
    if Pattern(pattern).matches(".".join((first, *between, last))):
        assert Pattern(pattern).could_match(first, last)


@pytest.mark.parametrize(
    ("pattern", "could"),
    [
        ("**", True),
        ("sys.**", True),
        ("s*.**", True),
        ("sys.*.*.snapshot", True),
        ("sys.*.*.**", True),
        ("*.01jz0000000000000000000000.metrics.*shot", True),
        ("sys.*.*.subscribe", False),
        ("sysecho.**", False),
        ("sys.*.snapshot", False),
        ("sys.*.*.*.**", False),
        ("*", False),
        ("fleet_find", False),
    ],
)
def test_pattern_could_match_a_kind_and_verb_only_if_some_name_of_it_would(pattern: str, could: bool) -> None:
    assert Pattern(pattern).could_match("sys", "snapshot") is could


@given(patterns, names)
def test_pattern_means_what_the_rule_says(pattern: str, name: str) -> None:
    assert Pattern(pattern).matches(name) is naive(pattern, name)


@given(names, st.data())
def test_name_with_characters_starred_out_matches_itself(name: str, data: st.DataObject) -> None:
    starred = list(name)
    for index, char in enumerate(name):
        if char != "." and "*" not in starred[max(0, index - 1) : index] and data.draw(st.booleans()):
            starred[index] = "*"
    assert Pattern("".join(starred)).matches(name)
    assert Pattern(name).matches(name)
    assert Pattern("**").matches(name)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("**", True),
        ("sysecho.**", True),
        ("sysecho.*.echo.invoke", True),
        ("*.*.*.invoke", True),
        ("sys*.*.e*o.inv*", True),
        (ECHO, True),
        ("*", False),
        ("sysecho.*", False),
        ("sysecho.*.invoke", False),
        ("sys.**", False),
        (ECHO + ".**", False),
        ("sysecho.*.echo", False),
    ],
)
def test_pattern_of_a_tool(pattern: str, matches: bool) -> None:
    assert Pattern(pattern).matches(ECHO) is matches


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "a b", "a?", "a[b]", "é", "a**", "**.a", "a.***", "a.**.b", "a\n", "a" * 129]
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    assert pattern_trouble(text) is not None
    with pytest.raises(ValueError, match="no pattern"):
        Pattern(text)


def test_no_name_takes_long() -> None:
    pattern = Pattern("*a" * 60 + "b")
    began = time.process_time()
    for _ in range(100):
        assert not pattern.matches("a" * 128)
    assert time.process_time() - began < 0.5
