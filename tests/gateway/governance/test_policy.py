"""What a policy file says, which line of it says so, and what is wrong with a broken one."""

import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.governance.policy.explain import explain, span_words
from gateway.governance.policy.patterns import Pattern
from gateway.governance.policy.policy import (
    DEFAULT,
    KINDS,
    Action,
    AgentRules,
    Entry,
    Policy,
    Price,
    Rate,
    Side,
    dollars,
)
from gateway.governance.policy.text import POLICY_CHARS_MAX, RATES_MAX, PolicyFlaw, parse

ONE = "agent_00000000-0000-4000-8000-000000000001"
TWO = "agent_00000000-0000-4000-8000-000000000002"
THREE = "agent_00000000-0000-4000-8000-000000000003"
NODE = "01jz0000000000000000000000"
ECHO, SNAPSHOT = f"sysecho.{NODE}.echo.invoke", f"sys.{NODE}.metrics.snapshot"

TEXT = f"""\
[[agents]]
agent = "{ONE}"
tools = [
  "sys.**",
  "sysecho.*.echo.invoke",
]
budget = 2.5
budget_period = "1d"
price = 0.02
prices = [
  {{ tools = "sysecho.**", price = 0 }},
  {{ tools = ["a.b", "sys.**"], price = 0.000001 }},
]
pii.result.email = "redact"
pii.result.ip = "block"

[[agents.rates]]
tools = "**"
calls = 10
per = "1m"

[[agents]]
agent = ["{TWO}", "agent_ff*"]
tools = []

[pii]
national_ids = ["nl.bsn", "es.dni"]
"""


def policy_of(text: str) -> Policy:
    policy = parse(text)
    assert isinstance(policy, Policy), policy
    return policy


def flaw_of(text: str) -> PolicyFlaw:
    flaw = parse(text)
    assert isinstance(flaw, PolicyFlaw), flaw
    return flaw


def entry_of(keys: str) -> AgentRules:
    return policy_of(f"[[agents]]\nagent = '*'\ntools = '**'\n{keys}\n").entries[0].rules


# ---- what it says ---------------------------------------------------------------------------------------------------


def test_every_key_is_read() -> None:
    everything = {kind: Action.ALLOW if kind == "ip" else Action.BLOCK for kind in KINDS}
    first = AgentRules(
        tools=(Pattern("sys.**"), Pattern("sysecho.*.echo.invoke")),
        budget_micros=2_500_000,
        budget_period_s=86400,
        price_micros=20_000,
        prices=(Price((Pattern("sysecho.**"),), 0), Price((Pattern("a.b"), Pattern("sys.**")), 1)),
        rates=(Rate((Pattern("**"),), 10, 60),),
        pii={
            Side.ARGUMENTS: everything,
            Side.RESULT: everything | {"email": Action.REDACT, "ip": Action.BLOCK},
        },
    )
    second = Entry((Pattern(TWO), Pattern("agent_ff*")), AgentRules(()))
    assert policy_of(TEXT) == Policy((Entry((Pattern(ONE),), first), second), ("nl.bsn", "es.dni"))


def test_rules_answer_for_a_tool() -> None:
    rules = policy_of(TEXT).rules_for(ONE)
    assert rules is not None
    assert (rules.allows(ECHO), rules.allows(SNAPSHOT), rules.allows("other.x")) == (True, True, False)
    assert (rules.price_of(ECHO), rules.price_of(SNAPSHOT), rules.price_of("other.x")) == (0, 1, 20_000)
    assert rules.action(Side.RESULT, "email") is Action.REDACT
    assert rules.action(Side.ARGUMENTS, "email") is Action.BLOCK


@pytest.mark.parametrize("tool", ["fleet_find", "fleet_node"])
def test_looking_around_is_free_unless_a_row_of_prices_concerns_it(tool: str) -> None:
    free = policy_of(f'[[agents]]\nagent = "*"\ntools = "**"\nprice = 1\nprices = [{{ tools = "{ECHO}", price = 2 }}]')
    priced = policy_of('[[agents]]\nagent = "*"\ntools = "**"\nprices = [{ tools = "fleet_*", price = 2 }]')
    for policy, micros, line in ((free, 0, None), (priced, 2_000_000, 4)):
        rules = policy.rules_for(ONE)
        assert rules is not None
        assert rules.price_of(tool) == micros
        (price,) = [one for one in explain(policy, ONE, tool).statements if one.about == "price"]
        assert (price.value, price.line) == (micros, line)


