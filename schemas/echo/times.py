"""Times of echo spaces: RFC 3339 in UTC in JSON, Unix milliseconds everywhere else."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
YEAR_10000_MS = 253_402_300_800_000  # what RFC 3339 cannot write any more


def rfc3339(ms: int) -> str:
    """With milliseconds and `Z`. Of a time from 1970 to the year 9999."""
    return f"{_second(ms // 1000)}.{ms % 1000:03}Z"


@lru_cache(maxsize=64)  # a busy room asks for the same second again and again
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]


def from_rfc3339(text: str) -> int | None:
    """In Unix milliseconds, rounded down; None: it is no such time."""
    found = _RFC_3339.fullmatch(text)
    if found is None:
        return None
    fraction, zone = found.groups()
    try:
        at = datetime.fromisoformat(text[:19].upper() + ("+00:00" if zone in "Zz" else zone))
        return (at - _EPOCH) // _MS + (int(fraction[1:].ljust(3, "0")[:3]) if fraction else 0)
    except (ValueError, OverflowError):
        return None
