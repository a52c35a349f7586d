"""The RFC 8785 form of a JSON value, and the blake3-256 hash over it."""

from collections.abc import Iterable
from typing import Any

import rfc8785
from blake3 import blake3

INTEGER_MAX = 2**53 - 1  # beyond it a double cannot tell neighbours apart, and the form is not defined


def canonical(value: Any) -> bytes:
    """Raises `rfc8785.CanonicalizationError` for what has no such form: ask `first_unsafe_number` about input."""
    return rfc8785.dumps(value)


def digest(value: Any) -> str:
    """blake3-256 of the canonical form, hex. Of a whole manifest this is its ETag."""
    return blake3(canonical(value)).hexdigest()


def first_unsafe_number(value: Any) -> str | None:
    """Where the first number stands that the canonical form cannot hold; None when all is well."""
    if isinstance(value, (int, float)):
        return None if -INTEGER_MAX <= value <= INTEGER_MAX else ""
    steps: Iterable[tuple[str | int, Any]]
    if isinstance(value, dict):
        steps = value.items()
    elif isinstance(value, list):
        steps = enumerate(value)
    else:
        return None
    for step, item in steps:
        if isinstance(item, str):
            continue
        below = first_unsafe_number(item)
        if below is not None:
            return f"/{step}{below}"
    return None