def test_agent_that_no_entry_matches_is_denied() -> None:
    policy = policy_of(TEXT)
    assert policy.rules_for(THREE) is None
    assert policy.rules_for(TWO) == AgentRules(())
    assert policy.rules_for("agent_ff000000-0000-4000-8000-000000000001") == AgentRules(())


def test_without_a_file_the_defaults_hold_for_everybody() -> None:
    rules = DEFAULT.rules_for(THREE)
    assert rules is not None
    assert rules.allows(ECHO)
    assert (rules.budget_micros, rules.budget_period_s, rules.price_of(ECHO)) == (10_000_000, None, 15_000)
    assert rules.rates == ()
    for side in Side:
        assert {kind for kind in KINDS if rules.action(side, kind) is Action.ALLOW} == {"ip"}
        assert {kind for kind in KINDS if rules.action(side, kind) is Action.REDACT} == set()


agent_patterns = st.sampled_from([ONE, TWO, THREE, "*", "agent_*", "agent_*1", "agent_*2", "agent_ff*", "**"])


@given(st.lists(st.lists(agent_patterns, min_size=1, max_size=3), max_size=6), st.sampled_from([ONE, TWO, THREE]))
def test_first_matching_entry_wins(entries: list[list[str]], sub: str) -> None:
    policy = Policy(
        tuple(
            Entry(tuple(Pattern(text) for text in agents), AgentRules((), budget_micros=number))
            for number, agents in enumerate(entries)
        )
    )
    first = next(
        (number for number, agents in enumerate(entries) if any(Pattern(a).matches(sub) for a in agents)), None
    )
    rules = policy.rules_for(sub)
    assert (None if rules is None else rules.budget_micros) == first


# ---- money ----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**12))
def test_amounts_are_exact_to_the_micro_dollar(micros: int) -> None:
    assert entry_of(f"budget = {Decimal(micros).scaleb(-6):f}").budget_micros == micros
    assert int(Decimal(dollars(micros).removeprefix("$")).scaleb(6)) == micros


@pytest.mark.parametrize(
    ("written", "micros"), [("10", 10_000_000), ("0.015", 15_000), ("1_0.50", 10_500_000), ("1e-6", 1), ("-0.0", 0)]
)
def test_amount_as_people_write_it(written: str, micros: int) -> None:
    assert entry_of(f"price = {written}").price_micros == micros


@pytest.mark.parametrize(
    "written",
    [
        "0.0000001", "0.01500000000000000000000000000000000001", "1e-999999999", "-1", "-0.000001", "1000001", "nan",
        "inf", "1e999999999", "1e99999999999999999999", "true", '"10"', "'$10'", "[1]", "1979-05-27", "0x" + "f" * 9999,
    ],
)  # fmt: skip
def test_amount_that_is_none_is_refused_with_its_line(written: str) -> None:
    assert flaw_of(f"[[agents]]\nagent = '*'\ntools = '**'\n\nbudget = {written}\n").line == 5


def test_dollars_show_two_decimals_or_all() -> None:
    assert [dollars(m) for m in (10_000_000, 15_000, 1, 0)] == ["$10.00", "$0.015", "$0.000001", "$0.00"]


# ---- flaws ----------------------------------------------------------------------------------------------------------

