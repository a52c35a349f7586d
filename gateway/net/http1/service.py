"""What all connections of one door share, however each of them is served."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from actors.supervision.in_flight import InFlight
from gateway.net.addresses import Addresses
from gateway.net.http1.app_call import App
from gateway.net.http1.heads import KnownHeads
from gateway.net.http1.settings import DoorSettings
from gateway.net.http1.turns import Turns
from gateway.net.pump import Pump
from gateway.net.refusal_form import FormOf, device_form_only
from schemas.ulids import Mint


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    app: App
    settings: DoorSettings
    body_bytes_max: Callable[[str], int]
    """By path: a request with a longer body is told 413."""
    addresses: Addresses
    turns: Turns
    calls: InFlight
    """A stop waits for these."""
    pump: Pump
    """Reads all connections in the clear, and watches for their disconnect."""
    takes_upgrade: Callable[[str], bool] = lambda _: False
    """By path: whether the application takes WebSocket upgrades itself, by adoption; else they are hypercorn's."""
    form_of: FormOf = device_form_only
    """By path: how a refusal is said there."""
    known_heads: KnownHeads = field(default_factory=KnownHeads)
    mint: Mint = field(default_factory=lambda: Mint(os.urandom))

    def correlation_id(self) -> str:
        return self.mint.mint(time.time_ns() // 1_000_000)
