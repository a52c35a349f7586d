"""Somebody in a room, from the command line: lines in, frames out, and back again when the connection breaks.

What lines mean, how frames look and when to come back is decided in `space_join_rules`; a connection is `space_room`'s.
"""

import json
import sys
from contextlib import aclosing
from random import Random

import trio

from gateway.commands.parsing import CommandError, printable
from gateway.commands.space_client import json_object
from gateway.commands.space_envelope import RoomSeal
from gateway.commands.space_join_rules import (
    ABNORMAL,
    ComeBack,
    Frame,
    Note,
    Over,
    Presence,
    Quit,
    after_close,
    after_refusal,
    shown,
    typed,
)
from gateway.commands.space_lines import lines
from gateway.commands.space_link_rules import SpaceLink
from gateway.commands.space_room import RoomClosed, RoomRefusedError, RoomUnreachableError, RoomWire, visit

AWAY_S_MAX = 900.0  # without a connection; then the command gives up, with exit code 1
STEADY_S = 30.0  # a connection that lasted as long is no failure: the next wait is short again
FLUSH_S_MAX = 5.0  # for the room to have taken the last lines; then they may be lost, and the exit code is 1
_FLUSH_ID = "heliograph-flush"
_LINE_ID = "heliograph-line"  # of what is typed: with its ack it has arrived, and is not asked for when we come back


