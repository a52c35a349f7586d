"""A policy's text without what may be a secret."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.governance.policy.policy import Policy
from gateway.governance.policy.shown_text import HIDDEN, shown_text
from gateway.governance.policy.text import parse

AGENTS = """[[agents]]
agent = "*"  # everybody
tools = ["*"]
"""


def shown(text: str) -> str:
    assert isinstance(parse(text), Policy)
    said = shown_text(text)
    assert said is not None
    return said


def test_a_policy_without_upstreams_is_shown_as_it_is() -> None:
    assert shown(AGENTS) == AGENTS


def test_line_ends_of_windows_are_shown_as_line_ends() -> None:
    assert shown(AGENTS.replace("\n", "\r\n")) == AGENTS


def test_what_an_upstream_is_reached_with_is_hidden_and_lines_keep_their_numbers() -> None:
    text = (
        AGENTS
        + """
# the key is hush-hush-1
[[upstreams]]
name = "search"  # hush-hush-2
tenants = ["acme"]
command = ["npx", "--key=hush-hush-3",
  # hush-hush-4
  'hush-hush-5']
env = { KEY = "hush-hush-6", OTHER = { env = "VARIABLE" } }

[[upstreams]]
name = "web"
tenants = ["acme"]
url = "https://hush-hush-7.example/mcp"
[upstreams.headers]
Authorization = "Bearer hush-hush-8"
# hush-hush-9
"""
    )
    said = shown(text)
    assert "hush" not in said
    assert '"npx"' in said
    assert "VARIABLE" in said
    assert "# everybody" in said
    assert said.count("\n") == text.count("\n")
    for line in ('name = "web"', "[upstreams.headers]"):
        assert said.splitlines().index(line) == text.splitlines().index(line)


@pytest.mark.parametrize(
    "upstreams",
    [
        'upstreams = [{ name = "a", tenants = ["t"], url = "https://hush-hush.example" }]\n',
        'upstreams = [ # hush-hush\n { name = "a", tenants = ["t"], command = ["x", """hush-\\\n  hush"""] }]\n',
    ],
    ids=["inline", "inline with a comment and a string of several lines"],
)
def test_upstreams_may_be_written_in_other_ways(upstreams: str) -> None:
    assert "hush" not in shown(upstreams + AGENTS)


def test_a_secret_that_also_stands_elsewhere_hides_the_whole_text() -> None:
    text = AGENTS.replace("# everybody", "# hush-hush-hush") + (
        '[[upstreams]]\nname = "a"\ntenants = ["t"]\nurl = "https://a.example"\nheaders = { X = "hush-hush-hush" }\n'
    )
    assert isinstance(parse(text), Policy)
    assert shown_text(text) is None


_PRINTABLE = st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="'")


@given(value=st.text(_PRINTABLE, min_size=8, max_size=40))
def test_no_header_is_shown_whatever_is_in_it(value: str) -> None:
    text = AGENTS + f"[[upstreams]]\nname = 'a'\ntenants = ['t']\nurl = 'http://a'\nheaders.X = '{value}'\n"
    said = shown_text(text)
    if said is not None:
        assert value not in said
        assert tomllib.loads(said)["upstreams"][0]["headers"]["X"] == HIDDEN.strip('"')
