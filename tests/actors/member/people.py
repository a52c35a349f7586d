"""Members on a log in memory, with a clock that the test sets."""

import itertools
from dataclasses import dataclass, field

from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import LogStore
from actors.member.given import Invited, Issued
from actors.member.member_events import Passkey
from actors.member.members import Members
from actors.member.settings import MemberSettings
from actors.node.moment import Moment
from schemas.ulids import Mint

READ, CHANGE = "tools:call:read_only", "tools:call:reversible"
START_MS = 1_790_000_000_000
DAY_S = 86_400


@dataclass
class Town:
    settings: MemberSettings = field(default_factory=MemberSettings)
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    now_ms: int = START_MS
    set_by_ms: int = 0  # how far the wall clock was set, while all went on
    ended: list[str] = field(default_factory=list)
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.ids = Mint(lambda count: next(self.numbers).to_bytes(count))

    def now(self) -> Moment:
        return Moment((self.now_ms - START_MS) / 1000, self.now_ms + self.set_by_ms)

    async def members(self, store: LogStore | None = None) -> Members:
        """As after a start."""
        members = Members(
            store or MemoryStore(self.disk),
            self.settings,
            self.now,
            lambda count: next(self.numbers).to_bytes(count),
            lambda: self.ids.mint(self.now_ms),
            lambda: f"agent_00000000-0000-4000-8000-{next(self.numbers):012x}",
        )
        members.on_grant_end.append(self.ended.append)
        await members.load()
        return members

    def passes(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)


def passkey(name: bytes = b"p") -> Passkey:
    return Passkey(name, b"key of " + name, 0)


async def invited(members: Members, tenant: str = "acme", *scopes: str) -> Invited:
    made = await members.invite(tenant, frozenset(scopes or (READ, CHANGE)), "Ada", "ops")
    assert isinstance(made, Invited), made
    return made


async def joined(members: Members, name: bytes = b"p", tenant: str = "acme") -> str:
    """The id of a member who has this passkey."""
    made = await invited(members, tenant)
    await members.join(made.invite, passkey(name))
    return made.member.member_id


async def issued(members: Members, member_id: str, name: bytes = b"p") -> Issued:
    given = await members.issue(member_id, name, frozenset({READ}), "inspector", "/mcp")
    assert isinstance(given, Issued), given
    return given


async def refreshed(members: Members, token: str) -> Issued:
    given = await members.refresh(token, None)
    assert isinstance(given, Issued), given
    return given
