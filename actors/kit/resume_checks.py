"""Resume (§7.3): what a node remembers over broken connections and, where the kit can kill it, over its own crashes."""

from contextlib import suppress

from msgspec import UNSET

from actors.kit.check import check
from actors.kit.facts import Session, said
from actors.kit.gateway_rules import KitGateway
from actors.kit.steps import Script
from actors.kit.verdicts import Broken, NotApplicable

MANY = 520  # outcomes: more than one `resume` frame may carry
WINDOW = 40  # commands sent before their acks are waited for
KILLS = 3


def _done(gateway: KitGateway) -> Script[str]:
    """A command that was run and acked; its id."""
    tool, arguments = gateway.any_call()
    msg_id = yield from gateway.command(tool, arguments)
    ack = yield from gateway.ack_of(msg_id)
    if not ack.ok:
        raise Broken("ok: true", said(ack))
    return msg_id


def _is_reported(session: Session, msg_id: str) -> None:
    outcome = session.outcomes.get(msg_id)
    if outcome is None:
        raise Broken("the outcome of a command that is not confirmed, in resume", "no word of it")
    if not outcome.ok:
        raise Broken("ok: true in resume for a command that was acked so", "another outcome")
    if session.last_cmd is None or session.last_cmd < msg_id:
        raise Broken("a last_cmd at or above a command that was begun", "one below it")


def _has_no_result(session: Session, msg_id: str) -> None:
    """Of a process that was killed."""
    if msg_id in session.outcomes and session.outcomes[msg_id].result is not UNSET:
        raise Broken("no result after a crash: none is in a journal", "one")


def _acked_at_most_once(gateway: KitGateway, msg_id: str) -> Script[None]:
    """The command is sent again, in a session that has reported it: it must not run."""
    tool, arguments = gateway.any_call()
    have = len(gateway.acks[msg_id])
    yield from gateway.send_again(msg_id, tool, arguments)
    yield from gateway.let_pass(gateway.settings.quiet_s)
    if len(gateway.acks[msg_id]) > have:
        raise Broken("no ack of a command at or below last_cmd", "another ack: it was run again")


@check("7.3")
def reports_outcomes(gateway: KitGateway) -> Script[None]:
    """D2: what ended and is not confirmed is in the next resume, in the same journal."""
    yield from gateway.live()
    gateway.confirms = False
    msg_id = yield from gateway.prepare(_done(gateway))
    journal_id = gateway.session.journal_id
    yield from gateway.prepare(gateway.reopen())
    _is_reported(gateway.session, msg_id)
    if gateway.session.journal_id != journal_id:
        raise Broken("the same journal_id in each session with one log", "another journal_id")


@check("7.3")
def runs_nothing_twice_over_sessions(gateway: KitGateway) -> Script[None]:
    """D1: a command that was run in an earlier session is skipped in the next."""
    yield from gateway.live()
    gateway.confirms = False
    msg_id = yield from gateway.prepare(_done(gateway))
    yield from gateway.prepare(gateway.reopen())
    yield from _acked_at_most_once(gateway, msg_id)


@check("7.3")
def forgets_what_is_confirmed(gateway: KitGateway) -> Script[None]:
    """D2: an outcome that confirmed_through covers is not reported again, and its command is still skipped."""
    yield from gateway.live()
    msg_id = yield from gateway.prepare(_done(gateway))
    yield from gateway.let_pass(gateway.settings.heartbeat_ms / 1000 + gateway.settings.quiet_s)
    yield from gateway.prepare(gateway.reopen())
    if msg_id in gateway.session.outcomes:
        raise Broken("no outcome at or below confirmed_through in resume", "one")
    if gateway.session.last_cmd is None or gateway.session.last_cmd < msg_id:
        raise Broken("a last_cmd that stays, at or above a command that was begun", "one below it")
    yield from _acked_at_most_once(gateway, msg_id)


@check("7.3")
def accounts_for_a_broken_connection(gateway: KitGateway) -> Script[None]:
    """A command whose connection broke at once is reported, runs on, or was not begun and can be sent again."""
    yield from gateway.live()
    gateway.confirms = False
    tool, arguments = gateway.any_call()
    msg_id = yield from gateway.command(tool, arguments)
    yield from gateway.drop()
    yield from gateway.prepare(_to_resume(gateway))
    session = gateway.session
    is_past = session.last_cmd is not None and msg_id <= session.last_cmd
    if is_past and msg_id not in session.outcomes and msg_id not in session.running:
        raise Broken("a command at or below last_cmd among outcomes or running", "no word of it")
    if not is_past and msg_id in session.running:
        raise Broken("running commands at or below last_cmd", "one above it")
    is_ended = msg_id in session.outcomes
    if not is_past and not is_ended:
        yield from gateway.send_again(msg_id, tool, arguments)
    yield from gateway.go_live()
    if not is_ended and not gateway.acks[msg_id]:
        yield from gateway.ack_of(msg_id)


