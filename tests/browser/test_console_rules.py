"""The console's rules, as the browser runs them: waiting, reading events, round numbers, words, fitting a schema."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.chromium import Browser
from tests.browser.console_fleet import MadeUpFleet
from tests.browser.console_server import served


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(MadeUpFleet(0)) as console:
        yield f"{console.url}/console/assets"


@pytest.fixture
def rules(address: str, anna: Browser) -> "Rules":
    anna.open(f"{address}/icon.svg")  # an address of the same origin, without anything that runs
    return Rules(anna)


class Rules:
    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def call(self, module: str, body: str, *arguments: object) -> Any:
        """`body` is an expression of `m`, the module, and `args`."""
        script = f"const m = await import('/console/assets/{module}.js'); return {body}"
        return self._browser.js_async(script, *arguments)


def test_waits_double_up_to_their_longest_and_lie_in_their_upper_half(rules: Rules) -> None:
    low = rules.call("backoff-rules", "[0, 1, 2, 3, 4, 5, 60].map((n) => m.waitMs(n, 0))")
    high = rules.call("backoff-rules", "[0, 1, 2, 3, 4, 5, 60].map((n) => m.waitMs(n, 1))")
    assert low == [500, 1000, 2000, 4000, 8000, 15000, 15000]
    assert high == [1000, 2000, 4000, 8000, 16000, 30000, 30000]


def test_events_are_read_however_they_are_cut(rules: Rules) -> None:
    text = 'event: fleet\ndata: {"a":\ndata: 1}\n\n: a comment\n\nevent: ping\ndata: {}\n\ndata: x\n\nevent: cut'
    body = """(() => {
        const reader = new m.EventReader();
        return [...args[0]].flatMap((part) => [...reader.read(part)]);
    })()"""
    expected = [
        {"name": "fleet", "data": '{"a":\n1}'},
        {"name": "ping", "data": "{}"},
        {"name": "message", "data": "x"},
    ]
    assert rules.call("event-stream", body, [text]) == expected
    assert rules.call("event-stream", body, list(text)) == expected


def test_event_without_an_end_is_not_kept_for_ever(rules: Rules) -> None:
    body = """(() => {
        const reader = new m.EventReader(), part = "data: " + "x".repeat(1024 * 1024);
        try { for (let i = 0; i < 6; i += 1) [...reader.read(part)]; } catch (error) { return error.message; }
        return "kept";
    })()"""
    assert rules.call("event-stream", body) == "The gateway sent an event without an end."


@pytest.mark.parametrize(
    ("low", "high", "base", "expected"),
    [
        (0, 1.9, 10, [0, 1, 2]),
        (0, 87, 10, [0, 50, 100]),
        (-3, 4, 10, [-5, -2.5, 0, 2.5, 5]),
        (0, 3_000_000_000, 1024, [0, 1 << 30, 2 << 30, 3 << 30]),
        (0, 0, 10, [0, 0.5]),
    ],
)
def test_ticks_are_round_and_reach_over_the_values(
    rules: Rules, low: float, high: float, base: int, expected: list[float]
) -> None:
    assert rules.call("chart-rules", "m.roundTicks(args[0], args[1], 3, args[2])", low, high, base) == expected


def test_many_points_are_thinned_and_their_extremes_stay(rules: Rules) -> None:
    body = """(() => {
        const points = Array.from({length: 10_000}, (_, at) => at === 5_432 ? 99 : at % 7);
        const kept = m.thinned(points, 100, (value) => value);
        return [kept.length <= 200, Math.max(...kept), Math.min(...kept)];
    })()"""
    assert rules.call("chart-rules", body) == [True, 99, 0]


def test_amounts_spans_and_names_have_few_words(rules: Rules) -> None:
    said = rules.call(
        "formats",
        """[
            m.moneyText(15_000), m.moneyText(1_234_567_890), m.moneyText(0), m.moneyText(null), m.sumText(999_999),
            m.sumText(24_619_500), m.agoText(0, 1_500), m.agoText(0, 90_000), m.spanText(250), m.spanText(172_800_000),
            m.bytesText(1_536), m.countOf(1, "node"), m.countOf(20_000, "node"), m.shortNumber(12_345),
            m.shortTool("sys.01m7nxqjs0cbbkt4cnd45mrpzg.metrics.snapshot"), m.shortTool("search.find"),
        ]""",
    )
    assert said == [
        "$0.015", "$1,234.56789", "$0.00", "–", "$0.999999",
        "$24.62", "now", "1 min ago", "250 ms", "2 d",
        "1.5 KiB", "1 node", "20,000 nodes", "12.3k",
        "sys.…rpzg.metrics.snapshot", "search.find",
    ]  # fmt: skip


FITS: tuple[tuple[Any, Any, list[str]], ...] = (
    ({"type": "integer", "minimum": 1, "maximum": 3}, 3, []),
    ({"type": "integer"}, 3.5, ["must be a whole number"]),
    ({"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.1}, 0.3, []),
    ({"type": "number", "multipleOf": 0.1}, 0.35, ["must be a multiple of 0.1"]),
    ({"type": "string", "minLength": 2, "maxLength": 2}, "😀😀", []),
    ({"type": "string", "pattern": "^a+$"}, "ab", ["must match ^a+$"]),
    ({"type": "string", "pattern": "(?<broken"}, "ab", []),
    ({"type": ["string", "null"]}, None, []),
    ({"type": ["string", "null"]}, 1, ["must be text or null"]),
    ({"enum": [{"a": 1, "b": 2}]}, {"b": 2, "a": 1}, []),
    ({"const": 1}, True, ["must be 1"]),
    (
        {"type": "array", "uniqueItems": True, "items": {"type": "integer"}},
        [1, "x", 1],
        ["has the same item twice", "must be a whole number"],
    ),
    (
        {"type": "object", "required": ["a"], "additionalProperties": False},
        {"b/~": 1},
        ["is required", "is not a field of this"],
    ),
    ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, 4, ["fits none of the alternatives"]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, 7, ["fits more than one of the alternatives"]),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 3, ["must be at most 2"]),
    ({"not": {"type": "null"}}, None, ["is what it must not be"]),
    (
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"inner": {"$ref": "#/$defs/a"}}}}},
        {"inner": {"inner": 1}},
        ["must be an object"],
    ),
    ({"$ref": "#"}, 1, []),
    ({"$ref": "https://example.org/schema"}, 1, []),
    (False, 1, ["is not allowed here"]),
)


@pytest.mark.parametrize(("schema", "value", "words"), FITS, ids=[json.dumps(schema)[:50] for schema, *_ in FITS])
def test_value_is_held_against_its_schema(rules: Rules, schema: Any, value: Any, words: list[str]) -> None:
    found = rules.call("schema-check", "m.problemsOf(args[0], args[1])", value, schema)
    assert [one["words"] for one in found] == words


def test_place_of_a_problem_is_a_json_pointer(rules: Rules) -> None:
    schema = {"properties": {"a/b": {"items": {"required": ["~"]}}}}
    found = rules.call("schema-check", "m.problemsOf(args[0], args[1])", {"a/b": [{}, {"~": 1}]}, schema)
    assert [one["path"] for one in found] == ["/a~1b/0/~0"]


BUSHY = (
    {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    {"oneOf": [{"$ref": "#"}, {"$ref": "#"}]},
    {"not": {"anyOf": [{"not": {"$ref": "#"}}, {"not": {"$ref": "#"}}]}},
    {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]}}},
)


@pytest.mark.parametrize("schema", BUSHY, ids=[json.dumps(schema)[:40] for schema in BUSHY])
def test_schema_that_refers_to_itself_many_times_ends(rules: Rules, schema: Any) -> None:
    value: Any = 1
    for _ in range(100):
        value = {"a": value}
    assert isinstance(rules.call("schema-check", "m.problemsOf(args[0], args[1])", value, schema), list)


ODD: tuple[Any, ...] = (
    None, 5, [], "object", {"type": 7}, {"type": "object", "required": 5}, {"type": "object", "properties": 5},
    {"type": "object", "properties": None}, {"type": "object", "properties": {"a": None}}, {"enum": 5}, {"$ref": 5},
    {"$ref": "#/%"}, {"type": "array", "items": 5}, {"anyOf": 5}, {"oneOf": [None, None]}, {"allOf": {"0": 1}},
    {"type": "string", "pattern": 5, "maxLength": "x"}, {"type": "object", "properties": {"__proto__": {}}},
)  # fmt: skip


@pytest.mark.parametrize("schema", ODD, ids=[json.dumps(schema)[:50] for schema in ODD])
def test_what_is_no_schema_has_a_field_and_leaves_values_to_the_gateway(rules: Rules, schema: Any) -> None:
    assert rules.call("schema-rules", "m.fieldOf(args[0]).kind", schema)
    for value in ({}, {"a": [1]}, ["x"], "x"):
        assert isinstance(rules.call("schema-check", "m.problemsOf(args[0], args[1])", value, schema), list)


def test_form_has_so_many_fields_however_they_refer_to_each_other(rules: Rules) -> None:
    inner = {"type": "object", "properties": {f"f{number}": {"$ref": "#/$defs/inner"} for number in range(40)}}
    count = "(function count(f) { return 1 + (f.fields ?? []).reduce((sum, {field}) => sum + count(field), 0) })"
    fields = rules.call("schema-rules", f"{count}(m.fieldOf(args[0]))", {**inner, "$defs": {"inner": inner}})
    assert 40 < fields <= 301


def test_value_as_deep_as_a_body_may_be_is_looked_at_without_harm(rules: Rules) -> None:
    body = """(() => {
        let value = 1;
        for (let depth = 0; depth < 5_000; depth += 1) value = {inner: value};
        return m.problemsOf(value, {type: "object", properties: {inner: {$ref: "#"}}}).length;
    })()"""
    assert rules.call("schema-check", body) == 0


def test_chart_goes_on_passes_over_what_it_has_and_begins_anew_when_the_clock_is_set_back(rules: Rules) -> None:
    def continued(points: list[int], at: int, most: int = 3) -> list[int]:
        body = "m.continued(args[0].map((at) => ({at})), {at: args[1]}, args[2]).map(({at}) => at)"
        return list(rules.call("chart-rules", body, points, at, most))

    assert continued([], 5) == [5]
    assert continued([1, 2], 3) == [1, 2, 3]
    assert continued([1, 2, 3], 4) == [2, 3, 4]
    assert continued([1, 20_000], 20_000) == [1, 20_000]
    assert continued([1, 20_000], 10_000) == [1, 20_000]
    assert continued([1, 20_000], 9_999) == [9_999]


def test_what_was_released_or_refunded_is_not_spent(rules: Rules) -> None:
    def told(second: int, event: str, key: str, **more: object) -> dict[str, object]:
        return {"at": f"1970-01-01T00:00:0{second}.000Z", "event": event, "id": key, **more}

    history = [
        told(1, "reserved", "a", tool="x", micros=5),
        told(1, "charged", "a"),
        told(2, "reserved", "b", tool="y", micros=7),
        told(2, "charged", "b"),
        told(3, "refunded", "b", micros=7),
        told(4, "reserved", "c", tool="y", micros=2),
        told(5, "released", "c"),
        told(6, "refunded", "older", micros=3),
    ]
    ledgers = [{"used_micros": 10, "history": history}]
    points = rules.call("spending-rules", "m.spending(args[0], 9000)", ledgers)
    assert [(point["at"], *point["values"]) for point in points] == [
        (999, 8),
        (1000, 13),
        (2000, 20),
        (3000, 13),
        (4000, 15),
        (5000, 13),
        (6000, 10),
        (9000, 10),
    ]
    assert rules.call("spending-rules", "m.byTool(args[0])", ledgers) == [["x", 5], ["y", 0]]