HEAD = "[[agents]]\nagent = '*'\n"


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("", 1, "no [[agents]] entry"),
        ("agents = []", 1, "no [[agents]] entry"),
        ("\n\nagents = 5", 3, "no list"),
        ("agents = [5]", 1, "no table"),
        (HEAD + "tools = ", 3, "invalid value"),
        (HEAD + "tools = [\n'a',\n\n", 4, "not TOML"),
        (HEAD + "tools = 'a'\ntools = 'b'", 4, "not TOML"),
        (HEAD + "tools = '**'\n\x00", 4, "not TOML"),
        ("\n[[agents]]\nagent = '*'\n", 2, "tools is missing"),
        ("[[agents]]\ntools = '**'\n", 1, "agent is missing"),
        (HEAD + "\ntols = '**'", 4, "did you mean tools?"),
        (HEAD + "tools = '**'\nzzz = 1", 4, "there are agent, tools"),
        ("upsteams = 1\n" + HEAD + "tools = '**'", 1, "no such key"),
        (HEAD + "tools = [\n'a',\n'b..c']", 5, "single dots"),
        (HEAD + "tools = [1]", 3, "a string"),
        (HEAD + "tools = 5", 3, "no list"),
        ("[[agents]]\ntools = '**'\nagent = 'bob'", 3, "no agent has such an id"),
        ("[[agents]]\ntools = '**'\nagent = 'agnt_*'", 3, "no agent has such an id"),
        ("[[agents]]\ntools = '**'\nagent = []", 3, "at least one agent"),
        (f"[[agents]]\ntools = '**'\nagent = '{ONE.replace('agent_0', 'agent_F')}'", 3, "lower case"),
        (HEAD + "tools = '**'\nbudget_period = '1 day'", 4, "span of time"),
        (HEAD + "tools = '**'\nbudget_period = 5", 4, "span of time"),
        (HEAD + "tools = '**'\nprices = [\n{ tools = '**' }]", 5, "price is missing"),
        (HEAD + "tools = '**'\nrates = [{ tools = '**', calls = 0, per = '1s' }]", 4, "from 1"),
        (HEAD + "tools = '**'\nrates = [{ tools = '**', calls = true, per = '1s' }]", 4, "from 1"),
        (HEAD + "tools = '**'\n[[agents.rates]]\ntools = '**'\ncalls = 1\nper = '0s'", 7, "span of time"),
        (HEAD + "tools = '**'\npii.both.email = 'block'", 4, "there are arguments, result"),
        (HEAD + "tools = '**'\npii.result.mail = 'block'", 4, "did you mean email?"),
        (HEAD + "tools = '**'\n[agents.pii.result]\nip = 'allow'\nemail = 'drop'", 6, "block, redact, allow"),
        (HEAD + "tools = '**'\npii.result = 'block'", 4, "no table"),
        (HEAD + "tools = '**'\npii.result.email = []", 4, "no action"),
        (HEAD + "tools = '**'\n[pii]\nnational_ids = [\n'nl.bsn', 'nl']", 6, "no national id"),
        (HEAD + "tools = '**'\n[pii]\ncountries = []", 5, "there are national_ids"),
        ("\nx = " + "[" * 5000, 2, "too deep"),
        ("\nx = " + "9" * 5000, 2, "too many digits"),
        ("\n" * POLICY_CHARS_MAX + "x", 1, "at most"),
    ],
)  # fmt: skip
def test_flaw_is_told_with_its_line_and_what_to_do(text: str, line: int, hint: str) -> None:
    flaw = flaw_of(text)
    assert (flaw.line, hint in flaw.words) == (line, True), flaw
    assert flaw.advice
    assert flaw.words.startswith(f"line {line}: ")


def test_an_entry_has_a_bounded_number_of_rates() -> None:
    rate = "\n[[agents.rates]]\ntools = '**'\ncalls = 1\nper = '1s'"
    entry_of(rate * RATES_MAX)
    flaw = flaw_of(HEAD + "tools = '**'" + rate * (RATES_MAX + 1))
    assert flaw.line == 4 + 4 * RATES_MAX


MARK = "MARKneverTold"


@pytest.mark.parametrize(
    "text",
    [
        MARK,
        f"{MARK} = 1\n{MARK} = 2",
        f"a = {{ {MARK} = 1, {MARK} = 2 }}",
        f"[{MARK}]\n[{MARK}]",
        f"{MARK} = 1\n[{MARK}.x]",
        f"a = '{MARK}",
        f'a = "{MARK}\\q"',
        f"a = {MARK}",
        f"{HEAD}{MARK} = 1",
        f"{HEAD}tools = '{MARK}!'",
        f"{HEAD}tools = '**'\nbudget = '{MARK}'",
        f"{HEAD}tools = '**'\npii.result.{MARK} = 'block'",
        f"{HEAD}tools = '**'\npii.result.ip = '{MARK}'",
    ],
)
def test_flaw_never_quotes_the_file(text: str) -> None:
    assert MARK.lower() not in flaw_of(text).words.lower()


fragments = st.sampled_from([
    "[[agents]]", "[agents]", "[pii]", "agent", "tools", "budget", "rates", "pii.result.email", "=", " = ", "\n", "\n",
    "'*'", "'**'", "[", "]", "{", "}", ",", "1", "1e9", "nan", '"""', "'''", "#", "\\", "\r", "\0", "\ud800", "é",
    "1979-05-27", "agents", ".", "true", "0.015", '"1d"', "calls", "per", "prices",
])  # fmt: skip


