"""The port behind `POST /devices/renew`: who decides about a node's next identity, and keeps it.

Whoever asks has proved the request before: the token is good and this node's, the signature is that of a certificate
of this node which is valid now. What remains is for the register of nodes: whether the node is revoked, whether the
certificate is the one in force, and whether it was renewed already.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from schemas.manifest import NodeIdentity


@dataclass(frozen=True, slots=True)
class Renewed:
    """Durable: it counts after a restart too."""

    token: str | None  # None: tokens are made elsewhere
    certificate: bytes  # the new leaf, DER


class NotRenewed(StrEnum):
    NODE_REVOKED = "node_revoked"
    SECOND_KEY = "second_key"  # this identity was renewed already, with another key
    NOT_RECORDED = "not_recorded"  # the log refused: nothing has changed


class RenewNode(Protocol):
    async def __call__(self, node: NodeIdentity, token_id: str, kid: str, public_key: bytes) -> Renewed | NotRenewed:
        """A certificate for the new key, and a token with it. The same key again is answered as the first time.

        A cancelled caller only stops waiting: what was decided stands, and the node asks again.
        """
