"""The port to the nodes whose sessions are in this process: `actors.node.fleet` has them."""

from typing import Protocol

from actors.bus.bus import Bus


class LocalNodes(Bus, Protocol):
    """All others are E_NODE_OFFLINE here."""

    def live_epoch(self, node_id: str) -> int | None:
        """Of the node's live session here."""