class Guest:
    def __init__(self, link: SpaceLink, presence: Presence, seal: RoomSeal | None, *, is_json: bool) -> None:
        """`seal` is that of an encrypted room."""
        self._link = link
        self._presence = presence
        self._seal = seal
        self._opener = seal
        self._is_json = is_json
        self._rng = Random()
        self._failures = 0
        self._in_s: float | None = None  # when it was welcomed last
        self._away_s: float | None = None  # since when it is not there
        self._unsent: Frame | None = None
        self._is_input_over = trio.Event()
        self._is_welcome = trio.Event()  # of one connection, as the next one
        self._is_flushed = trio.Event()
        self._status = 0

    async def stay(self, descriptor: int | None) -> int:
        """Until this side has said all, or the room is over: the exit code. Without a descriptor nothing is said."""
        async with trio.open_nursery() as nursery:
            into, said = trio.open_memory_channel[Frame](0)
            if descriptor is not None:
                nursery.start_soon(self._read, descriptor, into)
            while not isinstance(what := await self._come(said), Over):
                _tell(f"not connected; the next attempt is in {what.wait_s:.0f} s")
                with trio.move_on_after(what.wait_s):
                    await self._is_input_over.wait()
                if self._is_input_over.is_set() and self._unsent is None:
                    what = Over("", 0)
                    break
            nursery.cancel_scope.cancel()
        if what.why:
            _tell(what.why)
        return what.status or self._status

    # ---- what this side says -----------------------------------------------------------------------------------------

    async def _read(self, descriptor: int, into: trio.MemorySendChannel[Frame]) -> None:
        async with into, aclosing(lines(descriptor)) as coming:
            async for line in coming:
                frame = self._understood(line.decode(errors="replace"))
                if isinstance(frame, Quit):
                    break
                if isinstance(frame, Note):
                    _tell(frame.text)
                elif frame is not None:
                    await into.send(frame)
        self._is_input_over.set()

    def _understood(self, line: str) -> Frame | Quit | Note | None:
        if not self._is_json:
            meant = typed(line)
            return {**meant, "id": _LINE_ID} if isinstance(meant, dict) and meant["type"] == "msg" else meant
        frame = json_object(line)
        if frame is None and line.strip():
            _tell("a line on standard input is no JSON object: nothing after it is sent")
            self._status = 2
            return Quit()
        return frame

    async def _speak(self, wire: RoomWire, said: trio.MemoryReceiveChannel[Frame]) -> None:
        """All there is to say. What could not be sent is kept for the next connection."""
        await self._is_welcome.wait()  # a room that is full takes the connection, and no line
        while True:
            if self._unsent is None:
                try:
                    self._unsent = await said.receive()
                except trio.EndOfChannel:
                    break
            await wire.send(json.dumps(self._sealed(self._unsent)))
            self._presence.say(self._unsent)
            self._unsent = None
        await wire.send(json.dumps({"type": "ping", "id": _FLUSH_ID}))
        with trio.move_on_after(FLUSH_S_MAX):
            await self._is_flushed.wait()
            return
        _tell("the room did not confirm the last lines in time")
        self._status = self._status or 1

    def _sealed(self, frame: Frame) -> Frame:
        if self._seal is None or frame.get("type") != "msg" or "data" not in frame:
            return frame
        return {**frame, "data": self._seal.seal_data(frame["data"])}

    # ---- what the room says ------------------------------------------------------------------------------------------

    async def _hear(self, wire: RoomWire) -> None:
        """Until it is closed, with RoomClosed."""
        while True:
            self._heard(await wire.receive())

    def _heard(self, frame: Frame) -> None:
        if frame.get("type") == "pong" and frame.get("id") == _FLUSH_ID:
            self._is_flushed.set()
            return
        has_missed = self._presence.hear(frame)
        if frame.get("type") == "welcome":
            self._in_s = trio.current_time()
            if self._opener is None and self._presence.space_id is not None:  # an instance may say it here alone
                self._opener = RoomSeal(self._link.token, self._presence.space_id)
            self._is_welcome.set()
        if self._opener is not None and frame.get("type") == "msg" and "data" in frame:
            frame = {**frame, "data": self._opener.open_data(frame["data"])}
        line = json.dumps(frame).replace("\x7f", "\\u007f") if self._is_json else shown(frame, self._presence.uid or "")
        if line is not None:
            print(line, flush=True)
        if has_missed:
            _tell("some messages may have been missed meanwhile: the room remembers only the last ones")

    # ---- coming and going --------------------------------------------------------------------------------------------

    async def _come(self, said: trio.MemoryReceiveChannel[Frame]) -> ComeBack | Over:
        """One connection, from its beginning to its end."""
        code: int | None = ABNORMAL

        async def talk(wire: RoomWire) -> None:
            nonlocal code
            code = await self._talk(wire, said)

        self._in_s = None
        self._is_welcome, self._is_flushed = trio.Event(), trio.Event()
        try:
            await visit(self._link, self._presence.query(), talk)
            what = Over("", 0) if code is None else after_close(code, self._failures, self._rng)
        except RoomRefusedError as refused:
            what = after_refusal(refused.status, str(refused), refused.retry_after_ms, self._failures, self._rng)
        except RoomUnreachableError as error:
            if self._presence.space_id is None:  # it was never there
                raise CommandError(str(error)) from None
            what = after_close(ABNORMAL, self._failures, self._rng)
        return what if isinstance(what, Over) else self._patient(what)

    def _patient(self, what: ComeBack) -> ComeBack | Over:
        """Whether there is still reason to come back."""
        now_s = trio.current_time()
        if self._in_s is not None or self._away_s is None:
            self._away_s = now_s
        if self._in_s is not None and now_s - self._in_s >= STEADY_S:
            self._failures = 0
        self._failures += 1
        if self._is_input_over.is_set() and self._unsent is None:
            return Over("the connection broke before the room had confirmed the last lines", 1)
        if now_s - self._away_s > AWAY_S_MAX:
            return Over("the room could not be reached for too long: see that the service runs", 1)
        return what

    async def _talk(self, wire: RoomWire, said: trio.MemoryReceiveChannel[Frame]) -> int | None:
        """The code with which the other side closed it; None when this side has said all and it was taken."""
        code: int | None = None
        try:
            async with trio.open_nursery() as nursery:

                async def hear() -> None:
                    nonlocal code
                    try:
                        await self._hear(wire)
                    except RoomClosed as closed:
                        code = closed.code
                        nursery.cancel_scope.cancel()

                nursery.start_soon(hear)
                try:
                    await self._speak(wire, said)
                except RoomClosed:
                    await trio.sleep_forever()  # `hear` gets to know why
                nursery.cancel_scope.cancel()
        finally:
            await wire.close()  # after Ctrl-C too, so that the others see at once that it left
        return code


def _tell(text: str) -> None:
    print(f"heliograph: {printable(text)}", file=sys.stderr, flush=True)
