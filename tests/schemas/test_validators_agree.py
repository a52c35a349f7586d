"""jsonschema-rs judges, jsonschema explains: on the same files they must say the same, down to the place."""

import random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from schemas.contract import WORDS, Contract, contract
from schemas.ecma import UntranslatablePatternError, compile_ecma
from schemas.registry import REGISTRY
from tests.schemas.examples import EXAMPLES
from tests.schemas.mutations import mutants

EXAMPLES_A_SCHEMA = 40
INSTANCES_AN_EXAMPLE = 60  # 2,400 instances a schema


@pytest.mark.parametrize("schema_id", [schema.id for schema in REGISTRY])
def test_both_validators_find_the_same_flaws(schema_id: str) -> None:
    seen = {True: 0, False: 0}

    @settings(max_examples=EXAMPLES_A_SCHEMA, deadline=None, derandomize=True, phases=[Phase.generate])
    @given(seed=st.integers(0, 2**32))
    def agree(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(INSTANCES_AN_EXAMPLE):
            instance = mutants(rng.choice(EXAMPLES[schema_id]), rng)
            fast, slow = contract(schema_id).flaws(instance), frozenset(contract(schema_id).explain(instance))
            assert fast == slow, instance
            assert contract(schema_id).is_valid(instance) is (not fast)
            assert (contract(schema_id).first_flaw(instance) is None) is (not fast)
            assert all(flaw.rule in WORDS for flaw in fast)
            seen[not fast] += 1

    agree()
    assert min(seen.values()) > 100, f"too few of one sort to mean anything: {seen}"


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"^[a-z]+$", "abc", True),
        (r"^[a-z]+$", "abc\n", False),
        (r"^\d+$", "12", True),
        (r"^\d+$", "\u0661\u0662", False),
        (r"^\w+$", "a_1", True),
        (r"^\w+$", "é", False),
        (r"^[\x20-\x7E]*$", "", True),
        (r"^[\x20-\x7E]*$", "tab\t", False),
        (r"^[$.]+$", "$.", True),
        (r"^a\$\.b$", "a$.b", True),
        (r"^[&|~[]+$", "&&||~~[", True),
        (r"b", "abc", True),
        (r"^a{2,3}(b|c)+$", "aabcb", True),
    ],
)
def test_pattern_means_what_ecma_says_in_both(pattern: str, text: str, matches: bool) -> None:
    assert bool(compile_ecma(pattern).search(text)) is matches
    by_pattern = Contract({"pattern": pattern})
    assert by_pattern.is_valid(text) is matches
    assert (by_pattern.explain(text) == []) is matches


@pytest.mark.parametrize("pattern", [r"a.b", r"\s", r"\bword", r"(?i)a", r"(?=a)", r"\p{L}", r"(a)\1", "\\"])
def test_pattern_that_the_dialects_may_read_differently_is_refused(pattern: str) -> None:
    with pytest.raises(UntranslatablePatternError):
        compile_ecma(pattern)


def test_pointer_never_shows_a_name_that_the_sender_chose() -> None:
    open_object = Contract({"additionalProperties": {"additionalProperties": {"type": "string"}}})
    instance = {"<script>": {"message": 1}}
    for flaws in (open_object.flaws(instance), open_object.explain(instance)):
        assert [flaw.pointer for flaw in flaws] == ["/*/message"]


def test_words_name_the_place_and_the_rule() -> None:
    echo = contract("system.echo.invoke.input@1.0.0")
    assert [flaw.words for flaw in echo.explain({})] == ["/message is missing"]
    assert [flaw.words for flaw in echo.explain([])] == ["the document has the wrong type"]
    assert [flaw.words for flaw in echo.explain({"message": "x" * 1025})] == ["/message is too long"]
