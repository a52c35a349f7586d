"""What may be asked of the audit: filters, a time, a place to go on from. Pure.

Lines are numbered as they are written, without gaps that mean anything; a number is a place in their order, whether or
not its line is still there.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

COLUMNS = ("event", "sub", "tenant", "tool", "node_id", "decision", "reason")  # that a filter may name
FILTERS = {
    "event": "event",
    "agent": "sub",
    "tenant": "tenant",
    "tool": "tool",
    "node": "node_id",
    "decision": "decision",
    "reason": "reason",
}
"""By the name that people give them: the column."""
TEXT_CHARS_MAX = 256  # of a filter; nothing that is kept is longer
LINES_MAX = 1_000  # in one answer; who asks for more gets this many
LINES_DEFAULT = 200
HOUR_MS = 3_600_000
AT_MS_MAX = 253_402_300_799_999  # the last moment that RFC 3339 can name
_AGO = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SURROGATE = re.compile("[\ud800-\udfff]")
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
TIME_RULE = (
    "A time is RFC 3339, such as 2026-11-11T08:00:00Z, a day, such as 2026-11-11, or how long ago: 30m, 12h, 7d."
)


class AuditQuery(msgspec.Struct, frozen=True):
    """Which lines, in which direction. Newest first, unless `after` says to go on upwards from there."""

    equal: tuple[tuple[str, str], ...] = ()  # columns and what they have to have
    since_ms: int | None = None
    until_ms: int | None = None  # not at that instant any more
    before: int | None = None  # only lines with smaller numbers
    after: int | None = None  # only lines with larger numbers, oldest first
    limit: int = LINES_DEFAULT

    def continued(self, place: int) -> "AuditQuery":
        """The same from there on."""
        if self.after is None:
            return msgspec.structs.replace(self, before=place)
        return msgspec.structs.replace(self, after=place)


class BadAuditQuery(Exception):  # noqa: N818  # named for what was asked
    """The text says what is wrong and what to do; nothing that was sent is in it."""


def read_query(fields: Mapping[str, str], now_ms: int) -> AuditQuery:
    """From a request or a command. Raises BadAuditQuery."""
    unknown = fields.keys() - FILTERS.keys() - {"since", "until", "before", "after", "limit"}
    if unknown:
        names = ", ".join((*FILTERS, "since", "until", "before", "after", "limit"))
        raise BadAuditQuery(f"There is no such filter. There are {names}.")
    equal = tuple((column, fields[name]) for name, column in FILTERS.items() if name in fields)
    if any(len(text) > TEXT_CHARS_MAX for _, text in equal):
        raise BadAuditQuery(f"A filter has at most {TEXT_CHARS_MAX} characters.")
    if any(_SURROGATE.search(text) for _, text in equal):  # as the shell's words have where they are not UTF-8
        raise BadAuditQuery("A filter is text in UTF-8.")
    if "before" in fields and "after" in fields:
        raise BadAuditQuery("before goes on downwards, after upwards: give one of them.")
    return AuditQuery(
        equal,
        _time(fields.get("since"), now_ms),
        _time(fields.get("until"), now_ms),
        _number(fields.get("before"), "before"),
        _number(fields.get("after"), "after"),
        min(_number(fields.get("limit"), "limit") or LINES_DEFAULT, LINES_MAX),
    )


def _number(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise BadAuditQuery(f"{name} is a number, as an answer has it.")
    return int(text)


def _time(text: str | None, now_ms: int) -> int | None:
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        return now_ms - int(ago[1]) * _UNITS_S[ago[2]] * 1000
    try:
        at = datetime.fromisoformat(text) if text.isascii() else None
    except ValueError:
        at = None
    if at is None:
        raise BadAuditQuery(TIME_RULE)
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)


class KeptLine(msgspec.Struct, frozen=True):
    """A line as it was written, with its number."""

    number: int
    at_ms: int
    event: str
    fields: dict[str, Any]

    def shown(self) -> dict[str, Any]:
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return {"id": self.number, "at": at.replace("+00:00", "Z"), "event": self.event, **self.fields}


class CallTally(msgspec.Struct, frozen=True):
    """Calls of one hour that have all of this in common."""

    hour_ms: int  # when it began
    tenant: str | None
    sub: str | None
    tool: str | None
    decision: str | None
    reason: str | None
    calls: int
    micros: int  # what they cost together
    last_ms: int


class Found(msgspec.Struct, frozen=True):
    """Some lines, and where to go on; None: there are no more at present."""

    lines: tuple[KeptLine, ...]
    place: int | None
