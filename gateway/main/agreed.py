"""What is decided once and true in every gateway of a fleet; of a gateway by itself, what its own folder and log say.

Each has one interface, whoever decides: whatever uses it does not know whether there are other gateways.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import trio

from actors.bus.directory import OwnersDirectory
from actors.console.operator_passkeys import OperatorPasskeys
from actors.log.store import LogStore
from actors.member.members import Members
from actors.member.settings import MemberSettings
from actors.node.moment import Moment
from actors.register.register import Register
from gateway.governance.policy.shared_source import SharedPolicy
from gateway.governance.policy.source import PolicySource
from gateway.identity.leaf_files import LeafFiles
from gateway.identity.node_lives import Leafs
from gateway.identity.revocations import FolderRevocations, SharedRevocations
from gateway.main.data_folder import DataFolder

MakeMembers: TypeAlias = Callable[
    [
        LogStore,
        MemberSettings,
        Callable[[], Moment],
        Callable[[int], bytes],
        Callable[[], str],
        Callable[[], str],
    ],
    Members,
]
MakePasskeys: TypeAlias = Callable[[LogStore, int, Callable[[], int]], OperatorPasskeys]


@dataclass(slots=True)
class Agreed:
    """`load` once, when the side has begun; it raises SettingsError."""

    register: Register
    leafs: Leafs
    policy: PolicySource | SharedPolicy
    revocations: FolderRevocations | SharedRevocations
    load: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    find_leaf: Callable[[str], Awaitable[object]] | None = None
    """As `actors.node.services.NodeServices` has it."""

    members: MakeMembers = Members
    passkeys: MakePasskeys = OperatorPasskeys

    @property
    def pushed(self) -> SharedPolicy | None:
        """The policy, if operators push it."""
        return self.policy if isinstance(self.policy, SharedPolicy) else None


def agreed_alone(folder: DataFolder, store: LogStore, directory: OwnersDirectory, policy: PolicySource) -> Agreed:
    return Agreed(Register(store, directory), LeafFiles(folder), policy, FolderRevocations(folder))
