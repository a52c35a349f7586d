"""The player: our own node passes every check on it, and no wait of it is without an end."""

import trio
import trio.testing
from trio.testing import MockClock

from actors.kit.check import Check
from actors.kit.clock_rules import KitClock
from actors.kit.facts import KitSettings
from actors.kit.gateway_rules import KitGateway
from actors.kit.player import SEND_S_MAX, Connection, Noticed, Player
from actors.kit.steps import Asked, Dialled, Drop, Listen, Received, Script, SendText, TimeUp, Upgrade
from actors.kit.table import CHECKS
from actors.kit.verdicts import Outcome, Verdict
from schemas.frames import SUBPROTOCOL
from tests.actors.kit.memory_line import AgentUnderTest
from tests.actors.kit.playing import ENROLLED
from tests.actors.kit.pure_node import WALL_MS

RENEWAL = {check.name for check in CHECKS if check.section == "F"}


def kit_gateway(*, can_start: bool = False) -> KitGateway:
    clock = KitClock(trio.current_time(), WALL_MS)
    return KitGateway(ENROLLED, KitSettings(), clock, lambda count: bytes(count), can_start=can_start)


async def test_our_own_node_passes_every_check(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        node = AgentUnderTest(nursery)
        player = Player(kit_gateway(can_start=True), node, node.noticed)
        await node.start()
        verdicts = {check.name: await player.play(check, 3600) for check in CHECKS}
        nursery.cancel_scope.cancel()
    rest = {name: verdict for name, verdict in verdicts.items() if verdict != Verdict(Outcome.PASSED)}
    assert rest.keys() == RENEWAL  # that is beside its session, and not done by the agent
    assert not any(verdict.is_open for verdict in rest.values())


async def test_a_node_that_nobody_can_restart_passes_all_but_what_needs_that(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        node = AgentUnderTest(nursery)
        player = Player(kit_gateway(), node, node.noticed)
        await node.start()
        verdicts = {check.name: await player.play(check, 3600) for check in CHECKS}
        nursery.cancel_scope.cancel()
    untried = {name: verdict for name, verdict in verdicts.items() if verdict.outcome is not Outcome.PASSED}
    assert untried.keys() == {
        "outcomes-survive-a-crash",
        "runs-nothing-twice-over-crashes",
        "accounts-for-a-crash",
        "stays-away-after-4422",
        *RENEWAL,
    }
    assert not any(verdict.is_open for verdict in untried.values())


# ---- its edges -------------------------------------------------------------------------------------------------------


class Line:
    """A connection on which nothing happens by itself."""

    def __init__(self, *, reads: bool = True) -> None:
        self.reads = reads
        self.done: list[str] = []

    async def upgrade(self) -> None:
        self.done.append("upgrade")

    async def refuse(self, status: int) -> None:
        self.done.append(f"refuse {status}")

    async def answer(self, status: int, body: bytes) -> None:
        self.done.append(f"answer {status} {len(body)}")

    async def send(self, data: bytes, *, is_text: bool) -> None:
        if not self.reads:
            await trio.sleep_forever()
        self.done.append(f"{'text' if is_text else 'binary'} {len(data)}")

    async def close(self, code: int, reason: str) -> None:
        self.done.append(f"close {code} {reason}")

    def drop(self) -> None:
        self.done.append("drop")


class Nobody:
    def put_token(self, token: str) -> None: ...

    async def start(self) -> None: ...

    async def kill(self) -> None: ...


class Table:
    """A player, and what it is told."""

    def __init__(self) -> None:
        self.notices, noticed = trio.open_memory_channel[Noticed](10)
        self.player = Player(kit_gateway(), Nobody(), noticed)

    def dial(self, line: Connection) -> None:
        self.notices.send_nowait((line, Dialled(trio.current_time(), (SUBPROTOCOL,))))

    def say(self, line: Connection, data: bytes) -> None:
        self.notices.send_nowait((line, Received(trio.current_time(), data)))


def check_of(script: Script[None]) -> Check:
    return Check("one", "2", "it ends", lambda _gateway: script)


async def test_a_check_that_does_not_end_is_ended(autojump_clock: MockClock) -> None:
    def for_ever() -> Script[None]:
        while True:
            yield Listen(trio.current_time() + 1)

    table = Table()
    verdict = await table.player.play(check_of(for_ever()), 60)
    assert (verdict.outcome, verdict.is_open) == (Outcome.NOT_TRIED, True)
    assert "60 s" in verdict.why
    assert table.player.gateway.is_suspect


async def test_a_node_that_does_not_read_is_cut_off(autojump_clock: MockClock) -> None:
    def sends() -> Script[None]:
        yield Listen(trio.current_time() + 1)
        yield Upgrade()
        done = yield SendText(b"{}")
        assert done.at >= SEND_S_MAX

    table, line = Table(), Line(reads=False)
    table.dial(line)
    assert (await table.player.play(check_of(sends()), 60)).outcome is Outcome.PASSED
    assert line.done == ["upgrade", "drop"]


async def test_what_a_dropped_connection_still_says_is_not_heard(autojump_clock: MockClock) -> None:
    heard = []

    def listens() -> Script[None]:
        yield Listen(trio.current_time() + 1)
        yield Upgrade()
        yield Drop()
        heard.append((yield Listen(trio.current_time() + 1)))

    table, line = Table(), Line()
    table.dial(line)
    table.say(line, b"too late")
    await table.player.play(check_of(listens()), 60)
    assert isinstance(heard[0], TimeUp)


async def test_a_dial_that_a_check_left_unanswered_is_refused_by_the_next(autojump_clock: MockClock) -> None:
    def looks_away() -> Script[None]:
        yield Listen(trio.current_time() + 1)

    table, line = Table(), Line()
    table.dial(line)
    for _ in range(2):
        await table.player.play(check_of(looks_away()), 60)
    assert line.done == ["refuse 503"]


async def test_a_request_that_a_check_left_unanswered_is_told_to_try_later(autojump_clock: MockClock) -> None:
    def looks_away() -> Script[None]:
        yield Listen(trio.current_time() + 1)

    table, line = Table(), Line()
    table.notices.send_nowait((line, Asked(trio.current_time(), "a.b.c", b"{}")))
    for _ in range(2):
        await table.player.play(check_of(looks_away()), 60)
    assert line.done == ["answer 503 0"]
