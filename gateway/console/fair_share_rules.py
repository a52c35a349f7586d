"""Who makes room where only so much of something is kept: whoever has the most of it. Pure.

Anybody who was given a look may make links and sign in as often as they like. That costs those behind the same token
their oldest ones, and nobody else.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def first_of_most(owners: Mapping[K, str]) -> K:
    """The first thing of the owner that has the most; of several such owners, of the one whose thing is first."""
    counts = Counter(owners.values())
    most = max(counts.values())
    return next(thing for thing, owner in owners.items() if counts[owner] == most)
