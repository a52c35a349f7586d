"""Which large requests are decoded at all, and which answers are large."""

import json
import tracemalloc
from typing import Any

import pytest

from gateway.calls.large_call_rules import LongTexts, is_large_answer

LONG = "A" * 1_000_000
is_mostly_text = LongTexts("data_base64", "value").are_most_of


def call(arguments: object, **more: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "params": {"name": "t", "arguments": arguments}, **more}).encode()


@pytest.mark.parametrize("arguments", [{"data_base64": LONG}, {"key": "k", "value": '\u00e9"\\n' * 100_000}])
def test_one_long_text_is_taken_whatever_its_escapes(arguments: dict[str, str]) -> None:
    assert is_mostly_text(call(arguments))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x" * 100_000,
        b"[" * 10_000_000,
        b'{"params":' * 1_000_000,
        b'{"params":{"arguments":{"data_base64":"' + b"A" * 100_000,
        b"\xff" * 100_000,
        call([LONG]),
        call({"data_base64": [0] * 100_000}),
        call({"data_base64": LONG, "name": "x" * 70_000}),
        call({"data_base64": LONG}, more=[{}] * 30_000),
        b'{"params":{"arguments":{"value":[' + b"{}," * 30_000 + b'0]}},"params":{"arguments":{"value":"v"}}}',
        json.dumps([json.loads(call({"value": LONG}))]).encode(),
    ],
    ids=range(12),
)
def test_what_is_long_in_another_way_is_not_decoded(body: bytes) -> None:
    assert not is_mostly_text(body)


def test_only_the_texts_that_are_named_may_be_long() -> None:
    prompts = LongTexts("system_prompt")
    assert prompts.are_most_of(call({"system_prompt": LONG}))
    assert not prompts.are_most_of(call({"value": LONG}))
    assert not prompts.are_most_of(call({"system_prompt": [LONG]}))


def test_judging_takes_no_memory_for_many_small_things() -> None:
    body = call({"value": [{"a": []}] * 300_000})
    tracemalloc.start()
    assert not is_mostly_text(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * len(body)  # a copy of what it judges, and no objects


@pytest.mark.parametrize(
    ("document", "is_large"),
    [
        ({"value": "v" * 32_000}, False),
        ({"value": "v" * 33_000}, True),
        ({"value": "\x00" * 5_000}, False),  # 6 bytes each, and once more 7
        ({"value": "\x00" * 5_100}, True),
        ({"files": [{"name": "n" * 100}] * 200}, False),
        ({"files": [{"name": "n" * 100}] * 300}, True),
        ({}, False),
    ],
)
def test_answer_is_large_by_what_is_sent_of_it(document: dict[str, Any], is_large: bool) -> None:
    assert is_large_answer(document) is is_large
