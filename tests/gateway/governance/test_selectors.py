"""Selectors of nodes: by tag, by name, by id; what they narrow in a policy, and what is wrong with a broken one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.governance.policy.explain import explain
from gateway.governance.policy.patterns import Pattern
from gateway.governance.policy.policy import DEFAULT, AgentRules, Price, Rate
from gateway.governance.policy.selectors import SELECTORS_MAX, Selector, node_of, selecting, selector_trouble
from gateway.governance.policy.text import parse
from schemas.fleet_tools import LOOKS
from schemas.labels import UNLABELLED, Labels, is_name
from tests.gateway.governance.test_patterns import naive_part
from tests.gateway.governance.test_policy import HEAD, MARK, ONE, entry_of, flaw_of, policy_of

NODE, OTHER = "01jz0000000000000000000000", "01jz0000000000000000000001"
ECHO, SNAPSHOT = f"sysecho.{NODE}.echo.invoke", f"sys.{NODE}.metrics.snapshot"
NO_DEVICE = ["search.query", "fleet_find", "fleet_node", f"search.{NODE}.echo.invoke", "system.metrics"]
BROKEN_NAMES = [
    "sys",
    "sys.metrics",
    f"sys.{NODE}.metrics",
    "sys.n.metrics.snapshot",
    f"sysecho.{NODE.upper()}.echo.invoke",
]
LAB = Labels("pump-7", {"site": "lab", "floor": "2"})


def selectors_of(*texts: str) -> tuple[Selector, ...]:
    return tuple(map(Selector, texts))


# ---- one selector ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("tag:site=lab", True),
        ("tag:floor=2", True),
        ("tag:site=la", False),
        ("tag:site=labs", False),
        ("tag:site=Lab", False),
        ("tag:place=lab", False),
        ("tag:lab=site", False),
        ("name:pump-7", True),
        ("name:pump-*", True),
        ("name:*", True),
        ("name:*-7", True),
        ("name:p*p*7", True),
        ("name:pump-7*", True),
        ("name:pump", False),
        ("name:pump-70", False),
        ("name:*-8", False),
        (NODE, True),
        (OTHER, False),
    ],
)
def test_selector_of_a_node(text: str, matches: bool) -> None:
    assert Selector(text).matches(NODE, LAB) is matches


def test_node_without_labels_is_selected_by_its_id_alone() -> None:
    texts = ["tag:site=lab", "name:*", NODE]
    assert [Selector(text).matches(NODE, UNLABELLED) for text in texts] == [False, False, True]
    assert selecting(selectors_of(*texts), ECHO, None) == Selector(NODE)
    assert selecting(selectors_of(*texts[:2]), ECHO, None) is None


names = st.text("ab-", min_size=1, max_size=6).filter(is_name)
name_patterns = st.text("ab-*", min_size=1, max_size=6).filter(lambda text: selector_trouble(f"name:{text}") is None)


@given(name_patterns, names)
def test_name_pattern_means_what_the_rule_says(pattern: str, name: str) -> None:
    assert Selector(f"name:{pattern}").matches(NODE, Labels(name)) is naive_part(pattern, name)


@given(names, st.data())
def test_name_with_characters_starred_out_is_a_pattern_that_matches_it(name: str, data: st.DataObject) -> None:
    starred = list(name)
    for index in range(len(name)):
        if "*" not in starred[max(0, index - 1) : index] and data.draw(st.booleans()):
            starred[index] = "*"
    assert Selector(f"name:{''.join(starred)}").matches(NODE, Labels(name))


tags = st.dictionaries(st.sampled_from(["site", "floor"]), st.sampled_from(["lab", "roof"]))
some_labels = st.builds(Labels, st.none() | names, tags)
texts = st.sampled_from(["tag:site=lab", "tag:floor=roof", "name:*", "name:a*", NODE, OTHER])


@given(st.lists(texts, min_size=1), some_labels)
def test_one_selector_that_matches_is_enough_and_the_first_is_told(chosen: list[str], labels: Labels) -> None:
    selectors = selectors_of(*chosen)
    matching = [selector for selector in selectors if selector.matches(NODE, labels)]
    assert selecting(selectors, ECHO, labels) == (matching[0] if matching else None)


@pytest.mark.parametrize("tool", [*NO_DEVICE, *BROKEN_NAMES])
def test_nothing_selects_a_tool_that_is_no_devices(tool: str) -> None:
    assert node_of(tool) is None
    assert selecting(selectors_of("name:*", "tag:site=lab", NODE), tool, LAB) is None


# ---- what is none ---------------------------------------------------------------------------------------------------

BROKEN = [
    ("", "tag:key=value"),
    ("site=lab", "tag:key=value"),
    ("*", "name:PATTERN"),
    ("pump-7", "name:PATTERN"),
    ("label:site=lab", "name:PATTERN"),
    ("TAG:site=lab", "name:PATTERN"),
    (f"id:{NODE}", "a node id"),
    (NODE.upper(), "lower case"),
    (NODE[:-1], "a node id"),
    ("tag:", "tag:site=lab"),
    ("tag:site", "tag:site=lab"),
    ("tag:site=", "tag:site=lab"),
    ("tag:=lab", "tag:site=lab"),
    ("tag:Site=lab", "tag:site=lab"),
    ("tag:site=*", "no wildcards"),
    ("tag:site=lab\n", "no wildcards"),
    ("tag: site=lab", "no wildcards"),
    ("tag:site=" + "a" * 64, "no wildcards"),
    ("name:", "name:pump-*"),
    ("name:Pump", "name:pump-*"),
    ("name:-pump", "name:pump-*"),
    ("name:pump-", "name:pump-*"),
    ("name:*-", "name:pump-*"),
    ("name:pump_7", "name:pump-*"),
    ("name:pump.*", "name:pump-*"),
    ("name:**", "name:pump-*"),
    ("name:a**b", "name:pump-*"),
    ("name:pump\n", "name:pump-*"),
    ("name:" + "a" * 64, "name:pump-*"),
    (f"name:{NODE}", "without name:"),
]


@pytest.mark.parametrize(("text", "advice"), BROKEN)
def test_what_is_no_selector_is_refused_with_what_to_write(text: str, advice: str) -> None:
    trouble = selector_trouble(text)
    assert trouble is not None
    assert advice in trouble[1]
    with pytest.raises(ValueError, match="no selector"):
        Selector(text)


@pytest.mark.parametrize(
    "text",
    [
        "tag:a=" + "B" * 63,
        "tag:" + "a" * 63 + "=b",
        "name:" + "a" * 63,
        "name:" + "*a" * 31 + "*",
        f"name:{NODE[:-1]}*",
    ],
)
def test_longest_selectors_are_taken(text: str) -> None:
    assert Selector(text).text == text


TOOLS = HEAD + "tools = '**'\n"


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        (TOOLS + "nodes = 'site=lab'", 4, '"tag:key=value"'),
        (TOOLS + "nodes = [\n'tag:site=lab',\n'tag:site']", 6, "such a tag"),
        (TOOLS + "nodes = [\n'name:pump-*',\n\n5]", 7, "a string"),
        (TOOLS + "nodes = 5", 4, "no list"),
        (TOOLS + "nodes = true", 4, "no list"),
        (TOOLS + "\nnodes = []", 5, "leave the key out"),
        (TOOLS + "node = 'name:x'", 4, "did you mean nodes?"),
        (TOOLS + "prices = [\n{ tools = '**', price = 1, nodes = 'x' }]", 5, '"name:PATTERN"'),
        (TOOLS + "prices = [{ tools = '**', nodes = 'name:x' }]", 4, "price is missing"),
        (TOOLS + "[[agents.rates]]\ntools = '**'\ncalls = 1\nper = '1s'\nnodes = 'name:'", 8, "such a name"),
        (TOOLS + "[[agents.rates]]\ntools = '**'\ncalls = 1\nper = '1s'\nnodes = []", 8, "at least one selector"),
        (HEAD + "nodes = 'tag:site=lab'", 1, "tools is missing"),
        (TOOLS + "nodes = [\n" + "'tag:site=lab',\n" * (SELECTORS_MAX + 1) + "]", 5 + SELECTORS_MAX, "a tag in common"),
    ],
)
def test_flaw_of_a_selector_is_told_with_its_line_and_what_to_do(text: str, line: int, hint: str) -> None:
    flaw = flaw_of(text)
    assert (flaw.line, hint in flaw.words) == (line, True), flaw


@pytest.mark.parametrize("selector", [MARK, f"tag:{MARK}", f"name:{MARK}", f"{MARK}:x"])
def test_flaw_of_a_selector_never_quotes_the_file(selector: str) -> None:
    assert MARK.lower() not in flaw_of(f"{TOOLS}nodes = '{selector}'").words.lower()


def test_as_many_selectors_as_the_limit_are_taken() -> None:
    texts = [f"tag:site=s{number}" for number in range(SELECTORS_MAX)]
    assert entry_of(f"nodes = {texts}").nodes == selectors_of(*texts)


@given(st.text())
def test_no_text_makes_a_selector_raise(text: str) -> None:
    if selector_trouble(text) is None:
        assert Selector(text).text == text


# ---- in a policy ----------------------------------------------------------------------------------------------------

TEXT = f"""\
[[agents]]
agent = "{ONE}"
tools = ["sys.**", "sysecho.**", "search.*"]
nodes = [
  "tag:site=lab",
  "name:pump-*",
]
price = 0.02
prices = [
  {{ tools = "sysecho.**", nodes = "tag:floor=2", price = 0.01 }},
  {{ tools = "**", nodes = ["tag:floor=3", "{OTHER}"], price = 0.03 }},
]
rates = [
  {{ tools = "**", calls = 100, per = "1m" }},
  {{ tools = "**", nodes = "tag:floor=2", calls = 10, per = "1m" }},
]
"""


def rules_of_text() -> AgentRules:
    rules = policy_of(TEXT).rules_for(ONE)
    assert rules is not None
    return rules


def test_selectors_are_read_wherever_tools_stand() -> None:
    rules = rules_of_text()
    everything = (Pattern("**"),)
    assert rules.nodes == selectors_of("tag:site=lab", "name:pump-*")
    assert rules.prices == (
        Price((Pattern("sysecho.**"),), 10_000, selectors_of("tag:floor=2")),
        Price(everything, 30_000, selectors_of("tag:floor=3", OTHER)),
    )
    assert rules.rates == (Rate(everything, 100, 60), Rate(everything, 10, 60, selectors_of("tag:floor=2")))


def test_rates_that_differ_in_their_nodes_only_are_two() -> None:
    one, other = Rate((), 1, 1, selectors_of("tag:a=b")), Rate((), 1, 1, selectors_of("tag:a=c"))
    assert len({one, other, Rate((), 1, 1)}) == 3


@pytest.mark.parametrize(
    ("labels", "is_allowed"),
    [
        (LAB, True),
        (Labels(None, {"site": "lab"}), True),
        (Labels("pump-9", {"site": "roof"}), True),
        (Labels("valve", {"site": "roof"}), False),
        (UNLABELLED, False),
        (None, False),
    ],
)
def test_entry_allows_its_tools_on_selected_nodes_only(labels: Labels | None, is_allowed: bool) -> None:
    rules = rules_of_text()
    assert (rules.allows(ECHO, labels), rules.allows(SNAPSHOT, labels)) == (is_allowed, is_allowed)


def test_selector_gives_no_tool_that_the_patterns_do_not() -> None:
    rules = entry_of("nodes = 'name:*'")
    assert rules.allows(ECHO, LAB)
    narrow = policy_of(f"{HEAD}tools = 'sys.**'\nnodes = 'name:*'").entries[0].rules
    assert (narrow.allows(SNAPSHOT, LAB), narrow.allows(ECHO, LAB)) == (True, False)


def test_tools_of_no_device_are_for_the_patterns_of_an_entry_alone() -> None:
    rules = rules_of_text()
    assert [rules.allows(tool, LAB) for tool in ("search.query", "fleet_find", "files.read")] == [True, False, False]
    assert all(entry_of("nodes = 'tag:site=lab'").allows(tool) for tool in NO_DEVICE)


@pytest.mark.parametrize("tool", BROKEN_NAMES)
def test_name_that_begins_like_a_devices_and_names_no_node_is_on_no_selected_node(tool: str) -> None:
    rules = entry_of("nodes = ['name:*', 'tag:site=lab']")
    assert Pattern("**").matches(tool)
    assert not rules.allows(tool, LAB)


@pytest.mark.parametrize("tool", NO_DEVICE)
def test_prices_and_rates_with_nodes_never_concern_what_is_no_devices(tool: str) -> None:
    rules = rules_of_text()
    assert rules.price_of(tool, Labels("pump-7", {"floor": "3"})) == (0 if tool in LOOKS else 20_000)
    assert [rate.concerns(tool, Labels("pump-7", {"floor": "2"})) for rate in rules.rates] == [True, False]


def test_first_price_whose_tools_and_nodes_both_match_wins() -> None:
    rules = rules_of_text()
    floors = [Labels(None, {"floor": floor}) for floor in ("1", "2", "3")]
    assert [rules.price_of(ECHO, labels) for labels in floors] == [20_000, 10_000, 30_000]
    assert [rules.price_of(SNAPSHOT, labels) for labels in floors] == [20_000, 20_000, 30_000]
    assert rules.price_of(f"sys.{OTHER}.metrics.snapshot") == 30_000


def test_rate_concerns_tools_of_its_nodes() -> None:
    _, narrow = rules_of_text().rates
    assert (narrow.concerns(ECHO, LAB), narrow.concerns(ECHO, Labels("pump-7")), narrow.concerns(ECHO)) == (
        True,
        False,
        False,
    )


@given(some_labels, st.sampled_from([ECHO, SNAPSHOT, *NO_DEVICE]), st.lists(texts, min_size=1, max_size=3))
def test_selectors_only_narrow_and_labels_change_nothing_without_them(
    labels: Labels, tool: str, chosen: list[str]
) -> None:
    patterns = (Pattern("sys.**"), Pattern("search.*"))
    plain, narrowed = AgentRules(patterns), AgentRules(patterns, selectors_of(*chosen))
    assert plain.allows(tool, labels) is plain.allows(tool)
    assert not narrowed.allows(tool, labels) or plain.allows(tool)


def test_rules_know_whether_labels_matter_to_them() -> None:
    assert not policy_of(TOOLS).entries[0].rules.selects
    for keys in (
        "nodes = 'name:x'",
        "prices = [{ tools = '**', nodes = 'name:x', price = 1 }]",
        "rates = [{ tools = '**', nodes = 'name:x', calls = 1, per = '1s' }]",
    ):
        assert entry_of(keys).selects
    assert [policy.narrows_nodes for policy in (DEFAULT, policy_of(TOOLS), policy_of(TEXT))] == [False, False, True]


# ---- why ------------------------------------------------------------------------------------------------------------


def test_explanation_names_the_selector_that_allowed_and_its_line() -> None:
    told = explain(policy_of(TEXT), ONE, ECHO, Labels("pump-7", {"floor": "2"}))
    assert told.allowed
    words = {statement.words: (statement.about, statement.line) for statement in told.statements}
    assert words["name:pump-* matches this node (name pump-7, tags floor=2)"] == ("node", 6)
    assert words["$0.01 a call on nodes that match tag:floor=2"] == ("price", 10)
    assert words["10 calls every minute of ** together on nodes that match tag:floor=2"] == ("rate", 15)
    assert words["100 calls every minute of ** together"] == ("rate", 14)


def test_explanation_of_a_node_that_is_not_selected_says_so() -> None:
    told = explain(policy_of(TEXT), ONE, ECHO, Labels(None, {"site": "roof"}))
    assert not told.allowed
    last = told.statements[-1]
    assert (last.about, last.line, last.value) == ("node", 4, False)
    assert last.words == "denied: none of the entry's nodes matches this node (no name, tags site=roof)"
    assert [statement.about for statement in told.statements] == ["agent", "tool", "node"]
    assert "allowed" not in told.statements[1].words
    assert "(no name, no tags)" in explain(policy_of(TEXT), ONE, ECHO).statements[-1].words


def test_explanation_of_a_tool_that_is_no_devices_says_that_nodes_do_not_concern_it() -> None:
    told = explain(policy_of(TEXT), ONE, "search.query")
    assert told.allowed
    (node,) = [statement for statement in told.statements if statement.about == "node"]
    assert (node.line, "no device's tool" in node.words) == (4, True)


@given(some_labels, st.sampled_from([ECHO, SNAPSHOT, *NO_DEVICE]))
def test_explanation_agrees_with_the_rules_about_nodes(labels: Labels, tool: str) -> None:
    told, rules = explain(policy_of(TEXT), ONE, tool, labels), rules_of_text()
    assert told.allowed is rules.allows(tool, labels)
    prices = [statement.value for statement in told.statements if statement.about == "price"]
    assert prices == ([rules.price_of(tool, labels)] if told.allowed else [])


@given(st.one_of(st.text(max_size=20), st.sampled_from([text for text, _ in BROKEN])))
def test_any_selector_in_a_file_is_taken_or_refused_on_its_line(text: str) -> None:
    quoted = "".join(f"\\U{ord(char):08x}" for char in text if not "\ud800" <= char <= "\udfff")
    result = parse(f'{TOOLS}\nnodes = "{quoted}"')
    assert getattr(result, "line", 5) == 5
