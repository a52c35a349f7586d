"""The form of a refusal that no route says itself, by path: APIs side by side have errors of different forms.

The door refuses what it cannot read, or not in time, before a request has a route; the router refuses where there is
none. Which form a path has, its feature declares (`Feature.refusal_form`). A path of none has the device API's.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias


class Refused(NamedTuple):
    """An answer, but for its framing."""

    status: int  # not always the one that was asked for: a form may have a closed set of them
    headers: tuple[tuple[bytes, bytes], ...]  # without the length
    body: bytes


RefusalForm: TypeAlias = Callable[[int, str], Refused]  # of a status and a correlation id
FormOf: TypeAlias = Callable[[str], RefusalForm | None]  # by path; None: the device API's


def device_form_only(_: str) -> RefusalForm | None:
    return None
