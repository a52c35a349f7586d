"""What the OpenAPI document says of an operator's route, beside what the route itself has: method, scopes, body."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.net.operation import Schema


@dataclass(frozen=True, slots=True)
class About:
    summary: str
    answer: Schema | None  # None: nothing (204), or bytes of no form
    name: str = ""  # of what `{}` in the path stands for
    of_name: Schema = field(default_factory=lambda: {"type": "string"})
    query: Mapping[str, Schema] = field(default_factory=dict)
    refuses: Sequence[int] = ()  # besides what every operator's route may
    text: str = ""
