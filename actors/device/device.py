"""What an agent is given to be, and the standard device: echo and metrics, with the identity it was enrolled with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from actors.device.handlers import CAPABILITIES, Handler, standard_handlers
from actors.device.identity import DeviceIdentity, manifest_signer
from actors.device.manifest_life import SignedManifest
from actors.device.sampler import Sampler
from schemas.manifest import LIFE_MS_MAX
from schemas.projection import Tool, project


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a session is opened with."""

    token: str
    sign: Callable[[int], SignedManifest]


@dataclass(frozen=True, slots=True)
class Device:
    """An identity as far as the wire sees it, and what it can do.

    `tools` and `handlers` have the same names. `sign(issued_at_ms)` makes the manifest that announces them.
    """

    node_id: str
    token: str
    tools: Mapping[str, Tool]
    handlers: Mapping[str, Handler]
    sign: Callable[[int], SignedManifest]

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.token, self.sign)

    def __post_init__(self) -> None:
        if self.tools.keys() != self.handlers.keys():
            raise ValueError("every tool needs a handler, and every handler a tool")


def standard_device(
    identity: DeviceIdentity,
    fingerprint: Mapping[str, Any],
    sampler: Sampler,
    wall_ms: Callable[[], int],
    *,
    life_ms: int = LIFE_MS_MAX,
) -> Device:
    """`fingerprint` from `identity.this_machine()`, or made up for a device that does not exist."""
    tools = project({"node_id": identity.node_id, "capabilities": CAPABILITIES})
    return Device(
        node_id=identity.node_id,
        token=identity.token,
        tools={tool.name: tool for tool in tools},
        handlers=standard_handlers(identity.node_id, sampler, wall_ms),
        sign=manifest_signer(identity, fingerprint, CAPABILITIES, life_ms=life_ms),
    )
