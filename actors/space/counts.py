"""What happened to the spaces of this process, as plain integers. Whoever does something adds to them.

They name nobody and stay when a space has ended. Every cell is there from the start, each from a closed set, so nobody
can make them grow. Who reads them is not known here.
"""

from enum import StrEnum

from actors.space.events import Ending
from schemas.echo.closes import RoomClose
from schemas.echo.errors import EchoError


class Operation(StrEnum):
    """What was done with values and files; refusals are counted elsewhere."""

    KV_READ = "kv_read"
    KV_WRITE = "kv_write"
    KV_DELETE = "kv_delete"
    FILE_UPLOAD = "file_upload"
    FILE_DELETE = "file_delete"


class Area(StrEnum):
    """The part of the world that a client's `tz` names: all that is ever counted of it."""

    NONE = "none"  # it sent none, or one that does not have the form
    AFRICA = "africa"
    AMERICA = "america"
    ANTARCTICA = "antarctica"
    ARCTIC = "arctic"
    ASIA = "asia"
    ATLANTIC = "atlantic"
    AUSTRALIA = "australia"
    EUROPE = "europe"
    INDIAN = "indian"
    PACIFIC = "pacific"
    UTC = "utc"


class SpaceCounts:
    """One for the process, shared by all of its spaces and rooms."""

    __slots__ = (
        "closes",
        "deliveries",
        "ended",
        "erase_failures",
        "frames_refused",
        "joins",
        "lost",
        "messages",
        "opened",
        "operations",
        "requests_refused",
        "upgrades_refused",
    )

    def __init__(self) -> None:
        self.opened = 0
        self.ended = dict.fromkeys(Ending, 0)
        self.erase_failures = 0  # tries that the disk refused; each is made again
        self.operations = dict.fromkeys(Operation, 0)
        words = [error.word for error in EchoError]
        self.requests_refused = dict.fromkeys(words, 0)
        self.upgrades_refused = dict.fromkeys(words, 0)
        self.frames_refused = dict.fromkeys(words, 0)  # of clients in a room, which stay there
        self.joins = {(area, has_locale): 0 for area in Area for has_locale in (False, True)}
        self.messages = 0  # taken from clients, and given a number
        self.deliveries = 0  # of messages, one for each connection that one goes to
        self.closes = dict.fromkeys(RoomClose, 0)
        self.lost = 0  # connections that ended without a close
