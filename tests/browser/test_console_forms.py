"""Forms made from JSON Schemas: what is drawn, what is sent, what is said; and JSON where nothing can be drawn."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.chromium import Browser
from tests.browser.console import ConsolePages
from tests.browser.console_fleet import MadeUpFleet
from tests.browser.console_server import FakeConsole, served

DRAWN: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "count", "mode", "place", "points"],
    "properties": {
        "name": {
            "type": "string",
            "minLength": 2,
            "maxLength": 8,
            "pattern": "^[a-z]*$",
            "description": "A short name.",
        },
        "count": {"type": "integer", "minimum": 1, "maximum": 5},
        "ratio": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "mode": {"enum": ["slow", "fast", 3]},
        "loud": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 7},
        "place": {"$ref": "#/$defs/place"},
        "points": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3},
        "parts": {"type": "array", "uniqueItems": True, "items": {"type": "string", "enum": ["cpu", "mem", "disk"]}},
        "either": {"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 10}]},
        "fixed": {"const": "v1"},
    },
    "$defs": {
        "place": {
            "type": "object",
            "required": ["x"],
            "properties": {"x": {"type": "integer"}, "of": {"$ref": "#/$defs/unit"}},
        },
        "unit": {"type": "string", "enum": ["m", "ft"]},
    },
}
ENDLESS = {"type": "object", "properties": {"name": {"type": "string"}, "inner": {"$ref": "#"}}}
NOT_DRAWN = {
    "alternatives": {"oneOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]},
    "pointing nowhere": {"$ref": "#/$defs/nothing"},
    "turning in circles": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "no object": {"type": "array", "items": {"type": "string"}},
}


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    with served(MadeUpFleet(4)) as one:
        one.fleet.nodes[0].update(state="live", name="tried")
        yield one


class Form:
    def __init__(self, browser: Browser, console: FakeConsole, schema: Any) -> None:
        self.browser = browser
        self.console = console
        tool = {
            "name": "lab.tool",
            "title": None,
            "verb": "invoke",
            "input_schema": schema,
            "safety_class": "read_only",
        }
        console.fleet.extra_tools = [tool]
        ConsolePages(browser, console).open_node()
        browser.click("[data-tool='lab.tool'] button")
        browser.one(".try form")

    def css(self, label: str) -> str:
        """The control with this label, by its id."""
        script = """
            const labels = [...document.querySelectorAll(".try label")];
            return labels.find((one) => one.textContent.replace(" *", "") === arguments[0])?.htmlFor;
        """
        found = self.browser.js(script, label)
        assert found, f"nothing is called {label}"
        return f"#{found}"

    def fill(self, **values: str) -> None:
        for label, value in values.items():
            self.browser.fill(self.css(label.replace("_", " ")), value)

    def choose(self, label: str, text: str) -> None:
        script = """
            const select = document.querySelector(arguments[0]);
            select.value = [...select.options].find(one => one.textContent === arguments[1]).value;
        """
        self.browser.js(script, self.css(label), text)

    def call(self) -> dict[str, Any]:
        """What reaches the gateway."""
        before = len(self.console.tries)
        self.browser.click(".try [type=submit]")
        self.browser.until(lambda: len(self.console.tries) > before, "nothing was called")
        arguments: dict[str, Any] = self.console.tries[-1]["arguments"]
        self.browser.shows(
            ".answer pre", json.dumps(arguments, indent=2).splitlines()[-2].strip() if arguments else "{}"
        )
        return arguments

    def is_refused(self, *words: str) -> None:
        before = len(self.console.tries)
        self.browser.click(".try [type=submit]")
        for one in words:
            self.browser.shows(".problem, .problems", one)
        assert len(self.console.tries) == before, "it was sent all the same"


def test_every_kind_of_field_is_drawn_and_sent_as_its_type(console: FakeConsole, anna: Browser) -> None:
    form = Form(anna, console, DRAWN)
    form.fill(name="pump", count="3", ratio="0.25", x="12", points_1="1.5")
    form.choose("mode", "3")
    form.choose("loud", "no")
    form.choose("of", "ft")
    anna.click(".list-field > button")
    form.fill(points_2="-4")
    anna.click(".several .check:nth-child(2) input")
    anna.click(f"{form.css('limit')} ~ .null input")
    form.fill(either="12")
    assert form.call() == {
        "name": "pump",
        "count": 3,
        "ratio": 0.25,
        "mode": 3,
        "loud": False,
        "limit": None,
        "place": {"x": 12, "of": "ft"},
        "points": [1.5, -4],
        "parts": ["mem"],
        "either": 12,
    }
    anna.shows(".outcome", "12.4 ms")
    anna.shows(".outcome", "$0.015")
    anna.shows(".audit-line", "tool_call")


def test_what_does_not_fit_is_said_at_its_field_and_nothing_is_sent(console: FakeConsole, anna: Browser) -> None:
    form = Form(anna, console, DRAWN)
    form.fill(name="P!", count="9", ratio="0", either="5")
    form.is_refused("must match ^[a-z]*$", "must be at most 5", "must be more than 0", "fits none of the alternatives")
    form.is_refused("is required", "is empty")
    count = anna.one(form.css("count"))
    assert count.get_attribute("aria-invalid") == "true"
    assert anna.js("return document.activeElement.getAttribute('aria-invalid')") == "true"
    described = count.get_attribute("aria-describedby") or ""
    assert any("must be at most 5" in anna.text(f"#{name}") for name in described.split())


def test_form_and_json_show_the_same_and_neither_loses_anything(console: FakeConsole, anna: Browser) -> None:
    form = Form(anna, console, DRAWN)
    form.fill(name="valve", count="2")
    anna.click(".schema > .plain")
    text = anna.js("return document.querySelector('.try textarea.json').value")
    assert json.loads(text) == {"name": "valve", "count": 2, "place": {}, "points": [None]}
    anna.fill(".try textarea.json", '{"name": "fan", "count": "many"}')
    anna.click(".schema > .plain")
    anna.shows(".problems", "cannot show all of this")
    anna.fill(".try textarea.json", '{"name": "fan", "count": 4, "points": [1, 2], "place": {"x": 1}, "mode": "slow"}')
    anna.click(".schema > .plain")
    assert anna.js(f"return document.querySelector('{form.css('points 2')}').value") == "2"
    anna.click("[aria-label='Remove points 1']")
    assert form.call() == {"name": "fan", "count": 4, "points": [2], "place": {"x": 1}, "mode": "slow"}


@pytest.mark.parametrize("schema", NOT_DRAWN.values(), ids=NOT_DRAWN)
def test_schema_that_cannot_be_drawn_is_json_with_validation(console: FakeConsole, anna: Browser, schema: Any) -> None:
    form = Form(anna, console, schema)
    anna.shows(".schema", "No form can be drawn")
    anna.fill("textarea.json", '{"a": ')
    anna.shows(".problem", "not JSON yet")
    form.is_refused("is not JSON")
    value = ["x"] if schema.get("type") == "array" else {"a": 1}
    if "oneOf" in schema:
        anna.fill("textarea.json", '{"a": 1, "b": 2}')
        anna.shows(".problem", "fits more than one of the alternatives")
        form.is_refused("fits more than one")
    anna.fill("textarea.json", json.dumps(value))
    assert form.call() == value


def test_schema_without_an_end_is_drawn_as_far_as_it_goes(console: FakeConsole, anna: Browser) -> None:
    form = Form(anna, console, ENDLESS)
    assert 2 <= len(anna.all(".try fieldset")) <= 10
    form.fill(name="outer")
    assert form.call() == {"name": "outer"}


def test_tool_that_the_gateway_refuses_shows_why_and_the_line_it_left(console: FakeConsole, anna: Browser) -> None:
    console.refuses_tries = True
    form = Form(anna, console, {"type": "object", "properties": {}})
    anna.shows(".schema", "It takes no arguments.")
    anna.click(".try [type=submit]")
    anna.shows(".answer .badge", "refused")
    anna.shows(".answer .refusal", "The budget of this agent is spent.")
    anna.shows(".audit-line", "budget")
    assert form.console.tries[-1]["arguments"] == {}
