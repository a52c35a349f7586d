"""The register of several processes: a name is taken once, what one records is true in all."""

import pytest
import structlog
import trio

from actors.bus.local_directory import LocalDirectory
from actors.log.store import Part, UnreadableError
from actors.register import register_rules as rules
from actors.register.events import Member
from actors.register.register import STREAM
from actors.register.register_rules import Act, Enrolment, Refusal, Trouble
from actors.register.shared_register import SharedRegister
from schemas.closes import NodeClose
from schemas.manifest import NodeIdentity
from tests.actors.engine.processes import SETTINGS, Process, Several, until

PUMP, VALVE = NodeIdentity("01hzx3k8q2v7n4t9r6w5y1c0ba", "acme"), NodeIdentity("01hzx3k8q2v7n4t9r6w5y1c0bb", "acme")
AT_MS = 1_790_000_000_000
ACT = Act("ada", AT_MS)


def enroll(node: NodeIdentity, name: str | None = None) -> rules.Decide:
    return lambda roll: rules.enroll(roll, [Enrolment(node, "k", "J", name)], lambda _: (), ACT)


class Registered:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.directory = LocalDirectory(process.store)
        self.register = SharedRegister(process.store, self.directory, SETTINGS.record_tries_max, process.feeds.grew)
        self.told: list[tuple[Member | None, Member]] = []
        self.register.on_others = lambda before, now: self.told.append((before, now))
        process.feeds.follow(STREAM, self.register.read_on)

    async def start(self, nursery: trio.Nursery) -> None:
        await self.process.start(nursery)
        await self.register.load()


async def two(several: Several, nursery: trio.Nursery) -> tuple[Registered, Registered]:
    both = Registered(several.process("P")), Registered(several.process("Q"))
    for one in both:
        await one.start(nursery)
    return both


async def test_what_one_process_records_is_true_in_the_other(autojump_clock: trio.abc.Clock) -> None:
    async with trio.open_nursery() as nursery:
        one, other = await two(Several(), nursery)
        await one.register.record(enroll(PUMP, "pump-7"), AT_MS)
        await until(lambda: other.directory.named("acme", "pump-7") == PUMP.node_id, 1.0)
        await other.register.record(lambda roll: rules.tag(roll, PUMP, {"site": "lab"}, (), ACT), AT_MS)
        await one.register.record(lambda roll: rules.revoke(roll, PUMP, ACT), AT_MS)
        await until(lambda: other.register.refuses_login(PUMP.node_id, "J", 0, AT_MS) is NodeClose.FORBIDDEN, 1.0)
        assert other.told[-1][1].is_revoked
        assert other.told[-1][1].tags == {"site": "lab"}
        assert [now.tags for _, now in one.told] == [{"site": "lab"}]  # of the other's alone
        nursery.cancel_scope.cancel()


async def test_a_name_is_taken_once_whichever_processes_are_asked_at_once(autojump_clock: trio.abc.Clock) -> None:
    for _ in range(20):
        async with trio.open_nursery() as nursery:
            one, other = await two(Several(), nursery)
            answers: list[object] = []

            async def record(at: Registered, node: NodeIdentity, answers: list[object] = answers) -> None:
                answers.append(await at.register.record(enroll(node, "pump-7"), AT_MS))

            async with trio.open_nursery() as asking:
                asking.start_soon(record, one, PUMP)
                asking.start_soon(record, other, VALVE)
            assert sorted(isinstance(answer, Refusal) for answer in answers) == [False, True]
            assert Refusal(Trouble.NAME_TAKEN, 0) in answers
            nursery.cancel_scope.cancel()


async def test_a_process_that_is_not_told_anything_takes_no_name_that_is_taken(autojump_clock: trio.abc.Clock) -> None:
    async with trio.open_nursery() as nursery:
        one, other = await two(Several(), nursery)
        other.process.scope.cancel()  # it hears nothing any more
        await one.register.record(enroll(PUMP, "pump-7"), AT_MS)
        assert await other.register.record(enroll(VALVE, "pump-7"), AT_MS) == Refusal(Trouble.NAME_TAKEN, 0)
        assert not isinstance(await other.register.record(enroll(VALVE, "pump-8"), AT_MS), Refusal)
        nursery.cancel_scope.cancel()


