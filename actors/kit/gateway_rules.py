"""The gateway's part of a session (device wire §2 to §7), as checks play it: scripts that a check delegates to. Pure.

It is the plainest gateway that a node can meet: one session at a time, heartbeats answered, manifests acknowledged,
commands sent and acks noted, confirmed unless a check wants them unconfirmed. What a check is about, it does itself.

    stage    the node has                         leads to
    -------  -----------------------------------  ------------------------------------
    away     no connection                        opening, when it dials and is let in
    opening  one, and its session is not live     live, by `resume_ok`
    live     an open session                      away, when either side ends it

Its clock is not the machine's (`KitClock`): a node that goes by its own clock where the wire means the gateway's is
found out.
"""

from collections.abc import Callable
from typing import TypeVar

from actors.kit.clock_rules import KitClock
from actors.kit.facts import AUTH_S, RESUME_S, Enrolled, KitSettings, Session, Stage, seen
from actors.kit.hearing_rules import Hearing
from actors.kit.steps import CloseWith, Dialled, Drop, Kill, Refuse, Script, Start, Upgrade
from actors.kit.verdicts import Blocked, Broken, NotApplicable
from schemas.closes import NodeClose
from schemas.errors import Code, envelope
from schemas.frames import SUBPROTOCOL, Announce, Auth, AuthOk, ErrorFrame, Resume, ResumeOk

OPENINGS_MAX = 3  # sessions in a row that could not be opened; then no more are waited for
NEVER_CAME = "the node never connected"
NODE_GONE = "the node did not come back; start the kit with the node's command behind --, and it starts it again"
NO_SESSION = f"{OPENINGS_MAX} sessions in a row could not be opened: mend that first"

T = TypeVar("T")


