"""What a policy file says of upstreams, and what is wrong with a broken one."""

import pytest

from gateway.governance.policy.patterns import Pattern
from gateway.governance.policy.policy import Policy
from gateway.governance.policy.text import PolicyFlaw, parse
from gateway.governance.policy.upstream_rules import UpstreamRules, Value
from gateway.governance.policy.upstream_text import UPSTREAMS_MAX

AGENTS = "[[agents]]\nagent = '*'\ntools = '**'\n"
HEAD = AGENTS + "[[upstreams]]\nname = 'search'\ntenants = ['acme']\n"  # six lines
SECRET = "hunter2-hunter2"


def upstreams_of(text: str) -> tuple[UpstreamRules, ...]:
    policy = parse(text)
    assert isinstance(policy, Policy), policy
    return policy.upstreams


def test_upstream_by_command() -> None:
    text = HEAD + (
        "command = ['prog', '--flag']\ncwd = '/srv'\nread_only = ['get_*', 'list.**']\ncall_timeout = '5s'\n"
        f"connect_timeout = '2m'\nenv = {{ A = '{SECRET}', B = {{ env = 'OURS' }} }}\n"
    )
    (one,) = upstreams_of(text)
    assert one == UpstreamRules(
        name="search",
        tenants=frozenset({"acme"}),
        command=("prog", "--flag"),
        env=(("A", Value(SECRET)), ("B", Value(variable="OURS"))),
        cwd="/srv",
        read_only=(Pattern("get_*"), Pattern("list.**")),
        connect_timeout_s=120,
        call_timeout_s=5,
    )
    assert one.line == 4
    assert [one.safety_class(name) for name in ("get_x", "list.a.b", "put_x")] == [
        "read_only",
        "read_only",
        "reversible",
    ]


def test_upstream_by_url() -> None:
    (one,) = upstreams_of(
        HEAD + "url = 'https://tools.example:8443/mcp'\n[upstreams.headers]\nAuthorization = { env = 'TOKEN' }\n"
    )
    assert (one.url, one.headers) == ("https://tools.example:8443/mcp", (("Authorization", Value(variable="TOKEN")),))
    assert (one.connect_timeout_s, one.call_timeout_s, one.read_only) == (10, 30, ())


def test_without_any_there_are_none() -> None:
    assert upstreams_of(AGENTS) == ()


def test_value_is_the_text_or_what_the_variable_has() -> None:
    assert Value("x").read({}) == "x"
    assert Value(variable="A").read({"A": "1"}) == "1"
    assert Value(variable="A").read({}) is None


def test_secrets_are_in_no_repr() -> None:
    text = f"command = ['p', '{SECRET}']\nenv = {{ A = '{SECRET}' }}\n"
    assert SECRET not in repr(parse(HEAD + text))
    assert SECRET not in repr(parse(HEAD + f"url = 'http://x/{SECRET}'\nheaders = {{ A = '{SECRET}' }}\n"))


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        (AGENTS + "upstreams = 1", 4, "there is no such key"),  # it is a key of the agents' table
        ("upstreams = 1\n" + AGENTS, 1, "no list"),
        ("upstreams = [1]\n" + AGENTS, 1, "no table"),
        (AGENTS + "[[upstreams]]\nname = 'a'", 4, "tenants is missing"),
        (AGENTS + "[[upstreams]]\ntenants = ['a']", 4, "name is missing"),
        (HEAD, 4, "either a command or a url"),
        (HEAD + "command = ['a']\nurl = 'http://a'", 4, "either a command or a url"),
        (HEAD + "command = ['a']\nheaders = {}", 8, "write url instead"),
        (HEAD + "url = 'http://a'\ncwd = '/'", 8, "write command instead"),
        (HEAD + "comand = ['a']", 7, "did you mean command?"),
        (HEAD.replace("search", "Search") + "command = ['a']", 5, "lower-case"),
        (HEAD.replace("search", "a.b") + "command = ['a']", 5, "lower-case"),
        (HEAD.replace("search", "a" * 17) + "command = ['a']", 5, "1 to 16"),
        (HEAD.replace("search", "sys") + "command = ['a']", 5, "tools of devices"),
        (HEAD.replace("search", "sysecho") + "command = ['a']", 5, "tools of devices"),
        (HEAD.replace("'acme'", "") + "command = ['a']", 6, "at least one tenant"),
        (HEAD.replace("'acme'", "''") + "command = ['a']", 6, "no token has such a tenant"),
        (HEAD + "command = 'a b'", 7, "no list"),
        (HEAD + "command = []", 7, "1 to 256 words"),
        (HEAD + "command = ['a',\n5]", 8, "no text"),
        (HEAD + "command = [\"a\\u0000b\"]", 7, "no text"),
        (HEAD + "url = 'ftp://a'", 7, "no http or https"),
        (HEAD + "url = 'http://'", 7, "no http or https"),
        (HEAD + "url = 'http://a:99999/'", 7, "no http or https"),
        (HEAD + "url = 'http://a b/'", 7, "no http or https"),
        (HEAD + "url = 'http://u:p@a/'", 7, "credentials into headers"),
        (HEAD + "url = 'http://a'\nheaders = { 'a b' = 'c' }", 8, "not allowed here"),
        (HEAD + "url = 'http://a'\nheaders = { Host = 'c' }", 8, "not allowed here"),
        (HEAD + "url = 'http://a'\nheaders = { MCP-Session-Id = 'c' }", 8, "not allowed here"),
        (HEAD + "url = 'http://a'\nheaders = { A = \"b\\r\\nC: d\" }", 8, "not allowed here"),
        (HEAD + "url = 'http://a'\nheaders = { A = { env = 'a-b' } }", 8, "no name of a variable"),
        (HEAD + "url = 'http://a'\nheaders = { A = { file = 'b' } }", 8, "there are env"),
        (HEAD + "command = ['a']\nenv = { 'A=B' = 'c' }", 8, "not allowed here"),
        (HEAD + "command = ['a']\nenv = { A = 5 }", 8, "no text"),
        (HEAD + "command = ['a']\nenv = []", 8, "no table"),
        (HEAD + "command = ['a']\nread_only = ['a..b']", 8, "single dots"),
        (HEAD + "command = ['a']\ncall_timeout = 5", 8, "span of time"),
        (HEAD + "command = ['a']\ncall_timeout = '11m'", 8, "at most 600"),
        (HEAD + "command = ['a']\n" + HEAD.removeprefix(AGENTS) + "command = ['b']", 9, "two upstreams"),
    ],
)  # fmt: skip
def test_flaw_is_told_with_its_line_and_what_to_do(text: str, line: int, hint: str) -> None:
    flaw = parse(text)
    assert isinstance(flaw, PolicyFlaw), flaw
    assert (flaw.line, hint in flaw.words) == (line, True), flaw


def test_too_many_are_refused() -> None:
    more = [f"[[upstreams]]\nname = 'n{n}'\ntenants = ['a']\ncommand = ['a']\n" for n in range(UPSTREAMS_MAX + 1)]
    flaw = parse(AGENTS + "".join(more))
    assert isinstance(flaw, PolicyFlaw)
    assert flaw.line == 4 + 4 * UPSTREAMS_MAX
