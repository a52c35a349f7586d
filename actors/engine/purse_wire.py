"""What processes say to each other about money, as bytes; and on which subject. Pure."""

import re
from collections.abc import Callable

import msgspec

from actors.bus.purse import Granted, Guess, Look, NotGiven, NotNow, Order, OverBudget, Stands, TooOften
from actors.ledger.ledger import Agent

WORKING, MOVED = b"working", b"moved"  # said before an answer
_PLAIN = re.compile(rb"[A-Za-z0-9-]")


class Settled(msgspec.Struct, frozen=True):
    """What is to become of a reservation."""

    key: str
    is_charged: bool
    command: str | None = None


class Settle(msgspec.Struct, frozen=True, tag="settle"):
    tenant: str
    sub: str
    items: tuple[Settled, ...]


class Fine(msgspec.Struct, frozen=True, tag="fine"):
    """To a guess that is not too often, and to what is to be settled: it is taken."""


class Sorry(msgspec.Struct, frozen=True, tag="sorry"):
    why: NotNow


class Opened(msgspec.Struct, frozen=True):
    """News: this process has the ledger, as the log says."""

    tenant: str
    sub: str
    process: str


Question = Order | Guess | Look | Settle
Said = Granted | OverBudget | TooOften | NotGiven | Stands | Fine | Sorry

encode: Callable[[Question | Said | Opened], bytes] = msgspec.json.Encoder().encode
_questions = msgspec.json.Decoder(Question)
_answers = msgspec.json.Decoder(Said)
_news = msgspec.json.Decoder(Opened)


def question_of(data: bytes) -> Question | None:
    """None: it is none that this version knows."""
    try:
        question: Question = _questions.decode(data)
    except msgspec.MsgspecError:
        return None
    return question


def said_of(data: bytes) -> Said | None:
    """None: as above."""
    try:
        said: Said = _answers.decode(data)
    except msgspec.MsgspecError:
        return None
    return said


def news_of(data: bytes) -> Opened | None:
    try:
        return _news.decode(data)
    except msgspec.MsgspecError:
        return None


def subject_of(prefix: str, agent: Agent) -> str:
    """Served by the process that owns the ledger."""
    return f"{prefix}.purse.{_token(agent.tenant)}.{_token(agent.sub)}"


def news_subject(prefix: str) -> str:
    return f"{prefix}.purse_opened"


def _token(name: str) -> str:
    """Every byte that a subject may not have, and `_`, written as `_xx`; no two names are written the same."""
    data = name.encode()
    written = [chr(byte) if _PLAIN.match(data[at : at + 1]) else f"_{byte:02x}" for at, byte in enumerate(data)]
    return "".join(written) or "_"
