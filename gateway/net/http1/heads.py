"""What the head of a request says, and a memory of heads: clients send the same one, byte for byte, again and again.

A head that was read and found good is remembered by its bytes, so that it costs a look-up when it comes again. That is
no less strict: the same bytes at the start of a request mean the same. Reading the others is for `requests.py`.
"""

import re
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from gateway.net.applications import Application
from gateway.net.refusal_form import RefusalForm

HEADS_MAX = 512
"""Remembered by one door; then the one that was read longest ago goes, and is read again when it comes."""
HEAD_BYTES_MAX = 2048
"""A longer head is not remembered."""

_TARGET = re.compile(rb"[^ \r\n]+ (?:https?://([^/? \r\n]*))?(/[^? \r\n]*)", re.IGNORECASE)
_HOST = re.compile(rb"\r\nhost:[ \t]*([^\r\n]*?)[ \t]*\r\n", re.IGNORECASE)

Headers: TypeAlias = list[tuple[bytes, bytes]]


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A request without its body. (A struct: a frozen dataclass takes ten times as long to make.)"""

    application: Application
    """Whose request it is, by its host."""
    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Headers
    version: str
    keep_alive: bool
    expects_continue: bool
    length: int = 0
    """Of the body, as far as the head says it: nothing is known of one in chunks."""
    is_websocket: bool = False
    """A valid request for an upgrade, at a path where the application takes those."""

    @property
    def refusal_form(self) -> RefusalForm | None:
        return self.application.form_of(self.path)


class Claimed(NamedTuple):
    """What a head that is not good, or not whole, seems to ask for.

    Good for the choice of words in which it is refused, and for nothing else: it may be cut short.
    """

    host: bytes | None  # None: it names none
    path: str  # "" if nothing


def claimed(data: bytes) -> Claimed:
    target = _TARGET.match(data, 0, HEAD_BYTES_MAX)
    host = _HOST.search(data, 0, HEAD_BYTES_MAX)
    named = (target and target[1]) or (host and host[1])  # a target's own comes first
    path = "" if target is None else unquote_to_bytes(target[2]).decode("utf-8", "replace")
    return Claimed(named or None, path)


class KnownHeads:
    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}

    def find(self, data: bytes) -> Head | None:
        return self._heads.get(data)

    def remember(self, data: bytes, head: Head) -> None:
        if len(data) > HEAD_BYTES_MAX:
            return
        if len(self._heads) >= HEADS_MAX:
            del self._heads[next(iter(self._heads))]
        self._heads[data] = head
