"""The pump on real sockets: who is called, who is not, and that one owner's trouble stays its own."""

import itertools
import os
import socket
from collections.abc import Callable, Iterator

import pytest
import structlog
import trio
import trio.testing

from actors.supervision.child import ChildSpec, Handle, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.net.pump import BATCH_EVENTS_MAX, BATCH_S_MAX, Pump

TEST_S_MAX = 20.0
"""No assertion on time: only the end of a test that would hang."""


class Reader:
    """An owner that receives a bounded amount at each call and keeps what came; `then` runs after each call."""

    def __init__(self, pump: Pump, sock: socket.socket, then: Callable[[], None] | None = None) -> None:
        self.pump = pump
        self.sock = sock
        self.received = b""
        self.calls = 0
        self.gone = False
        self.crashes: list[Exception] = []
        self.happened = trio.Event()
        self._then = then
        pump.register(sock, self)

    def on_readable(self) -> None:
        self.calls += 1
        try:
            data = self.sock.recv(16)
        except BlockingIOError:
            pass
        except ConnectionError:
            self._leave()
        else:
            self.received += data
            if not data:
                self._leave()
        self._tell()
        if self._then is not None:
            self._then()

    def crash(self, exc: Exception) -> None:
        self.crashes.append(exc)
        self._tell()

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            await self.happened.wait()

    def _leave(self) -> None:
        self.gone = True
        self.pump.unregister(self.sock)

    def _tell(self) -> None:
        self.happened.set()
        self.happened = trio.Event()


def must_not_be_called() -> None:
    raise AssertionError("this owner's socket is not registered any more")


def moved_to(fd: int, sock: socket.socket) -> socket.socket:
    """The same connection under another fd, as if it had been accepted when that fd was the lowest free one."""
    os.dup2(sock.fileno(), fd)
    sock.close()
    moved = socket.socket(fileno=fd)
    moved.setblocking(False)
    return moved


@pytest.fixture
def pump() -> Iterator[Pump]:
    pump = Pump()
    yield pump
    pump.close()


@pytest.fixture
def pair() -> Iterator[Callable[[], tuple[socket.socket, socket.socket]]]:
    """Connected pairs (ours, the peer's), closed after the test."""
    made: list[socket.socket] = []

    def make() -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        made.extend((ours, theirs))
        return ours, theirs

    yield make
    for sock in made:
        sock.close()


Pair = Callable[[], tuple[socket.socket, socket.socket]]


async def test_bytes_of_many_sockets_reach_their_own_owners(pump: Pump, pair: Pair, nursery: trio.Nursery) -> None:
    nursery.start_soon(pump.run)
    peers = [pair() for _ in range(50)]
    readers = [Reader(pump, ours) for ours, _ in peers]
    assert pump.sockets == 50
    with trio.fail_after(TEST_S_MAX):
        for number, (_, theirs) in enumerate(peers):
            theirs.sendall(b"%d" % number)
        for number, reader in enumerate(readers):
            await reader.until(lambda reader=reader, number=number: reader.received == b"%d" % number)  # type: ignore[misc]