@check("2.4")
def holds_acks_until_live(gateway: KitGateway) -> Script[None]:
    """A cmd that comes between resume and resume_ok is run, and acked after resume_ok."""
    yield from gateway.live()
    tool, arguments = gateway.any_call()
    yield from gateway.drop()
    yield from gateway.prepare(_to_resume(gateway))
    msg_id = yield from gateway.command(tool, arguments)
    yield from gateway.let_pass(gateway.settings.hold_s, "only heartbeats before resume_ok")
    if gateway.acks[msg_id]:
        raise Broken("no ack before resume_ok", "a cmd_ack")
    yield from gateway.go_live()
    ack = yield from gateway.ack_of(msg_id)
    if not ack.ok:
        raise Broken("ok: true", said(ack))


def _to_resume(gateway: KitGateway) -> Script[None]:
    """A new session, up to its `resume`."""
    yield from gateway.dial_again()
    yield from gateway.to_resume()


@check("5.11")
def pages_a_long_resume(gateway: KitGateway) -> Script[None]:
    """Beyond 500 outcomes there are further resume frames, all but the last with more: true, each below 128 KiB."""
    yield from gateway.live()
    gateway.confirms = False
    tool, arguments = gateway.any_call()
    sent: list[str] = []
    while len(sent) < MANY:
        window = []
        for _ in range(WINDOW):
            msg_id = yield from gateway.command(tool, arguments)
            window.append(msg_id)
        for msg_id in window:
            yield from gateway.prepare(gateway.ack_of(msg_id))
        sent += window
    yield from gateway.reopen()
    missing = [msg_id for msg_id in sent if msg_id not in gateway.session.outcomes]
    if missing:
        raise Broken(f"all {len(sent)} outcomes in resume", f"{len(sent) - len(missing)}")


@check("7.3")
def keeps_a_journal_for_each_log(gateway: KitGateway) -> Script[None]:
    """When auth_ok names another log_id, the node starts a new journal: another journal_id, last_cmd null."""
    yield from gateway.live()
    gateway.confirms = False
    yield from gateway.prepare(_done(gateway))
    journal_id = gateway.session.journal_id
    gateway.start_log()
    yield from gateway.prepare(gateway.reopen())
    session = gateway.session
    if session.journal_id == journal_id:
        raise Broken("another journal_id for another log_id", "the same journal_id")
    if session.last_cmd is not None or session.outcomes:
        raise Broken("last_cmd null and no outcomes, for a log it has not met", "commands of another log")


# ---- crashes ---------------------------------------------------------------------------------------------------------


@check("7.3")
def outcomes_survive_a_crash(gateway: KitGateway) -> Script[None]:
    """D2: the outcome of an acked command is in the journal of a node that was killed right after."""
    yield from gateway.live()
    gateway.confirms = False
    msg_id = yield from gateway.prepare(_done(gateway))
    journal_id = gateway.session.journal_id
    yield from gateway.restart()
    yield from gateway.prepare(gateway.reopen())
    if gateway.session.journal_id != journal_id:
        raise Broken("the same journal after a crash", "another journal_id")
    _is_reported(gateway.session, msg_id)
    _has_no_result(gateway.session, msg_id)


@check("7.3")
def runs_nothing_twice_over_crashes(gateway: KitGateway) -> Script[None]:
    """D1: a command that was run before a crash is skipped after it."""
    yield from gateway.live()
    gateway.confirms = False
    msg_id = yield from gateway.prepare(_done(gateway))
    yield from gateway.restart()
    yield from gateway.prepare(gateway.reopen())
    yield from _acked_at_most_once(gateway, msg_id)


@check("7.3")
def accounts_for_a_crash(gateway: KitGateway) -> Script[None]:
    """A command in the midst of which the node was killed is reported if it was begun, and is not listed as running."""
    for _ in range(KILLS):
        yield from gateway.live()
        gateway.confirms = False
        sent = yield from gateway.prepare(_under_way(gateway))
        yield from gateway.restart()
        yield from gateway.prepare(gateway.reopen())
        session = gateway.session
        if session.running:
            raise Broken("nothing running in a process that has just begun", "a command")
        for msg_id in sent:
            is_past = session.last_cmd is not None and msg_id <= session.last_cmd
            if is_past and msg_id not in session.outcomes:
                raise Broken("the outcome of a command at or below last_cmd, or interrupted: true", "no word of it")
            _has_no_result(session, msg_id)


def _under_way(gateway: KitGateway) -> Script[list[str]]:
    """Commands that are not acked: one that takes time, if the node has a tool that does, and that was begun: a later
    one was acked, and they begin in order (I5). And one that was sent a moment ago."""
    tool, arguments = gateway.any_call()
    sent = []
    with suppress(NotApplicable):
        sent.append((yield from gateway.command(gateway.tool("system.metrics", "snapshot"), {})))
        later = yield from gateway.command(tool, arguments)
        yield from gateway.ack_of(later)
    sent.append((yield from gateway.command(tool, arguments)))
    return [msg_id for msg_id in sent if not gateway.acks[msg_id]]


CHECKS = (
    reports_outcomes,
    runs_nothing_twice_over_sessions,
    forgets_what_is_confirmed,
    accounts_for_a_broken_connection,
    holds_acks_until_live,
    pages_a_long_resume,
    keeps_a_journal_for_each_log,
    outcomes_survive_a_crash,
    runs_nothing_twice_over_crashes,
    accounts_for_a_crash,
)
