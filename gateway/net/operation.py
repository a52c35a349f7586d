"""What a route is for: its entry in the OpenAPI document, which stands beside the route in the feature that brings it.

A feature describes what it serves by method and path, `"GET /devices/{node_id}/manifest"`; `{path*}` stands for all
that is left of a path. `check` holds descriptions and routes against each other: it is asked for each feature before a
gateway listens, so a route without a description stops the start, and a description without a route too. Which document
is made of all of them, and how schemas get into it, is for `gateway/api/openapi.py`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gateway.net.router import ANY, WHOLE, Routes

JSON = "application/json"
_PLACE = re.compile(r"\{(\w+)(\*?)\}")


@dataclass(frozen=True, slots=True)
class Published:
    """A schema of the registry."""

    schema_id: str


Schema: TypeAlias = type[Any] | Mapping[str, Any] | Published
"""A shape that msgspec knows, JSON Schema, or a published one."""


@dataclass(frozen=True)
class ErrorForm:
    """How a family of routes says no."""

    name: str
    schema: Schema
    words: Mapping[int, Sequence[str]]  # those that there are, by status: a closed set
    always: Sequence[int]  # what any of its routes may be answered with, by the door too
    member: str = "error"  # of the body, that has the word
    also: Sequence[str] = ()  # media types of what says it otherwise, as a page does for a browser


@dataclass(frozen=True, slots=True)
class Credential:
    """One that opens a route; of several, any does."""

    scheme: str
    scopes: Sequence[str] = ()  # all of these


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets that is not refused."""

    text: str
    schema: Schema | None = None  # None: nothing, or bytes of no form
    media_type: str | None = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[str, Schema | None] = field(default_factory=dict)  # in other media types


NOTHING = Answer("Done.", media_type=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    summary: str
    tag: str
    form: ErrorForm
    answers: Mapping[int, Answer]
    refuses: Sequence[int] = ()
    text: str = ""
    credentials: Sequence[Credential] = ()  # none: whoever asks
    names: Mapping[str, Schema] = field(default_factory=dict)  # in paths; more than this one's may be there
    query: Mapping[str, Schema] = field(default_factory=dict)
    headers: Mapping[str, Schema] = field(default_factory=dict)
    body: Mapping[str, Schema | None] = field(default_factory=dict)  # by media type
    body_is_optional: bool = False


Operations: TypeAlias = Mapping[str, Operation]  # by "METHOD /path/{name}"


def names_in(path: str) -> list[str]:
    return [name for name, _ in _PLACE.findall(path)]


def pattern_of(path: str) -> str:
    """As a router has it."""
    return _PLACE.sub(lambda place: "*" if place[2] else "{}", path)


def chosen(endpoints: Iterable[tuple[str, str]], operations: Operations) -> Operations:
    """Those of these methods and paths, as a router has paths. Raises ValueError for one that none is of.

    A name in a path may be described word by word, where only some words are served.
    """
    found: dict[str, Operation] = {}
    for method, path in endpoints:
        name = re.compile(re.escape(f"{method} {path}").replace(r"\{\}", r"(?:\{\}|[\w-]+)"))
        fitting = [one for one in operations if name.fullmatch(pattern_of(one))]
        if not fitting:
            raise ValueError(f"the route {method} {path} is not described")
        found |= {one: operations[one] for one in fitting}
    return found


def check(routes: Routes, operations: Operations) -> None:
    """Raises ValueError for a route that no description is of, and for a description of no route."""
    described: dict[str, set[str]] = {}
    for name in operations:
        method, _, path = name.partition(" ")
        described.setdefault(pattern_of(path), set()).add(method)
    prefixes = tuple(path[:-1] for path in routes if path.endswith("*"))
    for path, (method, _) in routes.items():
        if path.endswith("*"):
            if not any(one.startswith(path[:-1]) for one in described):
                raise ValueError(f"nothing below the route {path} is described")
        elif path not in described or (method not in (ANY, WHOLE) and described[path] != {method}):
            raise ValueError(f"the route {method} {path} is not described, or otherwise")
    for path in described:
        if path not in routes and not path.startswith(prefixes or ("\0",)):
            raise ValueError(f"there is no route {path}, which is described")
