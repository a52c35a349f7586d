"""Requests as a document describes them, and as it does not."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from hypothesis import strategies as st

from tests.gateway.openapi.documented import Described
from tests.gateway.openapi.values import ANYTHING, TEXT, fitting

FORM, MULTIPART, JSON = "application/x-www-form-urlencoded", "multipart/form-data", "application/json"
_NAME = TEXT.filter(bool)
_HEADER = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=40)
_ACCEPT = st.sampled_from(
    [JSON, "text/html", "*/*", "text/event-stream", f"{JSON}, text/event-stream", "image/png;q=1"]
)
_RAW = st.binary(max_size=64)
_BOUNDARY = "b0undary"


@dataclass(frozen=True)
class Asked:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None


def requests_of(one: Described, names: Mapping[str, str], headers: Mapping[str, str]) -> st.SearchStrategy[Asked]:
    """`names` stand in the path, mostly; `headers` are the credential and what goes with it, mostly."""
    queries = {name: _query_value(schema) for name, schema in one.parameters("query").items()}
    fields = {name: _ACCEPT if name == "Accept" else _HEADER for name in one.parameters("header")}
    bodies = [_body(kind, schema) for kind, schema in one.bodies().items()]
    places = {name: _place(name, schema, names) for name, schema in one.parameters("path").items()}

    @st.composite
    def made(draw: st.DrawFn) -> Asked:
        path = one.path
        for name, strategy in places.items():
            path = path.replace(f"{{{name}}}", quote(draw(strategy), safe=""))
        query = draw(st.fixed_dictionaries({}, optional=queries))
        given = draw(st.sampled_from([*[headers] * 8, {}, {"Authorization": "Bearer es_none"}]))
        more = draw(st.fixed_dictionaries({}, optional=fields))
        kind, body = draw(st.one_of(bodies)) if bodies else (None, None)
        typed = {} if kind is None else {"Content-Type": kind}
        target = path + (f"?{urlencode(query, doseq=True)}" if query else "")
        return Asked(one.method, target, {**given, **more, **typed}, body)

    return made()


def _place(name: str, schema: Any, names: Mapping[str, str]) -> st.SearchStrategy[str]:
    known = st.just(names[name]) if name in names else fitting(schema)
    return st.one_of(*[known] * 8, fitting(schema).filter(bool), _NAME)


def _query_value(schema: Any) -> st.SearchStrategy[Any]:
    if schema.get("type") == "array":
        return st.lists(fitting(schema["items"]) | _NAME, max_size=3)
    return st.one_of(fitting(schema), _NAME)


def _body(kind: str, schema: Any) -> st.SearchStrategy[tuple[str | None, bytes | None]]:
    odd = st.tuples(st.sampled_from([kind, "text/plain", None]), _RAW | st.none())
    if kind == JSON:
        text = st.one_of(fitting(schema), fitting(schema), ANYTHING)
        return st.one_of(st.tuples(st.just(JSON), text.map(_json)), odd)
    if kind == FORM:
        fields = {
            name: _NAME if "enum" not in rule else st.sampled_from(rule["enum"])
            for name, rule in schema["properties"].items()
        }
        pairs = st.fixed_dictionaries({}, optional=fields)
        return st.one_of(st.tuples(st.just(FORM), pairs.map(lambda form: urlencode(form).encode())), odd)
    if kind == MULTIPART:
        return st.one_of(st.tuples(st.just(f"{MULTIPART}; boundary={_BOUNDARY}"), _RAW.map(_multipart)), odd)
    return st.tuples(st.sampled_from([JSON, "text/css", kind, None]) if kind == "*/*" else st.just(kind), _RAW)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _multipart(content: bytes) -> bytes:
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'.encode()
    return head + content + f"\r\n--{_BOUNDARY}--\r\n".encode()
