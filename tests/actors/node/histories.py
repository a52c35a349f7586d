"""Short ways to say what a node's stream holds, for tests that read like the contract."""

from actors.node.command_rules import Decision, NodeState, decide, fold
from actors.node.commands import Command, IssueCommand, Report, ResultCheck, SendCommand, TakeResume
from actors.node.events import CommandQueued, CommandSent, Event, NodeResumed, SessionOpened

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
    epoch: int = 2,
) -> TakeResume:
    """The node's resume in its second session."""
    last_cmd = None if last is None else cmd(last)
    return TakeResume(epoch, journal_id, last_cmd, outcomes, frozenset(map(cmd, running)))


def issue(number: int, epoch: int = 1, deadline_at_ms: int = DEADLINE_MS) -> IssueCommand:
    """A caller's command."""
    return IssueCommand(epoch, cmd(number), TOOL, "agent_1", "acme", deadline_at_ms)


def ok(number: int, result: ResultCheck = ResultCheck.VALID) -> Report:
    """The node executed it."""
    return Report(cmd(number), ok=True, result=result)


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


def decided(state: NodeState, command: Command, now_ms: int = NOW_MS) -> Decision:
    """Decide, and check what holds of every decision: its state is the fold of its events."""
    decision = decide(state, command, now_ms)
    assert decision.state == fold(state, decision.events)
    return decision
