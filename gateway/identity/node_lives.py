"""A node's life from enrolment to oblivion: identities made, kept and ended, by the rules of the register.

What is durable comes first: certificates are on the disk before the register says that there is a node, and the
register says that a node is revoked or an identity over before anything of it ends. What a crash leaves half done (a
certificate whose key nobody got, a node that is forgotten and not yet erased) is harmless, or finished at the next
start. Who may do this is decided elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from actors.bus.directory import OwnersDirectory
from actors.bus.renewal import NotRenewed, Renewed
from actors.device.identity import DeviceIdentity
from actors.node.moment import Moment
from actors.register import register_rules
from actors.register.events import Event, IdentityRetired, Member
from actors.register.register import Register
from actors.register.register_rules import Act, Enrolment, NewIdentity, Refusal, Trouble, is_over, is_overdue
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.identity.leaf_files import LeafFiles
from gateway.main.data_folder import DataFolder, makes_tokens
from schemas.certificates import Leaf
from schemas.closes import NodeClose
from schemas.manifest import NodeIdentity

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_NOT_RENEWED = {
    Trouble.REVOKED: NotRenewed.NODE_REVOKED,
    Trouble.RENEWED_OTHERWISE: NotRenewed.SECOND_KEY,
    Trouble.UNREADABLE: NotRenewed.NOT_RECORDED,
    Trouble.NOT_WRITTEN: NotRenewed.NOT_RECORDED,
}
LOOK_EVERY_S = 60.0  # for identities whose time is up, and for what is not erased yet; how much later they may end


class Sessions(Protocol):
    """Those of nodes, and what they left in the log: `actors.node.fleet.Fleet`."""

    def end(self, node_id: str, close: NodeClose, is_over: Callable[[str, int], bool] = ...) -> None: ...

    async def forget(self, node_id: str) -> bool: ...


class Leafs(Protocol):
    """Nodes' certificates: `LeafFiles`, or `SharedLeafs` of several processes."""

    async def keep(self, leafs: Sequence[Leaf]) -> None: ...

    def learn(self, leafs: Sequence[Leaf]) -> None: ...

    async def find(self, kid: str) -> Leaf | None: ...

    async def drop(self, leafs: Sequence[Leaf]) -> None: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """A node to be enrolled, as an operator asks for it. What is None is left as it is."""

    identity: NodeIdentity
    name: str | None = None
    tags: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """An identity for a node. It is shown once: the key is kept nowhere."""

    member: Member
    identity: DeviceIdentity
    jti: str | None  # of its token; None: that comes from elsewhere


