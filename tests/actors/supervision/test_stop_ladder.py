"""The stop ladder: its order and bounds as data, and the supervisor climbing it on a mock clock."""

from collections.abc import Callable

import pytest
import structlog
import trio
import trio.testing

from actors.supervision.child import ChildSpec, Handle, Kind
from actors.supervision.errors import SupervisorStoppingError
from actors.supervision.stop_ladder import Stage, StopSettings, rungs
from actors.supervision.supervisor import Supervisor


class Actor:
    """In memory: ends `finish_s` after being asked to stop, and notes in a shared diary when what happened to it."""

    def __init__(self, name: str, diary: list[tuple[str, str, float]], finish_s: float = 0.0) -> None:
        self.name = name
        self._diary = diary
        self._finish_s = finish_s
        self._asked = trio.Event()

    async def run(self) -> None:
        try:
            await self._asked.wait()
            await trio.sleep(self._finish_s)
        except trio.Cancelled:
            self._note("cancelled")
            raise
        self._note("finished")

    def ask_stop(self) -> None:
        self._note("asked")
        self._asked.set()

    def _note(self, what: str) -> None:
        self._diary.append((self.name, what, trio.current_time()))


def start(supervisor: Supervisor, actor: Actor, stage: Stage, *, asked: bool = True) -> Handle:
    ask_stop: Callable[[], None] | None = actor.ask_stop if asked else None
    kind = Kind.TEMPORARY if stage in (Stage.STREAMS, Stage.NODES) else Kind.PERMANENT
    return supervisor.start(ChildSpec(name=actor.name, run=actor.run, kind=kind, stage=stage, ask_stop=ask_stop))


async def stop(clock: trio.testing.MockClock, supervisor: Supervisor, boot: Callable[[], object]) -> float:
    """Boot, ask to stop, and return how long the stop took on the mock clock."""
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        boot()
        began_s = clock.current_time()
        supervisor.request_stop()
    return clock.current_time() - began_s


def test_the_ladder_stops_accepting_then_streams_then_nodes_then_cancels_and_the_log_goes_last() -> None:
    ladder = rungs(StopSettings())
    assert [rung.asks for rung in ladder if rung.asks] == [
        (Stage.ACCEPTING,),
        (Stage.STREAMS,),
        (Stage.NODES,),
        (Stage.CORE,),
        (Stage.LOG,),
    ]
    assert [(rung.name, rung.cancels) for rung in ladder if rung.cancels] == [
        ("cancel", (Stage.ACCEPTING, Stage.STREAMS, Stage.NODES)),
        ("close_log", (Stage.CORE,)),
    ]


def test_the_bounds_are_five_seconds_in_all_and_four_for_streams_and_calls() -> None:
    settings = StopSettings()
    assert settings.stop_s_max == 5.0
    assert settings.streams_and_calls_s_max == 4.0


def test_bounds_that_leave_the_log_no_time_are_refused() -> None:
    with pytest.raises(ValueError, match="log"):
        StopSettings(stop_s_max=4.0)


async def test_an_idle_supervisor_stops_at_once(autojump_clock: trio.testing.MockClock) -> None:
    assert await stop(autojump_clock, Supervisor(), lambda: None) == 0.0


async def test_stages_are_asked_in_order_each_when_the_one_before_has_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    diary: list[tuple[str, str, float]] = []
    supervisor = Supervisor()

    def boot() -> None:
        for stage, finish_s in (
            (Stage.LOG, 0.25),
            (Stage.CORE, 0.0),
            (Stage.NODES, 0.125),
            (Stage.STREAMS, 2.0),
            (Stage.ACCEPTING, 0.5),
        ):
            start(supervisor, Actor(stage, diary, finish_s), stage)

    assert await stop(autojump_clock, supervisor, boot) == 2.375
    assert diary == [
        ("accepting", "asked", 0.0),
        ("streams", "asked", 0.0),
        ("accepting", "finished", 0.5),
        ("streams", "finished", 2.0),
        ("nodes", "asked", 2.0),
        ("nodes", "finished", 2.125),
        ("core", "asked", 2.125),
        ("core", "finished", 2.125),
        ("log", "asked", 2.125),
        ("log", "finished", 2.375),
    ]


async def test_actors_that_never_finish_are_cancelled_and_the_whole_stop_takes_five_seconds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    diary: list[tuple[str, str, float]] = []
    supervisor = Supervisor()

    def boot() -> None:
        for stage in Stage:
            start(supervisor, Actor(stage, diary, finish_s=1000.0), stage)

    assert await stop(autojump_clock, supervisor, boot) == pytest.approx(5.0)
    asked = {name: when for name, what, when in diary if what == "asked"}
    cancelled = {name: when for name, what, when in diary if what == "cancelled"}
    assert asked == {
        "accepting": 0.0,
        "streams": 0.0,
        "nodes": 4.0,
        "core": pytest.approx(4.4),
        "log": pytest.approx(4.5),
    }
    assert cancelled == {
        "accepting": pytest.approx(4.4),
        "streams": pytest.approx(4.4),
        "nodes": pytest.approx(4.4),
        "core": pytest.approx(4.5),
        "log": pytest.approx(5.0),
    }


