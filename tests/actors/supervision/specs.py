"""Child specs for the tests of supervision, one builder a kind, and a body that crashes."""

from collections.abc import Awaitable, Callable

import trio

from actors.supervision.child import ChildSpec, Kind
from actors.supervision.registry import Entry
from actors.supervision.stop_ladder import Stage


def temporary(
    run: Callable[[], Awaitable[None]],
    on_end: Callable[[Exception | None], None] | None = None,
    entry: Entry[str, str] | None = None,
) -> ChildSpec:
    return ChildSpec(name="node", run=run, kind=Kind.TEMPORARY, stage=Stage.NODES, on_end=on_end, entry=entry)


def permanent(
    run: Callable[[], Awaitable[None]],
    on_end: Callable[[Exception | None], None] | None = None,
    entry: Entry[str, str] | None = None,
) -> ChildSpec:
    return ChildSpec(name="sweeper", run=run, kind=Kind.PERMANENT, stage=Stage.CORE, on_end=on_end, entry=entry)


def fatal(run: Callable[[], Awaitable[None]], ask_stop: Callable[[], None] | None = None) -> ChildSpec:
    return ChildSpec(name="log writer", run=run, kind=Kind.FATAL, stage=Stage.LOG, ask_stop=ask_stop)


async def raise_value_error() -> None:
    await trio.lowlevel.checkpoint()
    raise ValueError("what the device sent")