class NodeLives:
    def __init__(
        self,
        folder: DataFolder,
        register: Register,
        directory: OwnersDirectory,
        sessions: Sessions,
        new_id: Callable[[], str],
        now: Callable[[], Moment],
        leafs: Leafs | None = None,
    ) -> None:
        """`leafs`: where certificates are kept; None: in the folder."""
        self.register = register
        self._folder = folder
        self._directory = directory
        self._sessions = sessions
        self._new_id = new_id
        self._now = now
        self._leafs: Leafs = LeafFiles(folder) if leafs is None else leafs
        self._used: dict[str, str] = {}  # node → the certificate it was renewed to: logged in with, not yet recorded
        self._to_end: dict[str, None] = {}  # nodes of which another process has retired identities
        self._news = trio.Event()

    # ---- its own life -----------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Once, at start, when register and directory are loaded: what is over does not count."""
        for member in list(self.register):
            await self._drop_what_is_over(member)
        await self._finish()

    def start(self, supervisor: Supervisor) -> None:
        supervisor.start(ChildSpec(name="node_lives", run=self._run, kind=Kind.PERMANENT, stage=Stage.CORE))

    async def _run(self) -> None:
        while True:
            with trio.move_on_after(LOOK_EVERY_S):
                await self._news.wait()
            self._news = trio.Event()
            await self._finish()

    async def _finish(self) -> None:
        """End old identities, erase what is forgotten. What the log does not take now is tried at the next look."""
        for node_id, kid in list(self._used.items()):
            used = self.register.find(node_id)
            is_moot = used is None or used.renewal is None or used.renewal.kid != kid
            if (is_moot or (used is not None and await self._retire(used, kid))) and self._used.get(node_id) == kid:
                del self._used[node_id]
        for node_id in list(self._to_end):
            del self._to_end[node_id]
            ended = self.register.find(node_id)
            if ended is not None:
                await self._end_what_is_over(ended.identity)
        now_ms = self._now().wall_ms
        for member in list(self.register):
            if member.renewal is not None and is_overdue(member, now_ms):
                await self._retire(member, member.renewal.kid)
            if member.is_forgotten and not member.is_erased:
                await self._erase(member.identity)
            elif member.is_revoked and self._directory.find(member.node_id) is not None:
                # It was being announced, or the disk was full, when it was revoked.
                await self._directory.forget(member.node_id, now_ms)

    def logged_in(self, node_id: str, token_id: str) -> None:
        """A node has come with this token. If it is that of a new identity, the old one is over."""
        member = self.register.find(node_id)
        if member is not None and member.renewal is not None and member.renewal.jti == token_id:
            self._used[node_id] = member.renewal.kid
            self._news.set()

    def others_did(self, before: Member | None, now: Member) -> None:
        """Another process has recorded this of a node: what that ended ends here too."""
        if now.is_revoked:
            if before is None or not before.is_revoked:
                self._sessions.end(now.node_id, NodeClose.FORBIDDEN)
            return
        old = None if before is None else before.current
        if now.current is not None and (old is None or not set(old.kids) <= set(now.current.kids)):
            self._to_end[now.node_id] = None
            self._news.set()

    # ---- what operators do ------------------------------------------------------------------------------------------

    def resolve(self, node: str, tenant: str | None) -> NodeIdentity | Refusal:
        """The node that a person means by an id or a name."""
        return register_rules.resolve(self.register.roll, node, tenant, self._tenant_of)

    async def enroll(self, wanted: Sequence[Wanted], by: str) -> list[Made] | Refusal:
        """All of them or none."""
        act = self._act(by)
        plain = [Enrolment(one.identity, "", None, one.name, one.tags) for one in wanted]
        rehearsed = register_rules.enroll(self.register.roll, plain, self._folder.certificates.tenants_of, act)
        if isinstance(rehearsed, Refusal):  # before any key is made for nothing
            return rehearsed
        made, jtis = [], []
        for one in wanted:
            jti, node = self._new_id(), one.identity
            made.append(self._folder.make_identity(node.node_id, node.tenant, jti, act.at_ms))
            jtis.append(jti if made[-1].token else None)
            await trio.lowlevel.checkpoint()
        enrolments = [
            Enrolment(one.identity, identity.leaf.kid, jti, one.name, one.tags)
            for one, identity, jti in zip(wanted, made, jtis, strict=True)
        ]
        tenants_of = self._folder.certificates.tenants_of
        done = await self._record_with(
            lambda roll: register_rules.enroll(roll, enrolments, tenants_of, act),
            [identity.leaf for identity in made],
            act,
        )
        if isinstance(done, Refusal):
            return done
        return [Made(self._member(one.identity), i, jti) for one, i, jti in zip(wanted, made, jtis, strict=True)]

    async def rename(self, node: NodeIdentity, name: str | None, by: str) -> Member | Refusal:
        act = self._act(by)
        return await self._label(node, lambda roll: register_rules.rename(roll, node, name, act), act)

    async def tag(self, node: NodeIdentity, put: Mapping[str, str], remove: Sequence[str], by: str) -> Member | Refusal:
        act = self._act(by)
        return await self._label(node, lambda roll: register_rules.tag(roll, node, put, remove, act), act)

    async def revoke(self, node: NodeIdentity, by: str) -> Refusal | None:
        """Token, certificate and session end, for good."""
        act = self._act(by)
        done = await self.register.record(lambda roll: register_rules.revoke(roll, node, act), act.at_ms)
        if isinstance(done, Refusal):
            return done
        self._sessions.end(node.node_id, NodeClose.FORBIDDEN)
        await self._directory.forget(node.node_id, act.at_ms)  # it has no tools, and will never have any again
        return None

    async def forget(self, node: NodeIdentity, by: str) -> bool | Refusal:
        """Of a revoked node: all that is kept of it goes, but that its id is revoked. Whether nothing is left by now:
        if not (its connection is still being closed, or the disk is full), that is seen to."""
        act = self._act(by)
        done = await self.register.record(lambda roll: register_rules.forget(roll, node, act), act.at_ms)
        if isinstance(done, Refusal):
            return done
        return await self._erase(node)

    async def renew_for(self, node: NodeIdentity, by: str) -> Made | Refusal:
        """A new identity by an operator's wish; the old one is good until it is used, for a day at most."""
        act, jti = self._act(by), self._new_id()
        identity = self._folder.make_identity(node.node_id, node.tenant, jti, act.at_ms)
        made_jti = jti if identity.token else None
        new = NewIdentity(identity.leaf.kid, made_jti, identity.leaf.public_key.hex())
        done = await self._record_with(
            lambda roll: register_rules.renew(roll, node, new, None, None, act), [identity.leaf], act
        )
        return done if isinstance(done, Refusal) else Made(self._member(node), identity, made_jti)

    # ---- what nodes do ----------------------------------------------------------------------------------------------

    async def renew(self, node: NodeIdentity, token_id: str, kid: str, public_key: bytes) -> Renewed | NotRenewed:
        """Implements `actors.bus.renewal.RenewNode`: once for each identity."""
        renewed = await self._renew(node, token_id, kid, public_key)
        return _NOT_RENEWED[renewed.trouble] if isinstance(renewed, Refusal) else renewed

    async def _renew(self, node: NodeIdentity, token_id: str, kid: str, public_key: bytes) -> Renewed | Refusal:
        act, jti = self._act(node.node_id), self._new_id()
        known = register_rules.renewed_already(self.register.roll, node, kid, public_key.hex())
        if isinstance(known, Refusal):
            return known
        if not known:
            leaf = self._folder.issue(
                node.node_id, node.tenant, Ed25519PublicKey.from_public_bytes(public_key), act.at_ms
            )
            new = NewIdentity(leaf.kid, jti if makes_tokens(self._folder.path) else None, public_key.hex())
            done = await self._record_with(
                lambda roll: register_rules.renew(roll, node, new, kid, token_id, act), [leaf], act
            )
            if isinstance(done, Refusal):
                return done
            if any(isinstance(event, IdentityRetired) for event in done):
                await self._end_what_is_over(node)
        renewal = self._member(node).renewal
        leaf_now = None if renewal is None else await self._leafs.find(renewal.kid)
        if renewal is None or leaf_now is None or renewal.public_key != public_key.hex():
            return Refusal(Trouble.RENEWED_OTHERWISE)  # somebody else was quicker
        token = None
        if renewal.jti is not None:
            token = self._folder.node_token(node.node_id, node.tenant, renewal.jti, renewal.at_ms)
        return Renewed(token, leaf_now.der)

    # ---- how it is done ---------------------------------------------------------------------------------------------

    def _act(self, by: str) -> Act:
        return Act(by, self._now().wall_ms)

    def _member(self, node: NodeIdentity) -> Member:
        return self.register.find(node.node_id) or Member(node.node_id, node.tenant)

    def _tenant_of(self, node_id: str) -> str | None:
        """Of a node that the register does not know: by its certificates, or by what it announced."""
        record = self._directory.find(node_id)
        if record is not None:
            return record.tenant
        return next(iter(sorted(self._folder.certificates.tenants_of(node_id))), None)

    async def _label(self, node: NodeIdentity, decide: register_rules.Decide, act: Act) -> Member | Refusal:
        done = await self.register.record(decide, act.at_ms)
        return done if isinstance(done, Refusal) else self._member(node)

    async def _record_with(
        self, decide: register_rules.Decide, leafs: Sequence[Leaf], act: Act
    ) -> tuple[Event, ...] | Refusal:
        """Record what needs these certificates, which are on the disk before that. They go if it comes to nothing."""
        done: tuple[Event, ...] | Refusal = Refusal(Trouble.NOT_WRITTEN)
        try:
            await self._leafs.keep(leafs)
            done = await self.register.record(decide, act.at_ms)
        except OSError as error:
            log.error("certificate_not_written", errno=error.errno)
        except trio.Cancelled:  # before it was written: once it is being written, it is not cancelled
            await self._leafs.drop(leafs)
            raise
        if isinstance(done, Refusal) or not done:
            await self._leafs.drop(leafs)
        else:
            self._leafs.learn(leafs)
        return done

    async def _retire(self, member: Member, kid: str) -> bool:
        """The identity `kid` is the only one from now on; whether that is recorded."""
        act, node = self._act(member.node_id), member.identity
        done = await self.register.record(lambda roll: register_rules.retire(roll, node, kid, act), act.at_ms)
        if isinstance(done, Refusal):
            return False
        if done:
            await self._end_what_is_over(node)
        return True

    async def _end_what_is_over(self, node: NodeIdentity) -> None:
        """Whoever is connected by an identity that is over has to come back with another."""
        member = self._member(node)
        await self._drop_what_is_over(member)
        if member.current is not None and member.current.jtis:

            def is_over(jti: str, issued_at_ms: int) -> bool:
                return self.register.refuses_login(node.node_id, jti, issued_at_ms, self._now().wall_ms) is not None

            self._sessions.end(node.node_id, NodeClose.UNAUTHORIZED, is_over)
        else:  # its token is as good as before; it has to come with its new certificate
            self._sessions.end(node.node_id, NodeClose.SERVICE_RESTART)

    async def _drop_what_is_over(self, member: Member) -> None:
        if member.current is None or member.is_revoked:
            return
        leafs = self._folder.certificates.leafs_of(member.node_id)
        over = [leaf for leaf in leafs if is_over(member, leaf.kid, leaf.not_before_ms)]
        if over:
            await self._leafs.drop(over)

    async def _erase(self, node: NodeIdentity) -> bool:
        """Whether nothing of it is left."""
        act = self._act(node.node_id)
        if not await self._sessions.forget(node.node_id) or not await self._directory.forget(node.node_id, act.at_ms):
            return False
        if not await self.register.forget_history(node.node_id):
            return False
        await self._leafs.drop(self._folder.certificates.leafs_of(node.node_id))
        done = await self.register.record(lambda roll: register_rules.erased(roll, node, act), act.at_ms)
        return not isinstance(done, Refusal)
