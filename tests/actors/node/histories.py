"""Short ways to say what a node's stream holds, for tests that read like the contract."""

from collections.abc import Container

from actors.node.command_rules import (
    Decision,
    decide,
)
from actors.node.history import (
    CommandQueued,
    CommandSent,
    Event,
    NodeResumed,
    NodeState,
    SessionOpened,
    fold,
)
from actors.node.intents import (
    Intent,
    Issue,
    Report,
    ResultCheck,
    SendCommand,
    TakeResume,
)

NOW_MS = 1_800_000_000_000
DEADLINE_MS = NOW_MS + 5_000
DAY_MS = 24 * 3600 * 1000
TOOL = "mcp.echo.01jd.echo"


def cmd(number: int) -> str:
    """The id of the n-th command, minted about NOW_MS: ids order like their numbers."""
    return f"01MC4CMT00{number:016d}"


def queued(number: int, deadline_at_ms: int = DEADLINE_MS) -> CommandQueued:
    """The n-th command was accepted."""
    return CommandQueued(NOW_MS, cmd(number), TOOL, "agent_1", "acme", deadline_at_ms)


def sent(number: int, epoch: int = 1) -> CommandSent:
    """The n-th command was sent."""
    return CommandSent(NOW_MS, cmd(number), epoch)


def opened(epoch: int) -> SessionOpened:
    """A session began."""
    return SessionOpened(NOW_MS, epoch, f"session-{epoch}")


def resumed(
    epoch: int, last: int | None = None, journal_id: str = "journal-a", *, changed: bool = False
) -> NodeResumed:
    """The node resumed."""
    return NodeResumed(NOW_MS, epoch, journal_id, None if last is None else cmd(last), changed)


def history(*events: Event) -> NodeState:
    """The state that these facts add up to."""
    return fold(NodeState(), events)


def live(*events: Event) -> NodeState:
    """A node whose first session is live, and what happened then."""
    return history(opened(1), resumed(1), *events)


def away(*numbers: int, deadline_at_ms: int = DEADLINE_MS) -> NodeState:
    """These commands were sent, the session was lost, and a second one has just been granted its epoch."""
    events = [event for number in numbers for event in (queued(number, deadline_at_ms), sent(number))]
    return live(*events, opened(2))


def resume(
    last: int | None,
    *,
    outcomes: tuple[Report, ...] = (),
    running: tuple[int, ...] = (),
    journal_id: str = "journal-a",
) -> TakeResume:
    """The node's resume."""
    last_cmd = None if last is None else cmd(last)
    return TakeResume("frame", journal_id, last_cmd, outcomes, frozenset(map(cmd, running)))


def issue(number: int, deadline_at_ms: int = DEADLINE_MS) -> Issue:
    """A caller's command."""
    return Issue(cmd(number), TOOL, "agent_1", "acme", deadline_at_ms)


def ok(number: int, check: ResultCheck = ResultCheck.VALID) -> Report:
    """The node executed it."""
    return Report(cmd(number), ok=True, check=check)


def failed(number: int, code: str = "E_INTERNAL") -> Report:
    """The node began it and failed."""
    return Report(cmd(number), begun=True, code=code)


def refused(number: int, code: str = "E_MANIFEST_INVALID") -> Report:
    """The node did not begin it."""
    return Report(cmd(number), begun=False, code=code)


def late(number: int) -> Report:
    """The node did not begin it because its deadline had passed."""
    return refused(number, "E_DEADLINE_EXCEEDED")


def interrupted(number: int) -> Report:
    """The node began it in a process that is gone."""
    return Report(cmd(number), interrupted=True)


def send(number: int) -> SendCommand:
    """The n-th command goes out."""
    return SendCommand(cmd(number), TOOL, DEADLINE_MS)


class Every:
    """All commands: whatever is asked for is in it."""

    def __contains__(self, _: object) -> bool:
        return True


def decided(
    state: NodeState,
    intent: Intent,
    now_ms: int = NOW_MS,
    *,
    epoch: int | None = None,
    arguments_of: Container[str] = Every(),  # it never changes
) -> Decision:
    """Decide, in the latest session, and check what holds of every decision: its state is the fold of its events."""
    decision = decide(state, intent, now_ms, epoch=state.epoch if epoch is None else epoch, arguments_of=arguments_of)
    assert decision.state == fold(state, decision.events)
    return decision
