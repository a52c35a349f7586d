"""A room in a terminal, decided: what a typed line means, how a frame is shown, whether to come back. Pure.

`Presence` below is what this side has to know to come back as the same one: its uid, its subspaces, and how far it has
heard. Whatever others wrote is shown without the characters that a terminal would obey.
"""

import json
import re
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias, TypeGuard
from urllib.parse import urlencode

from gateway.commands.parsing import printable
from schemas.closes import Return
from schemas.echo.closes import RoomClose
from schemas.echo.frames import SUBS_MAX
from schemas.echo.names import is_name

BASE_S, CAP_S = 0.5, 30.0  # of the backoff: the wait is drawn from 0 to a bound that doubles with each failure
RESTART_S = 5.0  # after 1012 everybody comes back at once: they spread over at least this long
ABNORMAL = 1006  # the connection broke, without a close
HELP = "/to UID text · /sub NAME text · /join NAME · /leave NAME · /who · /quit · a line that begins with // is text"

_CLOSES = {close.value.code: close.value for close in RoomClose}
_WHY = {
    RoomClose.TOO_LARGE: "a message was larger than this room takes",
    RoomClose.BAD_FRAME: "too many frames that were not understood",
    RoomClose.UNAUTHORIZED: "the room needs a sign-in that this command cannot do",
    RoomClose.FORBIDDEN: "this room does not let you in, or not with this uid",
    RoomClose.GONE: "the space has ended",
}


# ---- what is typed ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quit:
    pass


@dataclass(frozen=True, slots=True)
class Note:
    """For whoever typed it."""

    text: str


Frame: TypeAlias = dict[str, Any]


def typed(line: str) -> Frame | Quit | Note | None:
    """None: an empty line."""
    text = line.strip()
    if not text:
        return None
    if not text.startswith("/") or text.startswith("//"):
        return {"type": "msg", "data": text[1:] if text.startswith("//") else text}
    command, _, rest = text.partition(" ")
    name, _, said = rest.strip().partition(" ")
    said = said.strip()
    match command:
        case "/quit":
            return Quit()
        case "/who" if not name or is_name(name):
            return {"type": "who", **({"sub": name} if name else {})}
        case "/join" | "/leave" if is_name(name) and not said:
            return {"type": command[1:], "subs": [name]}
        case "/to" if is_name(name) and said:
            return {"type": "msg", "tuid": name, "data": said}
        case "/sub" if is_name(name) and said:
            return {"type": "msg", "sub": name, "data": said}
        case _:
            return Note(HELP)


# ---- what is shown ---------------------------------------------------------------------------------------------------


def shown(frame: Frame, own_uid: str) -> str | None:
    """None: nothing that a person has to see."""
    uid = _word(frame.get("uid"))
    match frame.get("type"):
        case "welcome":
            others = frame.get("members")
            here = f", {len(others)} here" if isinstance(others, list) else ""
            return f"* you are {uid}{here}; the space ends at {_word(frame.get('expires_at'))}"
        case "msg":
            return f"{_clock(frame.get('at'))} {uid}{_to(frame, own_uid)}: {_content(frame)}"
        case "join":
            return f"* {uid} joined{_places(frame.get('subs'))}"
        case "leave":
            return f"* {uid} left{_places(frame.get('subs'))}"
        case "state":
            return f"* {uid} is {_text(frame.get('data'))}"
        case "who":
            members = frame.get("members")
            uids = (
                [_word(one.get("uid")) for one in members if isinstance(one, dict)] if isinstance(members, list) else []
            )
            return f"* {_word(frame.get('total', len(uids)))} here: {', '.join(uids)}"
        case "error":
            return f"! {_word(frame.get('error'))}: {_word(frame.get('message'))}"
        case _:
            return None


def _to(frame: Frame, own_uid: str) -> str:
    tuid, sub = frame.get("tuid"), frame.get("sub")
    place = f" [{_word(sub)}]" if sub is not None else ""
    return place if tuid is None else f"{place} → {'you' if tuid == own_uid else _word(tuid)}"


def _content(frame: Frame) -> str:
    if "bin" in frame:
        return f"({len(str(frame['bin'])) * 3 // 4} bytes)"
    data = frame.get("data")
    if isinstance(data, dict) and data.keys() == {"text"}:
        data = data["text"]
    return _text(data)