async def test_a_renewal_is_granted_once(autojump_clock: trio.abc.Clock) -> None:
    async with trio.open_nursery() as nursery:
        one, other = await two(Several(), nursery)
        await one.register.record(enroll(PUMP), AT_MS)
        await other.register.read_on()

        def renew(key: str) -> rules.Decide:
            return lambda roll: rules.renew(roll, PUMP, rules.NewIdentity(key, None, key), "k", "J", ACT)

        assert not isinstance(await one.register.record(renew("first"), AT_MS), Refusal)
        refused = await other.register.record(renew("second"), AT_MS)
        assert refused == Refusal(Trouble.RENEWED_OTHERWISE)
        assert await other.register.record(renew("first"), AT_MS) == ()  # the same once more
        nursery.cancel_scope.cancel()


async def test_a_register_begins_with_what_one_process_alone_has_left(autojump_clock: trio.abc.Clock) -> None:
    several = Several()
    async with trio.open_nursery() as nursery:
        one, _ = await two(several, nursery)
        for name in ("a", "b"):
            await one.register.record(enroll(PUMP, name), AT_MS)
        later = Registered(several.process("R"))
        await later.start(nursery)
        assert later.register.ids == [PUMP.node_id]
        assert not isinstance(await later.register.record(enroll(VALVE, "a"), AT_MS), Refusal)
        nursery.cancel_scope.cancel()


async def test_a_name_that_changed_hands_is_its_new_owners_in_whatever_order_they_are_read(
    autojump_clock: trio.abc.Clock,
) -> None:
    several = Several()
    async with trio.open_nursery() as nursery:
        one, other = await two(several, nursery)
        await one.register.record(enroll(VALVE, "pump-7"), AT_MS)
        await one.register.record(enroll(PUMP), AT_MS)
        await other.register.read_on()
        other.process.scope.cancel()
        await one.register.record(lambda roll: rules.rename(roll, VALVE, None, ACT), AT_MS)
        await one.register.record(lambda roll: rules.rename(roll, PUMP, "pump-7", ACT), AT_MS)
        # The events in between are cut: all members are read, PUMP first.
        await one.process.store.append(Part(STREAM, None, AT_MS, snapshot=b"{}"))
        await one.process.store.compact(AT_MS + 1)
        await other.register.read_on()
        assert other.register.roll.named("pump-7") == {"acme": PUMP.node_id}
        nursery.cancel_scope.cancel()


async def test_more_conflicts_than_tries_leave_nothing_changed(autojump_clock: trio.abc.Clock) -> None:
    async with trio.open_nursery() as nursery:
        one, other = await two(Several(), nursery)
        tags = iter(range(100))

        async def someone_is_faster() -> None:
            await other.register.record(lambda roll: rules.tag(roll, VALVE, {"n": str(next(tags))}, (), ACT), AT_MS)

        one.process.before_commit = someone_is_faster
        assert await one.register.record(enroll(PUMP), AT_MS) == Refusal(Trouble.NOT_WRITTEN)
        assert one.register.find(PUMP.node_id) is None
        nursery.cancel_scope.cancel()


async def test_an_event_that_cannot_be_read_leaves_the_process_behind(autojump_clock: trio.abc.Clock) -> None:
    async with trio.open_nursery() as nursery:
        one, other = await two(Several(), nursery)
        await one.process.store.append(Part(STREAM, None, AT_MS, (b"{",)))
        with pytest.raises(UnreadableError):
            await other.register.read_on()
        assert await other.register.record(enroll(PUMP), AT_MS) == Refusal(Trouble.NOT_WRITTEN)
        nursery.cancel_scope.cancel()


async def test_a_member_that_cannot_be_read_is_its_own_trouble(autojump_clock: trio.abc.Clock) -> None:
    async with trio.open_nursery() as nursery:
        one, other = await two(Several(), nursery)
        event = b'{"node_id":"%b","member":{"of":"a newer version"}}' % PUMP.node_id.encode()
        await one.process.store.append(Part(STREAM, None, AT_MS, (event,)))
        with structlog.testing.capture_logs() as lines:
            await other.register.read_on()
        assert [line["event"] for line in lines] == ["register_unreadable"]
        assert other.register.refuses_login(PUMP.node_id, "J", 0, AT_MS) is NodeClose.INTERNAL
        nursery.cancel_scope.cancel()
