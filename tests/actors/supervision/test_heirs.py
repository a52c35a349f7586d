"""An actor that goes on in the task of the one that started it: it has a life, an end and a crash of its own."""

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from actors.supervision.child import Handle
from actors.supervision.registry import Registry
from actors.supervision.supervisor import Supervisor
from tests.actors.supervision.specs import raise_value_error, temporary

Told = list[tuple[str, str | None]]


class Line:
    """A first actor that starts others as its heirs."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.told: Told = []
        self.tasks: dict[str, trio.lowlevel.Task] = {}
        self.names: Registry[str, str] = Registry()

    def start(self, name: str, body: Callable[[], Awaitable[None]], *, as_heir: bool = False) -> Handle:
        async def run() -> None:
            self.tasks[name] = trio.lowlevel.current_task()
            await body()

        def end(crash: Exception | None) -> None:
            self.told.append((name, None if crash is None else type(crash).__name__))

        spec = temporary(run, on_end=end, entry=self.names.entry(name, name))
        return self.supervisor.start(spec, as_heir=as_heir)


async def test_an_heir_has_the_task_of_the_one_before_it(supervisor: Supervisor) -> None:
    line = Line(supervisor)

    async def second() -> None:
        line.start("third", trio.sleep_forever, as_heir=True)

    async def first() -> None:
        line.start("second", second, as_heir=True)
        line.start("other", trio.sleep_forever, as_heir=True)  # there is one heir: this one has a task of its own

    line.start("first", first)
    await trio.testing.wait_all_tasks_blocked()
    assert line.told == [("first", None), ("second", None)]
    assert line.tasks["first"] is line.tasks["second"] is line.tasks["third"] is not line.tasks["other"]
    assert len(line.names) == 2


@pytest.mark.parametrize("how", ["crash", "cancel", "crash from outside"])
async def test_an_heir_lives_however_the_one_before_it_ended(supervisor: Supervisor, how: str) -> None:
    line = Line(supervisor)

    async def first() -> None:
        line.start("second", trio.sleep_forever, as_heir=True)
        if how == "crash":
            await raise_value_error()
        await trio.sleep_forever()

    handle = line.start("first", first)
    await trio.testing.wait_all_tasks_blocked()
    if how == "cancel":
        handle.cancel()
    elif how == "crash from outside":
        handle.crash(ValueError())
    await trio.testing.wait_all_tasks_blocked()
    assert line.told == [("first", None if how == "cancel" else "ValueError")]
    assert line.tasks["second"] is line.tasks["first"]


async def test_an_heir_that_is_cancelled_or_crashes_before_its_turn_ends_with_it(supervisor: Supervisor) -> None:
    line, over = Line(supervisor), trio.Event()

    async def first() -> None:
        line.start("second", trio.sleep_forever, as_heir=True).cancel()
        await over.wait()

    async def third() -> None:
        line.start("fourth", trio.sleep_forever, as_heir=True).crash(ValueError())
        await over.wait()

    line.start("first", first)
    line.start("third", third)
    await trio.testing.wait_all_tasks_blocked()
    assert line.told == []
    over.set()
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(line.told) == [("first", None), ("fourth", "ValueError"), ("second", None), ("third", None)]
    assert len(line.names) == 0


async def test_a_stop_and_a_cancellation_end_whoever_waits_to_go_on() -> None:
    for is_stopped in (True, False):
        supervisor = Supervisor()
        line = Line(supervisor)

        async def first(line: Line = line) -> None:
            line.start("second", trio.sleep_forever, as_heir=True)
            await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            line.start("first", first)
            await trio.testing.wait_all_tasks_blocked()
            if is_stopped:
                supervisor.request_stop()
            else:
                nursery.cancel_scope.cancel()
        assert line.told == [("first", None), ("second", None)]
        assert len(line.names) == 0


async def test_an_interrupt_does_not_wait_for_an_heir_to_end() -> None:
    supervisor = Supervisor()
    line = Line(supervisor)

    async def first() -> None:
        line.start("second", trio.sleep_forever, as_heir=True)
        raise KeyboardInterrupt

    async def run() -> None:
        with pytest.raises(KeyboardInterrupt):
            await supervisor.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        line.start("first", first)
        await trio.testing.wait_all_tasks_blocked()
        was_told = list(line.told)
        supervisor.request_stop()
    assert was_told == [("first", None), ("second", None)]
