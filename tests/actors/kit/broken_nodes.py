"""Nodes that break one rule each: what each check of the kit is there to find.

Each is a `PureNode` with one thing wrong, as somebody might write it who read the wire carelessly. `BROKEN` says which
check finds it; the tests hold that no other does.
"""

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from nacl.signing import SigningKey

from actors.device.device_rules import DeviceState
from actors.device.identity import DeviceIdentity
from actors.device.journal import AnyRecord, Begun, Ended
from actors.device.manifest_life import SignedManifest
from actors.kit.steps import Dialled
from schemas.canonical import digest
from schemas.errors import Code, envelope
from schemas.frames import (
    Announce,
    Auth,
    AuthOk,
    BadFrame,
    Cmd,
    CmdAck,
    CmdCancel,
    ErrorFrame,
    Frame,
    Heartbeat,
    HeartbeatAck,
    Outcome,
    Resume,
    Side,
    Telemetry,
    decode,
    encode,
)
from schemas.manifest import sign
from tests.actors.kit.playing import IDENTITY, OTHER_NODE_ID
from tests.actors.kit.pure_node import PureNode

BROKEN: list[tuple[str, type[PureNode]]] = []
N = TypeVar("N", bound=type[PureNode])
changed: Callable[..., Any] = msgspec.structs.replace


def found_by(name: str) -> Callable[[N], N]:
    def note(node: N) -> N:
        BROKEN.append((name, node))
        return node

    return note


