"""What a client says of itself when it joins, `tz` and `loc`: reduced at once to what may be counted. Pure.

Neither is relayed, kept or logged, and what does not have the form counts as absent. Of `tz` the area is counted, of
`loc` only that there was one: nothing that a client sent becomes a label.
"""

import re

from actors.space.counts import Area

TZ_CHARS_MAX = 64  # more is ignored
LOC_CHARS_MAX = 35  # more is ignored

_TZ = re.compile(r"([A-Za-z]+)(?:/[A-Za-z0-9_+-]+){0,2}", re.ASCII)
_BCP_47 = re.compile(r"(?:[a-z]{2,8}|[ix](?=-))(?:-[a-z0-9]{1,8})*", re.ASCII | re.IGNORECASE)
_AREAS = {
    **{area.value.capitalize(): area for area in Area if area not in (Area.NONE, Area.UTC)},
    **dict.fromkeys(("Brazil", "Canada", "Chile", "Mexico", "US"), Area.AMERICA),
}
_ALONE = dict.fromkeys(("UTC", "GMT", "UCT", "Zulu", "Universal", "Greenwich"), Area.UTC)


def area_of(tz: str | None) -> Area:
    """By the first part of an IANA name. Whether there is such a city is not looked up: only the area is counted."""
    if tz is None or len(tz) > TZ_CHARS_MAX:
        return Area.NONE
    parts = _TZ.fullmatch(tz)
    if parts is None:
        return Area.NONE
    first = parts[1]
    if first == tz:
        return _ALONE.get(first, Area.NONE)
    return Area.UTC if first == "Etc" else _AREAS.get(first, Area.NONE)


def is_locale(loc: str | None) -> bool:
    """Whether this has the form of a BCP 47 tag."""
    return loc is not None and len(loc) <= LOC_CHARS_MAX and _BCP_47.fullmatch(loc) is not None
