"""What all connections of one door share, however each of them is served."""

import os
import time
from dataclasses import dataclass, field

from actors.supervision.in_flight import InFlight
from gateway.net.addresses import Addresses
from gateway.net.applications import Applications
from gateway.net.http1.handshakes import Handshakes
from gateway.net.http1.heads import KnownHeads
from gateway.net.http1.settings import DoorSettings
from gateway.net.http1.turns import Turns
from gateway.net.pump import Pump
from schemas.ulids import Mint


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    applications: Applications
    settings: DoorSettings
    addresses: Addresses
    turns: Turns
    calls: InFlight
    """A stop waits for these."""
    pump: Pump
    """Reads all connections but HTTP/2's, and watches for their disconnect."""
    handshakes: Handshakes
    """Of TLS, under way."""
    known_heads: KnownHeads = field(default_factory=KnownHeads)
    mint: Mint = field(default_factory=lambda: Mint(os.urandom))

    def correlation_id(self) -> str:
        return self.mint.mint(time.time_ns() // 1_000_000)