def _text(data: Any) -> str:
    """On lines of their own that nobody can take for another message: they are indented."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return "\n    ".join(printable(line) for line in text.replace("\r\n", "\n").split("\n"))


def _word(value: Any) -> str:
    return printable(str(value))


def _places(subs: Any) -> str:
    return "".join(f" [{_word(sub)}]" for sub in subs) if isinstance(subs, list) else ""


def _clock(at: Any) -> str:
    """Of an RFC 3339 time, its time of day (UTC)."""
    return _word(at)[11:19] or "--:--:--"


# ---- coming back -----------------------------------------------------------------------------------------------------


_EPOCH = re.compile(r"[!-~]{1,128}")  # of whatever instance; it goes into a query
_SEQ_MAX = 2**63 - 1


def _is_seq(seq: Any) -> TypeGuard[int]:
    return isinstance(seq, int) and not isinstance(seq, bool) and 0 <= seq <= _SEQ_MAX


@dataclass(slots=True)
class Presence:
    uid: str | None = None
    subs: list[str] = field(default_factory=list)
    wants_copy: bool = False
    space_id: str | None = None
    _seq: int | None = None
    _epoch: str | None = None

    def query(self) -> str:
        fields = {
            "uid": self.uid,
            "subs": ",".join(self.subs) or None,
            "self": "1" if self.wants_copy else None,
            "since": None if self._epoch is None or self._seq is None else str(self._seq),
            "epoch": self._epoch if self._seq is not None else None,
        }
        return urlencode({name: value for name, value in fields.items() if value is not None})

    def hear(self, frame: Frame) -> bool:
        """A frame of the server's. True: it is a welcome, and something was missed since the last one."""
        seq, epoch = frame.get("seq"), frame.get("epoch")
        if frame.get("type") == "welcome":
            has_missed = self._epoch is not None and frame.get("recovered") is not True
            # With replays to come, what they bring counts; all else was before our time.
            if self._seq is None or epoch != self._epoch or has_missed:
                self._seq = seq if _is_seq(seq) else None
            self._epoch = epoch if isinstance(epoch, str) and _EPOCH.fullmatch(epoch) else None
            space_id, uid = frame.get("space_id"), frame.get("uid")
            self.space_id = space_id if isinstance(space_id, str) and space_id.isascii() else None
            self.uid = uid if isinstance(uid, str) and is_name(uid) else self.uid
            return has_missed
        if frame.get("type") in ("msg", "ack") and _is_seq(seq):  # what came before an ack has come already
            self._seq = max(seq, self._seq or 0)
        return False

    def say(self, frame: Frame) -> None:
        """A frame of ours that was sent. What a room rejects is not remembered: coming back with it would fail."""
        subs = frame.get("subs")
        if not isinstance(subs, list) or not all(isinstance(sub, str) and is_name(sub) for sub in subs):
            return
        if frame.get("type") == "join":
            joined = list(dict.fromkeys([*self.subs, *subs]))
            if len(joined) <= SUBS_MAX:  # else the room takes none of them
                self.subs = joined
        elif frame.get("type") == "leave":
            self.subs = [sub for sub in self.subs if sub not in subs]


@dataclass(frozen=True, slots=True)
class ComeBack:
    wait_s: float


@dataclass(frozen=True, slots=True)
class Over:
    why: str
    status: int  # the command's exit code


def after_close(code: int, failures: int, rng: Random) -> ComeBack | Over:
    """By the table of closes; a code without a row is a connection that broke. `failures`: attempts in a row."""
    bound_s = min(CAP_S, BASE_S * 2.0 ** min(failures, 16))
    row = _CLOSES.get(code)
    match row.come_back if row else Return.WITH_BACKOFF:
        case Return.AS_IT_LIKES:
            return Over("the room closed the connection", 0)
        case Return.NO | Return.WITH_NEW_TOKEN:
            why = next(text for close, text in _WHY.items() if close.value.code == code)
            return Over(f"{why} ({code})", 1)
        case Return.WITH_JITTER:
            return ComeBack(rng.uniform(0, max(bound_s, RESTART_S)))
        case _:
            return ComeBack(rng.uniform(0, bound_s))


def after_refusal(status: int, word: str, retry_after_ms: int | None, failures: int, rng: Random) -> ComeBack | Over:
    """Of an upgrade, by HTTP."""
    again = after_close(ABNORMAL, failures, rng)
    if status == 429 and retry_after_ms is not None and isinstance(again, ComeBack):
        return ComeBack(again.wait_s + max(0, min(round(CAP_S * 1000), retry_after_ms)) / 1000)
    return again if status == 429 or status >= 500 else Over(f"{word} (HTTP {status})", 1)