async def test_nodes_are_asked_only_when_the_calls_in_flight_have_finished(
    autojump_clock: trio.testing.MockClock,
) -> None:
    diary: list[tuple[str, str, float]] = []
    supervisor = Supervisor()

    async def call() -> None:
        with supervisor.calls:
            await trio.sleep(3.0)

    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        start(supervisor, Actor("node", diary), Stage.NODES)
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        supervisor.request_stop()
    assert diary == [("node", "asked", 3.0), ("node", "finished", 3.0)]
    assert autojump_clock.current_time() == 3.0


async def test_a_call_that_does_not_finish_delays_the_nodes_by_four_seconds_at_most(
    autojump_clock: trio.testing.MockClock,
) -> None:
    diary: list[tuple[str, str, float]] = []
    supervisor = Supervisor()

    def boot() -> None:
        supervisor.calls.enter()
        start(supervisor, Actor("node", diary), Stage.NODES)

    assert await stop(autojump_clock, supervisor, boot) == 4.0
    assert diary == [("node", "asked", 4.0), ("node", "finished", 4.0)]


async def test_an_actor_without_ask_stop_is_cancelled_when_its_stage_is_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    diary: list[tuple[str, str, float]] = []
    supervisor = Supervisor()
    assert (
        await stop(autojump_clock, supervisor, lambda: start(supervisor, Actor("s", diary), Stage.STREAMS, asked=False))
        == 0.0
    )
    assert diary == [("s", "cancelled", 0.0)]


async def test_an_ask_stop_that_raises_crashes_that_actor_alone(autojump_clock: trio.testing.MockClock) -> None:
    diary: list[tuple[str, str, float]] = []
    supervisor = Supervisor()
    causes: list[Exception | None] = []

    def refuse() -> None:
        raise KeyError("ask_stop")

    def boot() -> None:
        supervisor.start(
            ChildSpec(
                name="stream",
                run=trio.sleep_forever,
                kind=Kind.TEMPORARY,
                stage=Stage.STREAMS,
                ask_stop=refuse,
                on_end=causes.append,
            )
        )
        start(supervisor, Actor("other", diary, finish_s=1.0), Stage.STREAMS)

    assert await stop(autojump_clock, supervisor, boot) == 1.0
    assert [type(cause) for cause in causes] == [KeyError]
    assert diary == [("other", "asked", 0.0), ("other", "finished", 1.0)]


async def test_a_permanent_actor_that_crashes_after_being_asked_is_not_restarted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    supervisor = Supervisor()
    asked = trio.Event()
    lives: list[float] = []

    async def run() -> None:
        lives.append(trio.current_time())
        await asked.wait()
        raise ValueError

    def boot() -> None:
        supervisor.start(
            ChildSpec(name="sweeper", run=run, kind=Kind.PERMANENT, stage=Stage.CORE, ask_stop=asked.set),
        )

    assert await stop(autojump_clock, supervisor, boot) == 0.0
    assert len(lives) == 1


async def test_nothing_starts_in_a_stage_that_was_asked_while_later_stages_still_take_actors(
    autojump_clock: trio.testing.MockClock,
) -> None:
    diary: list[tuple[str, str, float]] = []
    supervisor = Supervisor()
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        start(supervisor, Actor("slow", diary, finish_s=1.0), Stage.STREAMS)
        await trio.testing.wait_all_tasks_blocked()
        supervisor.request_stop()
        supervisor.request_stop()
        await trio.sleep(0.5)
        for stage in (Stage.ACCEPTING, Stage.STREAMS):
            with pytest.raises(SupervisorStoppingError):
                start(supervisor, Actor("late", diary), stage)
        start(supervisor, Actor("ledger", diary), Stage.CORE)
    assert ("ledger", "finished", autojump_clock.current_time()) in diary
    assert all(name != "late" for name, _, _ in diary)


async def test_each_rung_is_logged_with_how_many_actors_it_left(autojump_clock: trio.testing.MockClock) -> None:
    supervisor = Supervisor()
    with structlog.testing.capture_logs() as logs:
        await stop(autojump_clock, supervisor, lambda: start(supervisor, Actor("s", [], finish_s=9.0), Stage.STREAMS))
    passed = [(line["rung"], line["actors_left"]) for line in logs if line["event"] == "stop_rung_passed"]
    assert passed == [
        ("stop_accepting", 0),
        ("finish", 1),
        ("say_goodbye", 0),
        ("cancel", 0),
        ("stop_core", 0),
        ("close_log", 0),
    ]
