"""What several gateways agree on, by a bucket and a log that they share.

What a gateway has revoked and enrolled when it was by itself is carried over from its folder at each start, as long as
the others do not know it.
"""

from collections.abc import Callable
from typing import Any

from actors.bus.directory import OwnersDirectory
from actors.console.operator_passkeys import STREAM as PASSKEYS
from actors.console.shared_passkeys import SharedPasskeys
from actors.engine.facts import Facts
from actors.engine.feeds import Feeds
from actors.engine.settings import PresenceSettings
from actors.log.store import LogStore
from actors.member.members import ROLL
from actors.member.shared_members import SharedMembers
from actors.node.moment import Moment
from actors.register.register import STREAM as REGISTER
from actors.register.shared_register import SharedRegister
from gateway.governance.policy.shared_source import SharedPolicy
from gateway.governance.policy.source import PolicySource
from gateway.identity.leaf_files import LeafFiles
from gateway.identity.revocations import SharedRevocations
from gateway.identity.shared_leafs import SharedLeafs
from gateway.main.agreed import Agreed
from gateway.main.data_folder import DataFolder
from gateway.main.settings import SettingsError


def agreed_among_several(
    folder: DataFolder,
    store: LogStore,
    directory: OwnersDirectory,
    policy: PolicySource,
    facts: Facts,
    feeds: Feeds,
    settings: PresenceSettings,
    now: Callable[[], Moment],
) -> Agreed:
    """Before `facts` and `feeds` run. `policy` is what a file says, if one is named."""
    register = SharedRegister(store, directory, settings.record_tries_max, feeds.grew)
    feeds.follow(REGISTER, register.read_on)
    leafs = SharedLeafs(facts, folder.certificates, LeafFiles(folder))
    revocations = SharedRevocations(facts, folder.verifier, lambda: now().wall_ms)
    shared = SharedPolicy(facts)

    async def load() -> None:
        await facts.load()
        await shared.load(policy.path, _text_of(policy))
        if not await leafs.carry_over() or not await revocations.carry_over(folder.revoked()):
            raise SettingsError(
                "the engine does not take what the data folder has: see that NATS has room, and try again"
            )

    def members(*given: Any) -> SharedMembers:
        made = SharedMembers(*given, tries_max=settings.record_tries_max, grew=feeds.grew)
        feeds.follow(ROLL, made.read_on)
        return made

    def passkeys(log: LogStore, passkeys_max: int, wall_ms: Callable[[], int]) -> SharedPasskeys:
        made = SharedPasskeys(log, passkeys_max, wall_ms, settings.record_tries_max, feeds.grew)
        made.on_removed = revocations.ended
        feeds.follow(PASSKEYS, made.read_on)
        return made

    return Agreed(register, leafs, shared, revocations, load, leafs.find, members, passkeys)


def _text_of(policy: PolicySource) -> str | None:
    """Raises SettingsError."""
    try:
        return None if policy.path is None else policy.path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"governance.policy: {policy.path}: it cannot be read: try again") from None
