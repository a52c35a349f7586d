"""Every key and value of a TOML document is found on its line."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.governance.policy.toml_lines import Place, lines_of

TEXT = '''# 1
"a b".c = 1979-05-27 07:32:00 # 2

[[ agents ]] # 4
agent = "#x[" # 5
tools = [ # 6
  "one", 'two]', # 7
  # 8
  """three
]""""", # 9 and 10
]
rates = [{ calls = 1, per = "x" }, # 12
  { per.unit = '{', calls = [1, [2,
3]] }] # 14
pii.result.email = "a" # 15
pii . "result" . 'i\\p' = true # 16

[agents.more] # 18
x = \'\'\'
[no]
\'\'\' # 19 to 21
[[agents]] # 22
agent = "b" # 23
[[agents.rates]] # 24
calls = 5 # 25
[[agents.rates]] # 26
[agents.rates.deep] # 27
calls = 6.5 # 28
'''


def places(value: Any, place: Place = ()) -> list[Place]:
    below: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        below = list(value.items())
    elif isinstance(value, list):
        below = list(enumerate(value))
    return [place, *(found for key, one in below for found in places(one, (*place, key)))]


def test_each_place_has_its_line() -> None:
    lines = lines_of(TEXT)
    assert lines["a b", "c"] == 2
    assert [lines["agents", 0, "tools", index] for index in range(3)] == [7, 7, 9]
    assert (lines["agents",], lines["agents", 0], lines["agents", 1]) == (4, 4, 22)
    assert (lines["agents", 0, "agent"], lines["agents", 1, "agent"]) == (5, 23)
    assert (lines["agents", 0, "rates", 0, "per"], lines["agents", 0, "rates", 1, "per", "unit"]) == (12, 13)
    assert lines["agents", 0, "rates", 1, "calls", 1, 1] == 14
    assert (lines["agents", 0, "pii"], lines["agents", 0, "pii", "result", "i\\p"]) == (15, 16)
    assert lines["agents", 0, "more", "x"] == 19
    assert [lines["agents", 1, "rates", index] for index in (0, 1)] == [24, 26]
    assert (lines["agents", 1, "rates", 0, "calls"], lines["agents", 1, "rates", 1, "deep", "calls"]) == (25, 28)


def test_nothing_is_missed_and_nothing_made_up() -> None:
    assert {*lines_of(TEXT), ()} == set(places(tomllib.loads(TEXT)))
    assert lines_of(TEXT.replace("\n", "\r\n")) == lines_of(TEXT)


keys = st.sampled_from(["a", "b-c", '"q.]#"', "'l = '", '"\\u0041\\""'])
scalars = st.sampled_from(
    ["1", "-0.5e3", "true", "inf", "1979-05-27", '"a # b"', "'c ] }'", '"""d\n"e\\""""', "'''\nf'''''", '""', "''"]
)
blanks = st.sampled_from(["", " ", "\t", "\n", " # x ]\n  "])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(st.tuples(blanks, inner, blanks).map("".join), max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(keys, inner), max_size=3, unique_by=lambda item: item[0]).map(
            lambda items: "{" + ", ".join(f"{key} = {value}" for key, value in items) + "}"
        ),
    ),
    max_leaves=8,
)
statements = st.one_of(
    st.tuples(st.lists(keys, min_size=1, max_size=3).map(" . ".join), values).map(" = ".join),
    st.lists(keys, min_size=1, max_size=3).map(lambda key: f"[ {'.'.join(key)} ]"),
    st.lists(keys, min_size=1, max_size=3).map(lambda key: f"[[{'.'.join(key)}]] # ]]"),
)


@given(st.lists(statements, max_size=6).map("\n".join))
def test_whatever_tomllib_takes_is_found_whole(text: str) -> None:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = lines_of(text)
    assert {*lines, ()} == set(places(document))
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())
