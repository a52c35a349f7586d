"""A page of a long list, looked for in turns: between two checkpoints a bounded number of things is looked at.

A list may be long and show little of itself, as to a token that may call none of 15,000 tools; the event loop serves
others meanwhile. What comes or goes between two turns is seen or not, according to its place.
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import trio

LOOKS_MAX = 500  # at nodes and tools, between two checkpoints

T = TypeVar("T")
Place = TypeVar("Place")

# What to show of the things behind a place, a number of them at most, and the place to go on from; None: that was all.
# It looks at LOOKS_MAX things at most, and at one at least.
Look: TypeAlias = Callable[[Place, int], tuple[list[T], Place | None]]


async def page_behind(place: Place, look: Look[Place, T], limit: int) -> tuple[list[T], bool]:
    """The next things to show, `limit` at most, and whether there are more."""
    found: list[T] = []
    behind: Place | None = place
    while behind is not None and len(found) <= limit:  # one more than it takes: then there are more
        some, behind = look(behind, limit + 1 - len(found))
        found += some
        await trio.lowlevel.checkpoint()
    return found[:limit], len(found) > limit