async def test_a_socket_that_is_readable_before_it_is_registered_is_read(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    ours, theirs = pair()
    theirs.sendall(b"first frame")
    nursery.start_soon(pump.run)
    await trio.testing.wait_all_tasks_blocked()
    reader = Reader(pump, ours)
    with trio.fail_after(TEST_S_MAX):
        await reader.until(lambda: reader.received == b"first frame")


async def test_paused_socket_is_not_read_until_it_is_resumed_but_its_end_is_told(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    (ours, theirs), (other, others), (lost, losts) = pair(), pair(), pair()
    reader, going_on, ending = Reader(pump, ours), Reader(pump, other), Reader(pump, lost)
    nursery.start_soon(pump.run)
    with trio.fail_after(TEST_S_MAX):
        pump.pause(ours)
        pump.pause(ours)
        pump.pause(lost)
        theirs.sendall(b"later")
        losts.close()
        others.sendall(b"now")
        await going_on.until(lambda: going_on.received == b"now")
        await ending.until(lambda: ending.gone)
        assert reader.calls == 0
        pump.resume(ours)
        await reader.until(lambda: reader.received == b"later")
        pump.unregister(ours)
        pump.resume(ours)  # which is nobody's any more
    assert pump.sockets == 1


async def test_what_an_owner_leaves_unread_brings_it_back(pump: Pump, pair: Pair, nursery: trio.Nursery) -> None:
    ours, theirs = pair()
    reader = Reader(pump, ours)
    theirs.sendall(b"x" * 100)
    nursery.start_soon(pump.run)
    with trio.fail_after(TEST_S_MAX):
        await reader.until(lambda: len(reader.received) == 100)
    assert reader.calls == 7


async def test_more_ready_than_a_batch_holds_are_all_served_with_a_checkpoint_between_batches(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    peers = [pair() for _ in range(3 * BATCH_EVENTS_MAX + 5)]
    readers = [Reader(pump, ours) for ours, _ in peers]
    for _, theirs in peers:
        theirs.sendall(b"x")
    served: list[int] = []

    class PumpSteps(trio.abc.Instrument):
        """Notes after each step of the pump's task, from one checkpoint to the next, how many were served so far."""

        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            if task.name == "the pump":
                served.append(sum(reader.calls for reader in readers))

    trio.lowlevel.add_instrument(PumpSteps())
    nursery.start_soon(pump.run, name="the pump")
    with trio.fail_after(TEST_S_MAX):
        for reader in readers:
            await reader.until(lambda reader=reader: reader.received == b"x")  # type: ignore[misc]
        await trio.testing.wait_all_tasks_blocked()
    batches = [after - before for before, after in itertools.pairwise(served)]
    assert batches == [BATCH_EVENTS_MAX] * 3 + [5]


async def test_what_is_put_off_to_the_end_of_a_batch_is_called_once_all_its_owners_were(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    seen: list[int] = []

    def put_off() -> None:
        pump.at_end_of_batch(lambda: seen.append(sum(reader.calls for reader in readers)))

    peers = [pair() for _ in range(3)]
    for _, theirs in peers:
        theirs.sendall(b"x")
    readers = [Reader(pump, ours, put_off) for ours, _ in peers]
    nursery.start_soon(pump.run)
    with trio.fail_after(TEST_S_MAX):
        while len(seen) < 3:
            await trio.lowlevel.checkpoint()
    assert seen == [3, 3, 3]


def test_what_is_put_off_outside_of_a_batch_is_called_at_once(pump: Pump) -> None:
    called: list[bool] = []
    pump.at_end_of_batch(lambda: called.append(True))
    assert called


async def test_sockets_with_endless_input_do_not_starve_the_others(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    class Flooded:
        """Its peer always has more: it reads nothing, so its socket is readable in every batch."""

        def on_readable(self) -> None: ...

        def crash(self, exc: Exception) -> None:
            raise exc

    for _ in range(2 * BATCH_EVENTS_MAX):
        ours, theirs = pair()
        theirs.sendall(b"x")
        pump.register(ours, Flooded())
    quiet = [pair() for _ in range(20)]
    readers = [Reader(pump, ours) for ours, _ in quiet]
    nursery.start_soon(pump.run)
    with trio.fail_after(TEST_S_MAX):
        for (_, theirs), reader in zip(quiet, readers, strict=True):
            theirs.sendall(b"now")
            await reader.until(lambda reader=reader: reader.received == b"now")  # type: ignore[misc]


async def test_a_crash_in_on_readable_hits_that_owner_alone_and_its_socket_is_unregistered_first(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    (bad_ours, bad_theirs), (good_ours, good_theirs) = pair(), pair()
    error = ValueError("bad frame")
    registered_at_crash: list[int] = []

    class Bad(Reader):
        def on_readable(self) -> None:
            raise error

        def crash(self, exc: Exception) -> None:
            registered_at_crash.append(self.pump.sockets)
            super().crash(exc)

    bad, good = Bad(pump, bad_ours), Reader(pump, good_ours)
    nursery.start_soon(pump.run)
    with trio.fail_after(TEST_S_MAX):
        bad_theirs.sendall(b"x")
        await bad.until(lambda: bool(bad.crashes))
        bad_theirs.sendall(b"more")
        good_theirs.sendall(b"y")
        await good.until(lambda: good.received == b"y")
    assert bad.crashes == [error]
    assert good.crashes == []
    assert registered_at_crash == [1]


async def test_an_owner_that_gave_its_fd_away_before_raising_does_not_take_the_new_owner_with_it(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    ours, theirs = pair()
    heirs: list[Reader] = []

    class Testator(Reader):
        def on_readable(self) -> None:
            self.pump.unregister(self.sock)
            heirs.append(Reader(self.pump, self.sock))
            raise ValueError("after handing over")

    testator = Testator(pump, ours)
    nursery.start_soon(pump.run)
    with trio.fail_after(TEST_S_MAX):
        theirs.sendall(b"x")
        await testator.until(lambda: bool(testator.crashes))
        await heirs[0].until(lambda: heirs[0].received == b"x")
    assert heirs[0].crashes == []


async def test_an_event_for_an_fd_reused_within_the_batch_never_reaches_its_old_owner(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    pairs = [pair(), pair()]
    (spare, spare_theirs) = pair()
    successors: list[Reader] = []

    def replace(victim: int) -> None:
        """Close the other one of the two, and let a new connection get its fd, all inside the batch."""
        if successors:
            return
        reader = readers[victim]
        fd = reader.sock.fileno()
        pump.unregister(reader.sock)
        reader.sock.close()
        successors.append(Reader(pump, moved_to(fd, spare)))

    # Whichever comes first in the batch replaces the other one, so the order of events plays no part.
    readers = [
        Reader(pump, pairs[0][0], then=lambda: replace(1)),
        Reader(pump, pairs[1][0], then=lambda: replace(0)),
    ]
    for _, theirs in pairs:
        theirs.sendall(b"old")
    nursery.start_soon(pump.run)
    with trio.fail_after(TEST_S_MAX):
        while not successors:
            await trio.lowlevel.checkpoint()
        (successor,) = successors
        assert successor.received == b""
        assert successor.calls == 1, "called for the old socket's event, found nothing, and that is fine"
        spare_theirs.sendall(b"new")
        await successor.until(lambda: successor.received == b"new")
    assert sorted(reader.calls for reader in readers) == [0, 1]
    assert [reader.crashes for reader in (*readers, successor)] == [[], [], []]
    successor.sock.close()


async def test_a_socket_unregistered_by_another_owner_in_the_same_batch_is_not_called(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    pairs = [pair(), pair()]
    readers = [
        Reader(pump, pairs[0][0], then=lambda: pump.unregister(pairs[1][0])),
        Reader(pump, pairs[1][0], then=lambda: pump.unregister(pairs[0][0])),
    ]
    for _, theirs in pairs:
        theirs.sendall(b"x")
    nursery.start_soon(pump.run)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(reader.calls for reader in readers) == [0, 1]
    assert pump.sockets == 1


async def test_an_owner_may_unregister_itself_inside_on_readable(pump: Pump, pair: Pair, nursery: trio.Nursery) -> None:
    ours, theirs = pair()
    reader = Reader(pump, ours, then=lambda: pump.unregister(ours))
    theirs.sendall(b"x" * 100)
    nursery.start_soon(pump.run)
    await trio.testing.wait_all_tasks_blocked()
    assert reader.calls == 1
    assert pump.sockets == 0


async def test_a_half_close_is_delivered_as_readable_and_the_socket_can_still_be_written(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    ours, theirs = pair()
    reader = Reader(pump, ours)
    nursery.start_soon(pump.run)
    with trio.fail_after(TEST_S_MAX):
        theirs.shutdown(socket.SHUT_WR)
        await reader.until(lambda: reader.gone)
    ours.send(b"goodbye")
    assert theirs.recv(16) == b"goodbye"


async def test_a_hang_up_is_delivered_as_readable(pump: Pump, pair: Pair, nursery: trio.Nursery) -> None:
    ours, theirs = pair()
    reader = Reader(pump, ours)
    nursery.start_soon(pump.run)
    with trio.fail_after(TEST_S_MAX):
        theirs.close()
        await reader.until(lambda: reader.gone)
    assert pump.sockets == 0


async def test_a_reset_tcp_connection_is_delivered_as_readable(pump: Pump, nursery: trio.Nursery) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        ours, _ = listener.accept()
        with ours:
            ours.setblocking(False)
            reader = Reader(pump, ours)
            nursery.start_soon(pump.run)
            with trio.fail_after(TEST_S_MAX):
                linger_for_no_time = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_for_no_time)
                client.close()
                await reader.until(lambda: reader.gone)
    assert reader.received == b""


def test_a_blocking_socket_is_refused(pump: Pump, pair: Pair) -> None:
    ours, theirs = pair()
    with pytest.raises(ValueError, match="blocking"):
        Reader(pump, theirs)
    Reader(pump, ours)
    assert pump.sockets == 1


def test_registering_a_socket_twice_is_an_error_and_keeps_the_first_owner(pump: Pump, pair: Pair) -> None:
    ours, _ = pair()
    Reader(pump, ours)
    with pytest.raises(FileExistsError):
        Reader(pump, ours)
    assert pump.sockets == 1


def test_unregistering_is_idempotent_and_takes_a_socket_or_its_fd(pump: Pump, pair: Pair) -> None:
    (first, _), (second, _) = pair(), pair()
    Reader(pump, first)
    Reader(pump, second)
    pump.unregister(first)
    pump.unregister(first)
    pump.unregister(second.fileno())
    assert pump.sockets == 0
    first.close()
    pump.unregister(first)


async def test_a_socket_closed_without_unregistering_leaves_its_fd_to_the_next(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    ours, _ = pair()
    spare, spare_theirs = pair()
    Reader(pump, ours, then=must_not_be_called)
    fd = ours.fileno()
    ours.close()
    with moved_to(fd, spare) as successor:
        reader = Reader(pump, successor)
        nursery.start_soon(pump.run)
        with trio.fail_after(TEST_S_MAX):
            spare_theirs.sendall(b"x")
            await reader.until(lambda: reader.received == b"x")
        pump.unregister(successor)
    assert reader.crashes == []


def test_unregistering_an_fd_that_was_closed_first_forgets_its_owner(pump: Pump, pair: Pair) -> None:
    ours, _ = pair()
    Reader(pump, ours)
    fd = ours.fileno()
    ours.close()
    pump.unregister(fd)
    assert pump.sockets == 0


# Under the supervisor


def start_pump(supervisor: Supervisor, pump: Pump) -> Handle:
    return supervisor.start(ChildSpec(name="pump", run=pump.run, kind=Kind.PERMANENT, stage=Stage.CORE))


async def test_a_restarted_pump_goes_on_with_every_registered_socket(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    (ours, theirs), (bad_ours, bad_theirs) = pair(), pair()

    class Worse(Reader):
        """Breaks the contract of `crash`, which is the one thing that can take the pump down."""

        def on_readable(self) -> None:
            raise ValueError

        def crash(self, exc: Exception) -> None:
            raise RuntimeError from exc

    reader = Reader(pump, ours)
    Worse(pump, bad_ours)
    with structlog.testing.capture_logs() as logs, trio.fail_after(TEST_S_MAX):
        handle = start_pump(supervisor, pump)
        theirs.sendall(b"1")
        await reader.until(lambda: reader.received == b"1")
        bad_theirs.sendall(b"x")
        theirs.sendall(b"2")
        await reader.until(lambda: reader.received == b"12")
        handle.crash(ValueError("outside"))
        theirs.sendall(b"3")
        await reader.until(lambda: reader.received == b"123")
    assert [line["event"] for line in logs if line["event"] == "actor_restarted"] == ["actor_restarted"] * 2
    assert not handle.ended


async def test_a_crash_in_on_readable_ends_that_actor_through_the_supervisor_and_no_other(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    class Actor(Reader):
        def __init__(self, sock: socket.socket) -> None:
            super().__init__(pump, sock)
            self.ends: list[Exception | None] = []
            self.handle = supervisor.start(
                ChildSpec(
                    name="node",
                    run=trio.sleep_forever,
                    kind=Kind.TEMPORARY,
                    stage=Stage.NODES,
                    on_end=self.on_end,
                )
            )

        def on_readable(self) -> None:
            super().on_readable()
            if self.received == b"poison":
                raise ValueError(self.received)

        def crash(self, exc: Exception) -> None:
            self.handle.crash(exc)

        def on_end(self, cause: Exception | None) -> None:
            self.ends.append(cause)
            self.pump.unregister(self.sock)
            self.sock.close()
            self._tell()

    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    pump_handle = start_pump(supervisor, pump)
    pairs = [pair() for _ in range(3)]
    first, poisoned, last = (Actor(ours) for ours, _ in pairs)
    with structlog.testing.capture_logs() as logs, trio.fail_after(TEST_S_MAX):
        pairs[1][1].sendall(b"poison")
        await poisoned.until(lambda: bool(poisoned.ends))
        assert pairs[1][1].recv(16) == b""
        for (_, theirs), actor in ((pairs[0], first), (pairs[2], last)):
            theirs.sendall(b"fine")
            await actor.until(lambda actor=actor: actor.received == b"fine")  # type: ignore[misc]
    assert [type(end) for end in poisoned.ends] == [ValueError]
    assert [actor.handle.ended for actor in (first, poisoned, last)] == [False, True, False]
    assert not pump_handle.ended
    (line,) = logs
    assert line["event"] == "actor_crashed"
    assert "poison" not in repr(line)
    assert any("gateway/net/pump.py" in place for place in line["causes"][0]["at"])


async def test_owner_that_asks_is_called_once_though_it_is_paused_and_nothing_is_to_be_read(
    pump: Pump, pair: Pair, nursery: trio.Nursery
) -> None:
    (ours, theirs), (gone, _) = pair(), pair()
    reader, left = Reader(pump, ours), Reader(pump, gone)
    nursery.start_soon(pump.run)
    with trio.fail_after(TEST_S_MAX):
        for sock in (ours, gone):
            pump.pause(sock)
            pump.call_soon(sock)
        pump.call_soon(ours)
        pump.unregister(gone)
        pump.call_soon(gone)
        await reader.until(lambda: reader.calls == 1)
        pump.resume(ours)
        pump.call_soon(ours)
        theirs.sendall(b"both due and readable")
        await reader.until(lambda: reader.received == b"both due and readable")
    assert reader.calls <= 4  # of 16 bytes each
    assert left.calls == 0


async def test_owners_that_take_long_are_called_in_turns_with_other_tasks(pair: Pair, nursery: trio.Nursery) -> None:
    """Each of them takes longer than a batch may, by the pump's clock: others run after each, or (trio may call two
    tasks in either order) after two."""
    took_s = itertools.count(step=BATCH_S_MAX)
    pump = Pump(clock=lambda: next(took_s))
    turns: list[int] = []
    called: list[int] = []

    async def others() -> None:
        while True:
            turns.append(len(called))
            await trio.lowlevel.checkpoint()

    ended: list[int] = []
    for number in range(10):
        ours, theirs = pair()
        theirs.sendall(b"x")

        def then(number: int = number) -> None:
            called.append(number)
            pump.at_end_of_batch(lambda: ended.append(len(called)))

        Reader(pump, ours, then)
    nursery.start_soon(pump.run)
    nursery.start_soon(others)
    with trio.fail_after(TEST_S_MAX):
        while len(called) < 10:
            await trio.lowlevel.checkpoint()
    assert sorted(called) == list(range(10))
    assert ended == list(range(1, 11))
    assert max(after - before for before, after in itertools.pairwise([*turns, 10])) <= 2
    nursery.cancel_scope.cancel()
    pump.close()
