"""Spans of time as people write them, on the command line and in a policy: 30s, 10m, 12h, 30d."""

import re

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FORM = re.compile(r"([1-9][0-9]{0,5})([smhd])\Z")


def duration_s(text: str) -> int | None:
    match = _FORM.match(text)
    return None if match is None else int(match[1]) * _UNITS_S[match[2]]