class Cmds(PureNode):
    """Changes commands before they are looked at."""

    def comes_in(self, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        super().comes_in(encode(self.misread(frame)) if isinstance(frame, Cmd) else data)

    def misread(self, cmd: Cmd) -> Cmd:
        raise NotImplementedError

    def late_s(self, cmd: Cmd) -> float:
        return ((self.rules.gateway_ms(self.now) or 0) - cmd.deadline_at_ms) / 1000

    def in_time(self, cmd: Cmd) -> Cmd:
        fresh: Cmd = changed(cmd, deadline_at_ms=(self.rules.gateway_ms(self.now) or 0) + 5000)
        return fresh


class Remembering(PureNode):
    """Knows what it acked, in this session and before, in this process and before."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.acked: dict[str, CmdAck] = {}
        self.of_this_session: set[str] = set()
        self.of_this_process: set[str] = set()
        self.is_restarted = False
        self.confirmed = ""

    def upgraded(self) -> None:
        self.of_this_session = set()
        super().upgraded()

    def kill(self) -> None:
        self.of_this_process = set()
        self.is_restarted = True
        super().kill()

    def goes_out(self, frame: Frame) -> None:
        if isinstance(frame, CmdAck) and frame.in_reply_to is not None:
            self.acked[frame.in_reply_to] = frame
            self.of_this_session.add(frame.in_reply_to)
            self.of_this_process.add(frame.in_reply_to)
        super().goes_out(frame)
        if isinstance(frame, Resume):
            self.is_restarted = False

    def comes_in(self, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        if isinstance(frame, HeartbeatAck):
            self.confirmed = max(self.confirmed, frame.confirmed_through or "")
        super().comes_in(data)

    def ack_again(self, msg_id: str) -> None:
        self.write(encode(self.acked[msg_id]))


# ---- opening ---------------------------------------------------------------------------------------------------------


@found_by("connects")
class NeverDials(PureNode):
    def dial_in(self, seconds: float) -> None:
        pass


@found_by("offers-the-subprotocol")
class SpeaksSomethingElse(PureNode):
    def subprotocols(self) -> tuple[str, ...]:
        return ("node-wire.v1",)


@found_by("authenticates-first")
class AuthenticatesLate(PureNode):
    def goes_out(self, frame: Frame) -> None:
        self.write(encode(frame), after_s=5.5 if isinstance(frame, Auth) else 0.0)


@found_by("authenticates-as-itself")
class ClaimsAnotherId(PureNode):
    def goes_out(self, frame: Frame) -> None:
        super().goes_out(changed(frame, node_id=OTHER_NODE_ID) if isinstance(frame, Auth) else frame)


class OnceTooEarly(PureNode):
    """Sends a frame in its first session before it may."""

    has_done_it = False
    after: type[Frame]

    def too_early(self) -> Frame:
        raise NotImplementedError

    def goes_out(self, frame: Frame) -> None:
        super().goes_out(frame)
        if isinstance(frame, self.after) and not self.has_done_it:
            self.has_done_it = True
            self.write(encode(self.too_early()), after_s=0.2)


@found_by("waits-for-auth-ok")
class AnnouncesAtOnce(OnceTooEarly):
    after = Auth

    def too_early(self) -> Frame:
        return Announce(msg_id=self._mint.mint(self.wall_ms), manifest=self.sign(self.wall_ms).manifest)


@found_by("waits-for-announce-ack")
class ResumesAtOnce(OnceTooEarly):
    after = Announce

    def too_early(self) -> Frame:
        return Resume(msg_id=self._mint.mint(self.wall_ms), journal_id="j", last_cmd=None, outcomes=[], running=[])


@found_by("announces")
class AnnouncesNothing(PureNode):
    def goes_out(self, frame: Frame) -> None:
        if not isinstance(frame, Announce):
            super().goes_out(frame)


@found_by("resumes")
class ResumesNothing(PureNode):
    def goes_out(self, frame: Frame) -> None:
        if not isinstance(frame, Resume):
            super().goes_out(frame)


@found_by("first-resume-is-empty")
class ReportsWhatNobodyAsked(PureNode):
    has_done_it = False

    def goes_out(self, frame: Frame) -> None:
        if isinstance(frame, Resume) and not self.has_done_it:
            self.has_done_it = True
            frame = changed(frame, last_cmd="01HZXC0000000000000000SRV0")
        super().goes_out(frame)


# ---- the manifest ----------------------------------------------------------------------------------------------------


class SignsWrongly(PureNode):
    def sign(self, issued_at_ms: int) -> SignedManifest:
        manifest = self.spoilt(json.loads(json.dumps(super().sign(issued_at_ms).manifest)))
        return SignedManifest(manifest, digest(manifest))

    def spoilt(self, manifest: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


@found_by("manifest-fits-its-schema")
class AddsAProperty(SignsWrongly):
    def spoilt(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return sign(manifest | {"vendor": "x"}, self.identity.leaf.kid, self.identity.key)


@found_by("manifest-fits-its-schema")
class NamesNoSchema(SignsWrongly):
    def spoilt(self, manifest: dict[str, Any]) -> dict[str, Any]:
        manifest["capabilities"][0]["schema_ref"] = "mcp://schemas/system.echo.invoke.input@9.9.9"
        return sign(manifest, self.identity.leaf.kid, self.identity.key)


@found_by("manifest-by-the-gateways-clock")
class StampsByItsOwnClock(PureNode):
    has_done_it = False

    def sign(self, issued_at_ms: int) -> SignedManifest:
        stamp, self.has_done_it = (issued_at_ms if self.has_done_it else self.wall_ms), True
        return super().sign(stamp)


@found_by("manifest-by-the-gateways-clock")
class LivesTooLong(SignsWrongly):
    def spoilt(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return sign(
            manifest | {"expires_at_ms": manifest["issued_at_ms"] + 86_400_001},
            self.identity.leaf.kid,
            self.identity.key,
        )


@found_by("manifest-names-the-node")
class NamesAnotherNode(SignsWrongly):
    def spoilt(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return sign(manifest | {"node_id": OTHER_NODE_ID}, self.identity.leaf.kid, self.identity.key)


@found_by("manifest-kid")
class NamesAnotherCertificate(SignsWrongly):
    def spoilt(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return sign(manifest, "0" * 64, self.identity.key)


@found_by("manifest-hash")
class HashesSomethingElse(SignsWrongly):
    def spoilt(self, manifest: dict[str, Any]) -> dict[str, Any]:
        manifest["node_attestation"]["payload_hash"] = digest(manifest)
        return manifest


@found_by("manifest-signature")
class SignsTheHash(SignsWrongly):
    def spoilt(self, manifest: dict[str, Any]) -> dict[str, Any]:
        over = bytes.fromhex(manifest["node_attestation"]["payload_hash"])
        signature = urlsafe_b64encode(self.identity.key.sign(over).signature).rstrip(b"=").decode()
        manifest["node_attestation"]["sig"] = signature
        return manifest


# ---- heartbeats, clock, manifest's life ------------------------------------------------------------------------------


@found_by("heartbeat-period")
class BeatsTwice(PureNode):
    def goes_out(self, frame: Frame) -> None:
        super().goes_out(frame)
        if isinstance(frame, Heartbeat):
            self.write(encode(changed(frame, msg_id=self._mint.mint(self.wall_ms))), after_s=0.3)


@found_by("heartbeat-etag")
class NamesNoManifest(PureNode):
    def goes_out(self, frame: Frame) -> None:
        super().goes_out(changed(frame, manifest_etag=None) if isinstance(frame, Heartbeat) else frame)


@found_by("announces-when-etags-differ")
class IgnoresEtags(PureNode):
    def comes_in(self, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        if isinstance(frame, HeartbeatAck) and self.rules.manifest is not None:
            data = encode(changed(frame, manifest_etag=self.rules.manifest.etag))
        super().comes_in(data)


@found_by("announces-again-after-rate-limit")
class GivesUpAnnouncing(PureNode):
    def comes_in(self, data: bytes) -> None:
        if not isinstance(decode(data, Side.GATEWAY), ErrorFrame):
            super().comes_in(data)


@found_by("announces-again-after-rate-limit")
class AnnouncesTooSoon(PureNode):
    def comes_in(self, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        if isinstance(frame, ErrorFrame) and "retry_after_ms" in frame.error:
            again = Announce(msg_id=self._mint.mint(self.wall_ms), manifest=self.sign(0).manifest)
            self.write(encode(again), after_s=0.1)
        super().comes_in(data)


@found_by("follows-the-gateways-clock")
class DoubtsLongJumps(Cmds):
    def misread(self, cmd: Cmd) -> Cmd:
        return self.in_time(cmd) if self.late_s(cmd) > 600 else cmd


@found_by("renews-its-manifest")
class KeepsItsManifest(PureNode):
    """As long as the gateway has it."""

    def goes_out(self, frame: Frame) -> None:
        is_renewal = isinstance(frame, Announce) and self.rules.state is DeviceState.LIVE and self.gateway_has_it
        if not is_renewal:
            super().goes_out(frame)

    gateway_has_it = True

    def comes_in(self, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        if isinstance(frame, HeartbeatAck) and self.rules.manifest is not None:
            self.gateway_has_it = frame.manifest_etag == self.rules.manifest.etag
        super().comes_in(data)


# ---- commands --------------------------------------------------------------------------------------------------------


@found_by("echo")
class CutsLongMessages(PureNode):
    def echo(self, arguments: Any) -> dict[str, Any]:
        return super().echo({"message": arguments["message"][:1000]})


@found_by("echo-refuses-bad-arguments")
class TakesMoreArguments(Cmds):
    def misread(self, cmd: Cmd) -> Cmd:
        kept: Cmd = changed(cmd, arguments={k: v for k, v in cmd.arguments.items() if k != "more"})
        return kept


@found_by("snapshot")
class AlwaysTellsAll(PureNode):
    def snapshot(self, _arguments: Any) -> dict[str, Any]:
        return super().snapshot({})


@found_by("snapshot-refuses-bad-arguments")
class IgnoresUnknownGroups(Cmds):
    def misread(self, cmd: Cmd) -> Cmd:
        known: Cmd = changed(cmd, arguments={"include": []}) if cmd.arguments.get("include") == ["gpu"] else cmd
        return known


class MisreadsNames(Cmds):
    part: str
    instead: str

    def misread(self, cmd: Cmd) -> Cmd:
        other: Cmd = changed(cmd, tool=cmd.tool.replace(self.part, self.instead))
        return other


@found_by("refuses-unknown-tools")
class IgnoresTheCapability(MisreadsNames):
    part, instead = ".nosuchtool.", ".echo."


@found_by("refuses-tools-of-other-nodes")
class IgnoresTheNode(MisreadsNames):
    part, instead = "0" * 26, IDENTITY.node_id


@found_by("refuses-late-commands")
class RunsLateCommands(Cmds):
    def misread(self, cmd: Cmd) -> Cmd:
        is_it = 5 < self.late_s(cmd) < 600 and not cmd.tool.endswith(".subscribe")
        return self.in_time(cmd) if is_it else cmd


@found_by("refuses-at-the-deadline")
class RunsAtTheDeadline(Cmds):
    def misread(self, cmd: Cmd) -> Cmd:
        return self.in_time(cmd) if 0 <= self.late_s(cmd) < 5 else cmd


@found_by("begins-in-order")
class BeginsBackwards(PureNode):
    begun = 0

    def echo(self, arguments: Any) -> dict[str, Any]:
        self.begun += 1
        return super().echo(arguments) | {"received_at_ms": self.wall_ms - self.begun}


@found_by("runs-nothing-twice")
class AnswersAgain(Remembering):
    def comes_in(self, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        if isinstance(frame, Cmd) and frame.msg_id in self.of_this_session:
            self.ack_again(frame.msg_id)
        super().comes_in(data)


@found_by("skips-ids-below-the-last")
class RemembersOnlyWhatItSaw(Remembering):
    last = ""

    def comes_in(self, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        super().comes_in(data)
        if isinstance(frame, Cmd):
            if frame.msg_id < self.last and frame.msg_id not in self.acked and "message" in frame.arguments:
                ack = CmdAck(
                    msg_id=self._mint.mint(self.wall_ms),
                    in_reply_to=frame.msg_id,
                    ok=True,
                    result=self.echo(frame.arguments),
                )
                self.goes_out(ack)
            self.last = max(self.last, frame.msg_id)


@found_by("cancel-of-an-ended-command")
class AcksCancels(Remembering):
    def comes_in(self, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        if isinstance(frame, CmdCancel) and frame.in_reply_to in self.acked and self.acked[frame.in_reply_to].result:
            self.ack_again(frame.in_reply_to)
        super().comes_in(data)


@found_by("cancel-at-once")
class AcksTheCancelToo(Remembering):
    def comes_in(self, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        if isinstance(frame, CmdCancel) and frame.in_reply_to in self.taken - self.acked.keys():
            self.goes_out(
                CmdAck(
                    msg_id=self._mint.mint(self.wall_ms),
                    in_reply_to=frame.in_reply_to,
                    ok=False,
                    begun=True,
                    error=envelope(Code.INTERNAL),
                )
            )
            self.later(0.1, lambda: self.ack_again(frame.in_reply_to or "") if self.is_open else None)
            return
        if isinstance(frame, Cmd):
            self.taken.add(frame.msg_id)
        super().comes_in(data)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.taken: set[str] = set()


# ---- cadences --------------------------------------------------------------------------------------------------------


@found_by("subscribes")
class SaysMoreThanOk(PureNode):
    def goes_out(self, frame: Frame) -> None:
        is_it = isinstance(frame, CmdAck) and frame.result == {}
        super().goes_out(changed(frame, result={"started": True}) if is_it else frame)


@found_by("telemetry")
class SamplesAnotherNode(PureNode):
    def frame(self) -> dict[str, Any]:
        return super().frame() | {"node_id": OTHER_NODE_ID}


class Intervals(Cmds):
    asked: Any
    instead: int

    def misread(self, cmd: Cmd) -> Cmd:
        is_it = cmd.tool.endswith(".subscribe") and cmd.arguments.get("interval_ms") == self.asked
        other: Cmd = changed(cmd, arguments={"interval_ms": self.instead}) if is_it else cmd
        return other


@found_by("keeps-the-interval")
class TooOften(Intervals):
    asked, instead = 2000, 1000


@found_by("keeps-the-interval")
class TooSeldom(Intervals):
    asked, instead = 2000, 60_000


@found_by("default-interval")
class AnotherDefault(Cmds):
    def misread(self, cmd: Cmd) -> Cmd:
        is_it = cmd.tool.endswith(".subscribe") and not cmd.arguments
        other: Cmd = changed(cmd, arguments={"interval_ms": 1000}) if is_it else cmd
        return other


@found_by("cancel-ends-a-cadence")
class NeverStops(PureNode):
    def comes_in(self, data: bytes) -> None:
        if not isinstance(decode(data, Side.GATEWAY), CmdCancel):
            super().comes_in(data)


@found_by("cadences-end-with-the-session")
class ResumesCadences(PureNode):
    cadence: str | None = None

    def goes_out(self, frame: Frame) -> None:
        super().goes_out(frame)
        if isinstance(frame, Telemetry):
            self.cadence = frame.in_reply_to
        elif isinstance(frame, Resume) and self.cadence is not None:
            again = Telemetry(msg_id=self._mint.mint(self.wall_ms), in_reply_to=self.cadence, frame=self.frame())
            self.write(encode(again), after_s=1.0)


@found_by("subscribe-refuses-bad-arguments")
class RoundsIntervals(Intervals):
    asked, instead = 999, 1000


@found_by("subscribe-refuses-late")
class SubscribesLate(Cmds):
    def misread(self, cmd: Cmd) -> Cmd:
        return self.in_time(cmd) if cmd.tool.endswith(".subscribe") else cmd


# ---- bad frames ------------------------------------------------------------------------------------------------------


class Hangs(PureNode):
    """Hears and says nothing more in this session after such a frame."""

    is_deaf = False

    def is_too_much(self, _data: bytes) -> bool:
        return False

    def upgraded(self) -> None:
        self.is_deaf = False
        super().upgraded()

    def comes_in(self, data: bytes) -> None:
        self.is_deaf = self.is_deaf or self.is_too_much(data)
        if not self.is_deaf:
            super().comes_in(data)

    def goes_out(self, frame: Frame) -> None:
        if not self.is_deaf:
            super().goes_out(frame)


@found_by("survives-what-is-not-json")
class HangsOnText(Hangs):
    def is_too_much(self, data: bytes) -> bool:
        frame = decode(data, Side.GATEWAY)
        return isinstance(frame, BadFrame) and frame.flaw is None and data.startswith(b"{")


@found_by("survives-what-is-no-object")
class HangsOnArrays(Hangs):
    def is_too_much(self, data: bytes) -> bool:
        return data.startswith(b"[")


@found_by("survives-an-unknown-type")
class HangsOnTypes(Hangs):
    def is_too_much(self, data: bytes) -> bool:
        return b"greeting" in data


@found_by("survives-a-bad-command")
class InventsADeadline(PureNode):
    def comes_in(self, data: bytes) -> None:
        raw = json.loads(data) if data.startswith(b'{"type": "cmd"') and data.endswith(b"}") else {}
        if "payload" in raw and "deadline_at_ms" not in raw["payload"]:
            raw["payload"]["deadline_at_ms"] = (self.rules.gateway_ms(self.now) or 0) + 5000
            data = json.dumps(raw).encode()
        super().comes_in(data)


@found_by("survives-a-frame-out-of-order")
class HangsOnASecondLogin(Hangs):
    def is_too_much(self, data: bytes) -> bool:
        return self.rules.state is DeviceState.LIVE and isinstance(decode(data, Side.GATEWAY), AuthOk)


@found_by("survives-a-binary-frame")
class HangsOnBytes(Hangs):
    def comes_in_binary(self) -> None:
        self.is_deaf = True


@found_by("survives-a-large-frame")
class HangsOnLargeFrames(Hangs):
    def too_large(self) -> None:
        self.is_deaf = True


# ---- resume ----------------------------------------------------------------------------------------------------------


class Forgets(Remembering):
    """Leaves outcomes out of its resume."""

    def leaves_out(self, msg_id: str) -> bool:
        raise NotImplementedError

    def goes_out(self, frame: Frame) -> None:
        if isinstance(frame, Resume) and len(frame.outcomes) < 15:
            kept = [outcome for outcome in frame.outcomes if not self.leaves_out(outcome.in_reply_to)]
            frame = changed(frame, outcomes=kept)
        super().goes_out(frame)


@found_by("reports-outcomes")
class ReportsOnlyWhatItDidNotAck(Forgets):
    def leaves_out(self, msg_id: str) -> bool:
        return msg_id in self.acked and not self.is_restarted


@found_by("accounts-for-a-broken-connection")
class ReportsOnlyWhatItAcked(Forgets):
    def leaves_out(self, msg_id: str) -> bool:
        return msg_id not in self.acked and not self.is_restarted


@found_by("outcomes-survive-a-crash")
class ForgetsOutcomesInACrash(Forgets):
    def leaves_out(self, msg_id: str) -> bool:
        return msg_id in self.acked and self.is_restarted


@found_by("accounts-for-a-crash")
class ForgetsWhatRanInACrash(Forgets):
    def leaves_out(self, msg_id: str) -> bool:
        return msg_id not in self.acked and self.is_restarted


@found_by("accounts-for-a-crash")
class WritesOnlyWhatHasEnded(PureNode):
    """After a crash a command that was begun is one that was never heard of."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.in_memory: dict[str, Begun] = {}

    def kill(self) -> None:
        self.in_memory.clear()
        super().kill()

    def journal(self, records: tuple[AnyRecord, ...]) -> None:
        self.in_memory |= {record.msg_id: record for record in records if isinstance(record, Begun)}
        for record in records:
            if isinstance(record, Ended) and record.msg_id in self.in_memory:
                super().journal((self.in_memory.pop(record.msg_id), record))
            elif not isinstance(record, Begun):
                super().journal((record,))


class InventsAResult(Remembering):
    """Of a process that was killed."""

    def invents(self, outcome: Outcome) -> bool:
        raise NotImplementedError

    def goes_out(self, frame: Frame) -> None:
        if isinstance(frame, Resume) and self.is_restarted:
            well: dict[str, Any] = {"ok": True, "interrupted": None, "begun": True, "result": {}}
            outcomes = [changed(one, **well) if self.invents(one) else one for one in frame.outcomes]
            frame = changed(frame, outcomes=outcomes)
        super().goes_out(frame)


@found_by("accounts-for-a-crash")
class SaysThatWhatRanWentWell(InventsAResult):
    def invents(self, outcome: Outcome) -> bool:
        return bool(outcome.interrupted)


@found_by("outcomes-survive-a-crash")
class KeepsResultsInItsJournal(InventsAResult):
    def invents(self, outcome: Outcome) -> bool:
        return bool(outcome.ok)


class RunsAgain(Remembering):
    def comes_in(self, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        if isinstance(frame, Cmd) and frame.msg_id in self.acked and self.is_again(frame.msg_id):
            self.ack_again(frame.msg_id)
        super().comes_in(data)

    def is_again(self, msg_id: str) -> bool:
        raise NotImplementedError


@found_by("runs-nothing-twice-over-sessions")
class ForgetsIdsWithTheSession(RunsAgain):
    def is_again(self, msg_id: str) -> bool:
        return msg_id in self.of_this_process - self.of_this_session and msg_id > self.confirmed


@found_by("runs-nothing-twice-over-crashes")
class ForgetsIdsInACrash(RunsAgain):
    def is_again(self, msg_id: str) -> bool:
        return msg_id not in self.of_this_process


@found_by("forgets-what-is-confirmed")
class ForgetsIdsThatAreConfirmed(RunsAgain):
    def is_again(self, msg_id: str) -> bool:
        return msg_id in self.of_this_process - self.of_this_session and msg_id <= self.confirmed


@found_by("forgets-what-is-confirmed")
class ReportsForEver(Remembering):
    def goes_out(self, frame: Frame) -> None:
        if isinstance(frame, Resume) and frame.last_cmd is not None and len(frame.outcomes) < 500:
            old = [msg_id for msg_id, ack in self.acked.items() if msg_id <= self.confirmed and ack.ok and ack.result]
            again = [Outcome(in_reply_to=msg_id, ok=True, begun=True) for msg_id in old[-1:]]
            frame = changed(frame, outcomes=[*again, *frame.outcomes])
        super().goes_out(frame)


@found_by("holds-acks-until-live")
class AcksBeforeItIsLive(Remembering):
    def comes_in(self, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        if isinstance(frame, Cmd) and self.rules.state is DeviceState.RESUMED and "message" in frame.arguments:
            self.goes_out(
                CmdAck(
                    msg_id=self._mint.mint(self.wall_ms),
                    in_reply_to=frame.msg_id,
                    ok=True,
                    result=self.echo(frame.arguments),
                )
            )
        super().comes_in(data)


@found_by("pages-a-long-resume")
class SendsOnePageOnly(PureNode):
    has_begun = False

    def goes_out(self, frame: Frame) -> None:
        if not isinstance(frame, Resume):
            super().goes_out(frame)
        elif frame.more:
            self.has_begun = True
            super().goes_out(changed(frame, more=None))
        elif self.has_begun:
            self.has_begun = False
        else:
            super().goes_out(frame)


@found_by("keeps-a-journal-for-each-log")
class KeepsOneJournal(PureNode):
    journal_id: str | None = None

    def goes_out(self, frame: Frame) -> None:
        if isinstance(frame, Resume):
            self.journal_id = self.journal_id or frame.journal_id
            frame = changed(frame, journal_id=self.journal_id)
        super().goes_out(frame)


@found_by("outcomes-survive-a-crash")
class JournalsLate(PureNode):
    """What it wrote last is not on the disk yet when it is killed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.unsaved: list[AnyRecord] = []

    def journal(self, records: tuple[AnyRecord, ...]) -> None:
        ends = [record for record in records if type(record).__name__ == "Ended"]
        super().journal(tuple(record for record in records if record not in ends))
        self.unsaved += ends
        if ends:
            self.later(0.05, self.save)

    def save(self) -> None:
        super().journal(tuple(self.unsaved))
        self.unsaved = []

    def kill(self) -> None:
        self.unsaved = []
        super().kill()


# ---- coming back -----------------------------------------------------------------------------------------------------


class AfterClose(PureNode):
    code: int
    seconds: float | None = None

    def closed(self, code: int) -> None:
        self.closed_with = code
        super().closed(code)

    closed_with: int | None = None

    def comes_back_in(self, code: int) -> float | None:
        by_gateway, self.closed_with = self.closed_with, None
        return self.seconds if by_gateway == self.code else super().comes_back_in(code)


for _code in (1011, 1012, 4400, 4408, 4413, 4429):
    found_by(f"comes-back-after-{_code}")(type(f"GivesUpAfter{_code}", (AfterClose,), {"code": _code}))


@found_by("waits-after-4409")
class ComesBackTooSoon(AfterClose):
    code, seconds = 4409, 29.0


@found_by("stays-away-after-4403")
class ComesBackAfter4403(AfterClose):
    code, seconds = 4403, 2.0


@found_by("stays-away-after-4422")
class ComesBackAfter4422(AfterClose):
    code, seconds = 4422, 2.0


@found_by("needs-a-new-token-after-4401")
class KeepsItsToken(AfterClose):
    code, seconds = 4401, 1.0

    def upgraded(self) -> None:
        self.token = self.identity.token
        super().upgraded()


@found_by("comes-back-after-a-refused-upgrade")
class GivesUpAfterARefusal(PureNode):
    def refused(self) -> None:
        self.exit()


@found_by("backs-off")
class Hammers(PureNode):
    def refused(self) -> None:
        self.dial_in(0.01)


@found_by("backs-off")
class WaitsTheSameEachTime(PureNode):
    def refused(self) -> None:
        self.dial_in(0.15)


@found_by("has-one-connection")
class DialsTwice(PureNode):
    def goes_out(self, frame: Frame) -> None:
        super().goes_out(frame)
        if isinstance(frame, Resume):
            self.later(0.5, lambda: self.tell(Dialled(self.now, self.subprotocols())) if self.is_open else None)


@found_by("sends-no-flood")
class Floods(PureNode):
    """Once, in a session in which nobody looks at heartbeats."""

    resumes = 0

    def goes_out(self, frame: Frame) -> None:
        super().goes_out(frame)
        if isinstance(frame, Resume):
            self.resumes += 1
        elif isinstance(frame, Heartbeat) and self.resumes > 3:
            self.resumes = -1000
            for number in range(1500):
                again = changed(frame, msg_id=self._mint.mint(self.wall_ms))
                self.write(encode(again), after_s=number / 10_000)


# ---- renewal ---------------------------------------------------------------------------------------------------------


class AsksWrongly(PureNode):
    def spoilt(self, body: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def request(self) -> dict[str, Any]:
        body = super().request()
        return self.spoilt(body) if self._asked == 1 else body


@found_by("asks-for-its-next-identity")
class SendsNoSignature(AsksWrongly):
    def spoilt(self, body: dict[str, Any]) -> dict[str, Any]:
        return body | {"signature": "0" * 128}


@found_by("asks-for-its-next-identity")
class StampsRequestsByItsOwnClock(AsksWrongly):
    def spoilt(self, body: dict[str, Any]) -> dict[str, Any]:
        return body | {"iat": self.wall_ms // 1000}


@found_by("asks-for-its-next-identity")
class NamesAnotherKid(AsksWrongly):
    def spoilt(self, body: dict[str, Any]) -> dict[str, Any]:
        return body | {"kid": "0" * 64}


@found_by("asks-again-with-the-same-key")
class MakesAKeyForEachRequest(PureNode):
    def next_key(self) -> SigningKey:
        return SigningKey(bytes([9 + self._asked]) * 32)


@found_by("asks-again-with-the-same-key")
class AsksOnce(PureNode):
    def hung_up(self) -> None:
        pass


@found_by("uses-its-next-identity")
class KeepsItsKey(PureNode):
    def adopt(self, identity: DeviceIdentity) -> None:
        self.token = identity.token


@found_by("uses-its-next-identity")
class KeepsItsOldToken(PureNode):
    def adopt(self, identity: DeviceIdentity) -> None:
        pass