class KitGateway(Hearing):
    def __init__(
        self,
        node: Enrolled,
        settings: KitSettings,
        clock: KitClock,
        entropy: Callable[[int], bytes],
        *,
        can_start: bool,
    ) -> None:
        """`can_start`: whether `Kill` and `Start` can be asked for."""
        super().__init__(node, settings, clock, entropy)
        self.can_start = can_start
        self.token = node.token  # in the node's folder
        self.log_id = self.new_id()
        self.opening: object = None  # what `opening_checks` noted
        self.renewal: object = None  # what `renewal_checks` noted
        self.is_suspect = False  # a check has failed in this session: the next one begins with another
        self._epoch = 0
        self.has_dialled = False
        self._failed_openings = 0

    # ---- a session for a check ---------------------------------------------------------------------------------------

    def live(self) -> Script[None]:
        """A live session, whatever the check before left behind. Blocked if there is none to be had."""
        self.confirms = self.answers_heartbeats = True
        self.takes_requests = False
        if self.stage is Stage.LIVE and not self.is_suspect:
            yield from self.prepare(self.hear(self.now))  # it may have ended meanwhile
        if self.stage is Stage.LIVE and not self.is_suspect:
            return
        if self._failed_openings >= OPENINGS_MAX:
            raise Blocked(NO_SESSION)
        self._failed_openings += 1
        yield from self.prepare(self.reopen())
        self._failed_openings = 0

    def prepare(self, script: Script[T]) -> Script[T]:
        """What a check needs before it begins: a rule that is broken there is not the check's own."""
        try:
            value = yield from script
        except Broken as broken:
            raise Blocked(f"there was no session for it: {broken}") from None
        return value

    def reopen(self) -> Script[None]:
        """The next session, after this one is dropped if it is open."""
        yield from self.dial_again()
        yield from self.to_live()

    def to_live(self) -> Script[None]:
        """From a connection that was let in to a live session."""
        yield from self.to_resume()
        yield from self.go_live()

    def to_resume(self) -> Script[None]:
        """The same, but for `resume_ok`."""
        yield from self.admit()
        announce = yield from self.expect(Announce, RESUME_S)
        yield from self.acknowledge(announce)
        yield from self.hear_resume()

    def dial_again(self) -> Script[None]:
        """A new connection, let in, after this one is dropped if it is open."""
        if self.stage is not Stage.AWAY:
            yield from self.drop()
        self.is_suspect = False
        dialled = yield from self.dialled()
        yield from self.let_in(dialled)

    # ---- ends and beginnings -----------------------------------------------------------------------------------------

    def drop(self) -> Script[None]:
        yield from self.do(Drop())
        self.stage = Stage.AWAY

    def close(self, close: NodeClose) -> Script[None]:
        yield from self.do(CloseWith(close.value.code, close.value.reason))
        self.stage = Stage.AWAY

    def restart(self) -> Script[None]:
        """Kill the node's process as it is, and start it again."""
        if not self.can_start:
            raise NotApplicable("the kit cannot start the node: give it the node's command behind --")
        yield from self.do(Kill())
        self.stage = Stage.AWAY
        yield from self.do(Start())
        self.is_lost = self.has_left = False

    def dialled(self) -> Script[Dialled]:
        """The node's next connection, not let in yet."""
        if self.is_lost:
            if not self.has_dialled:
                raise Blocked(NEVER_CAME)
            if not self.can_start:
                raise NotApplicable(NODE_GONE) if self.has_left else Blocked(NODE_GONE)
            yield from self.restart()
        within_s = self.settings.patience_s if self.has_dialled else self.settings.first_dial_s
        heard = yield from self.hear(self.now + within_s)
        if not isinstance(heard, Dialled):
            self.is_lost = True
            raise Broken(f"the node to connect within {within_s:g} s", seen(heard))
        self.has_dialled = True
        return heard

    def let_in(self, dialled: Dialled) -> Script[None]:
        if SUBPROTOCOL not in dialled.subprotocols:
            yield from self.do(Refuse(400))
            raise Broken(f"the subprotocol {SUBPROTOCOL} to be offered", "an upgrade without it")
        yield from self.do(Upgrade())
        self.stage = Stage.OPENING
        self.session = Session()

    # ---- the opening, frame by frame ---------------------------------------------------------------------------------

    def admit(self) -> Script[None]:
        """`auth` and `auth_ok`."""
        auth = self.session.auth = yield from self.expect(Auth, AUTH_S, "of the upgrade")
        yield from self.identify(auth)
        yield from self.say_auth_ok()

    def identify(self, auth: Auth) -> Script[None]:
        if (auth.node_id, auth.token) != (self.node.identity.node_id, self.token):
            yield from self.close(NodeClose.FORBIDDEN)
            self.is_lost = True
            raise Broken("the node_id and the token of the folder in auth", "another node_id or token")

    def say_auth_ok(self) -> Script[None]:
        assert self.session.auth is not None
        self._epoch += 1
        self.session.auth_ok_at = self.now
        yield from self.send(
            AuthOk(
                msg_id=self.new_id(),
                in_reply_to=self.session.auth.msg_id,
                session_id=self.new_id(),
                epoch=self._epoch,
                log_id=self.log_id,
                now_ms=self.clock.ms,
                heartbeat_ms=self.settings.heartbeat_ms,
            )
        )

    def refuse_manifest(self, announce: Announce, code: Code, retry_after_ms: int | None = None) -> Script[None]:
        error = envelope(code, retry_after_ms=retry_after_ms)
        yield from self.send(ErrorFrame(msg_id=self.new_id(), in_reply_to=announce.msg_id, error=error))

    def hear_resume(self) -> Script[None]:
        """All its frames, in time; what they say is filed."""
        assert self.session.auth_ok_at is not None
        while not self.session.resume or self.session.resume[-1].more:
            within_s = max(0.0, self.session.auth_ok_at + RESUME_S - self.now)
            heard = yield from self.hear(self.now + within_s, Resume)
            if not isinstance(heard, Resume):
                raise Broken(f"the whole resume within {RESUME_S:g} s of auth_ok", seen(heard))
            self.session.resume.append(heard)
        for msg_id in self.session.outcomes:
            self._settle(msg_id)

    def go_live(self) -> Script[None]:
        """`resume_ok`. What is not reported and does not run is settled as a gateway does, without sending it again."""
        for msg_id in self._commands.keys() - self.session.running:
            self._settle(msg_id)
        yield from self.send(
            ResumeOk(
                msg_id=self.new_id(),
                in_reply_to=self.session.resume[-1].msg_id,
                epoch=self._epoch,
                confirmed_through=self.confirmed_through,
                replayed=0,
                expired=0,
            )
        )
        self.stage = Stage.LIVE

    def start_log(self) -> None:
        """From the next session on this is a gateway with another command log."""
        self.log_id = self.new_id()
        self._commands.clear()