@given(st.one_of(st.text(), st.lists(fragments, max_size=40).map("".join)))
def test_no_text_makes_it_raise(text: str) -> None:
    result = parse(text)
    if isinstance(result, PolicyFlaw):
        assert result.line is not None
        assert 1 <= result.line <= text.count("\n") + 1


json_like = st.recursive(
    st.one_of(st.integers(), st.booleans(), st.sampled_from(["'*'", "'1d'", "'block'", "0.5", "nan"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(map(_toml, items))}]"),
        st.dictionaries(st.sampled_from(["tools", "calls", "per", "price", "result", "email"]), inner, max_size=3).map(
            lambda table: "{" + ", ".join(f"{key} = {_toml(value)}" for key, value in table.items()) + "}"
        ),
    ),
    max_leaves=6,
)


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(st.sampled_from(["tools", "budget", "budget_period", "price", "prices", "rates", "pii", "agent"]), json_like)
def test_any_value_under_any_key_is_taken_or_refused_there(key: str, value: Any) -> None:
    fixed = {"agent": "'*'", "tools": "'**'"} | {key: _toml(value)}
    text = "[[agents]]\n" + "\n".join(f"{name} = {written}" for name, written in fixed.items())
    result = parse(text)
    if isinstance(result, PolicyFlaw):
        assert result.line == 2 + list(fixed).index(key)


# ---- why ------------------------------------------------------------------------------------------------------------


def test_explanation_names_the_line_of_each_statement() -> None:
    told = explain(policy_of(TEXT), ONE, ECHO)
    assert told.allowed
    assert [(statement.about, statement.line) for statement in told.statements[:5]] == [
        ("agent", 1), ("tool", 5), ("price", 11), ("budget", 7), ("rate", 19),
    ]  # fmt: skip
    words = {statement.words: statement.line for statement in told.statements}
    assert words["$0.00 a call"] == 11
    assert words["$2.50 every day"] == 7
    assert words["10 calls every minute of ** together"] == 19
    assert words["redact in the result: email"] == 14
    assert words["block in the result: ip"] == 15
    assert words["allow in the arguments: ip"] is None


def test_explanation_of_a_denial_says_who_denies() -> None:
    tool = explain(policy_of(TEXT), ONE, "other.tool")
    assert (tool.allowed, tool.statements[-1].about, tool.statements[-1].line) == (False, "tool", 3)
    empty = explain(policy_of(TEXT), TWO, ECHO)
    assert (empty.allowed, [statement.line for statement in empty.statements]) == (False, [22, 24])
    nobody = explain(policy_of(TEXT), THREE, ECHO)
    assert (nobody.allowed, len(nobody.statements), nobody.statements[0].line) == (False, 1, None)


def test_explanation_of_the_default_policy_names_no_line() -> None:
    told = explain(DEFAULT, ONE, ECHO)
    assert told.allowed
    assert {statement.line for statement in told.statements} == {None}
    assert {"$0.015 a call", "$10.00 in all"} <= {statement.words for statement in told.statements}


def test_revision_is_of_the_text_alone_and_the_same_every_time() -> None:
    revisions = [policy_of(text).revision for text in (TEXT, TEXT, f"{TEXT}# another\n")]
    assert revisions[0] == revisions[1] != revisions[2]
    assert re.fullmatch("[0-9a-f]{12}", revisions[0])
    assert explain(policy_of(TEXT), ONE, ECHO).revision == revisions[0]
    assert DEFAULT.revision == "default"


@given(st.sampled_from([ONE, TWO, THREE]), st.sampled_from([ECHO, SNAPSHOT, "other.tool"]))
def test_explanation_agrees_with_the_rules(sub: str, tool: str) -> None:
    for policy in (DEFAULT, policy_of(TEXT)):
        rules = policy.rules_for(sub)
        assert explain(policy, sub, tool).allowed is (rules is not None and rules.allows(tool))


def test_spans_in_words() -> None:
    spans = [span_words(length_s) for length_s in (1, 60, 90, 7200, 86400, 172800)]
    assert spans == ["second", "minute", "90 seconds", "2 hours", "day", "2 days"]
