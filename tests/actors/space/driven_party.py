"""A room as it is driven, with clients of both encodings in turn: what they say and hear goes over the wire."""

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any

from actors.space.room import Room
from actors.space.room_effects import Opening
from actors.space.room_iam import RoomIam
from actors.space.settings import SpaceSettings
from schemas.echo import echo_pb2 as pb
from schemas.echo.closes import RoomClose
from schemas.echo.frames import (
    Ack,
    AskWho,
    Auth,
    BadFrame,
    Change,
    ClientFrame,
    JoinSubs,
    LeaveSubs,
    Member,
    Members,
    Message,
    Presence,
    Send,
    ServerFrame,
    SetState,
    Welcome,
)
from schemas.echo.times import from_rfc3339
from schemas.websocket_frames import PING
from tests.actors.space.party import Party


class DrivenParty(Party):
    def __init__(
        self, settings: SpaceSettings | None = None, *, is_encrypted: bool = False, iam: RoomIam | None = None
    ) -> None:
        super().__init__(settings, is_encrypted=is_encrypted, iam=iam)
        self.driver = Room(self.room, lambda: self.now)
        self._wires: dict[str, _Wire] = {}

    def enter(self, opening: Opening) -> None:
        wire = self._wires[opening.key] = _Wire(self, opening.key, is_text=len(self._wires) % 2 == 0)
        self.driver.join(opening, wire)

    def say(self, key: str, frame: ClientFrame | BadFrame) -> None:
        wire = self._wires[key]
        raw = _raw_of(frame)
        if wire.is_text:
            if "bin" in raw:
                raw["bin"] = base64.b64encode(raw["bin"]).decode()
            if "data" in raw:
                raw["data"] = json.loads(raw["data"])
            self.driver.receive(key, [(json.dumps(raw, separators=(",", ":")).encode(), True)])
        else:
            if "data" in raw:
                raw["json"] = raw.pop("data").decode()
            self.driver.receive(key, [(pb.Frame(**raw).SerializeToString(), False)])

    def end_grant(self, grant_id: str) -> None:
        self.driver.end_grant(grant_id)

    def expel(self) -> None:
        self.driver.expel()

    def leave(self, key: str, *, is_clean: bool = True) -> None:
        self.driver.left(key, is_clean=is_clean)

    def drop(self, key: str, close: RoomClose) -> None:
        self.driver.drop(key, close)

    def tick(self) -> None:
        self.driver.move_end(self.room.ends_at_ms)  # where it is: a driver looks at what is due then


class _Wire:
    """Implements `RoomConnection`."""

    def __init__(self, party: Party, key: str, *, is_text: bool) -> None:
        self.is_text = is_text
        self._party = party
        self._key = key

    def open(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self.send(frame)

    def send(self, frames: bytes) -> None:
        assert self._key not in self._party.closes, "nothing follows a close"
        if frames == PING:
            self._party.pings.append((self._key, self._party.now.mono_s))
            return
        for head, payload in _split(frames):
            assert head == (0x81 if self.is_text else 0x82)
            typed = _from_json(json.loads(payload)) if self.is_text else _from_protobuf(pb.Frame.FromString(payload))
            self._party.inbox[self._key].append(typed)

    def flush(self) -> bool:
        return True

    def stop_reading(self) -> None: ...

    def read_on(self) -> None: ...

    def close(self, close: RoomClose) -> None:
        assert self._key not in self._party.closes
        self._party.closes[self._key] = close


def _raw_of(frame: ClientFrame | BadFrame) -> dict[str, Any]:
    match frame:
        case Send():
            raw: dict[str, Any] = {"type": "msg", "sub": frame.sub, "tuid": frame.tuid, "id": frame.id}
            raw |= {"self": frame.wants_copy or None, "data": frame.data, "bin": frame.bin}
        case JoinSubs() | LeaveSubs():
            raw = {"type": "join" if isinstance(frame, JoinSubs) else "leave", "subs": list(frame.subs)}
        case SetState():
            raw = {"type": "state", "data": frame.data}
        case AskWho():
            raw = {"type": "who", "sub": frame.sub, "id": frame.id}
        case Auth():
            raw = {"type": "auth", "access_token": frame.access_token}
        case _:
            raise AssertionError("the machine says nothing else")
    return {name: value for name, value in raw.items() if value is not None}


def _split(frames: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(frames):
        head, length, start = frames[at], frames[at + 1], at + 2
        if length == 126:
            start, length = at + 4, int.from_bytes(frames[at + 2 : at + 4])
        at = start + length
        yield head, frames[start:at]


def _ms(text: str) -> int:
    ms = from_rfc3339(text)
    assert ms is not None
    return ms


def _text(raw: Any, name: str) -> bytes | None:
    """Of a member that is JSON of a client's; None is its absence."""
    return json.dumps(raw[name], separators=(",", ":")).encode() if name in raw else None


def _from_json(raw: Any) -> ServerFrame:
    who = (raw.get("uid"), raw.get("conn"))
    members = tuple(
        Member(
            one["uid"], one["conn"], tuple(one["subs"]), _ms(one["since"]), _text(one, "state"), one.get("member_id")
        )
        for one in raw.get("members", ())
    )
    match raw["type"]:
        case "welcome":
            seq, ends_at_ms, told = raw["seq"], _ms(raw["expires_at"]), members if "members" in raw else None
            return Welcome(*who, raw["space_id"], raw["epoch"], seq, ends_at_ms, raw["recovered"], told)
        case "msg":
            where = (raw.get("sub"), raw.get("tuid"), raw.get("member_id"), raw.get("replay", False))
            payload = base64.b64decode(raw["bin"]) if "bin" in raw else None
            return Message(raw["seq"], *who, _ms(raw["at"]), _text(raw, "data"), payload, *where)
        case "ack":
            return Ack(raw["id"], raw["seq"], raw["delivered"])
        case "who":
            return Members(members, raw["total"], raw.get("id"))
        case change:
            subs, member_id = tuple(raw.get("subs", ())), raw.get("member_id")
            return Presence(Change(change), *who, _ms(raw["at"]), subs, _text(raw, "data"), member_id)


def _from_protobuf(frame: pb.Frame) -> ServerFrame:
    members = tuple(
        Member(
            one.uid,
            one.conn,
            tuple(one.subs),
            one.since_ms,
            one.state_json.encode() or None,
            one.member_id or None,
        )
        for one in frame.members
    )
    data = frame.json.encode() if frame.HasField("json") else None
    match frame.type:
        case "welcome":
            room = (frame.space_id, frame.epoch, frame.seq, frame.expires_at_ms, frame.recovered)
            return Welcome(frame.uid, frame.conn, *room, members or None)
        case "msg":
            payload = frame.bin if frame.HasField("bin") else None
            where = (frame.sub or None, frame.tuid or None, frame.member_id or None, frame.replay)
            return Message(frame.seq, frame.uid, frame.conn, frame.at_ms, data, payload, *where)
        case "ack":
            return Ack(frame.id, frame.seq, frame.delivered)
        case "who":
            return Members(members, frame.total, frame.id or None)
        case change:
            news = (tuple(frame.subs), data, frame.member_id or None)
            return Presence(Change(change), frame.uid, frame.conn, frame.at_ms, *news)
