"""What sending takes, from the settings: made once, before anything listens, so that a mistake stops the start."""

import os
from collections.abc import Callable

from actors.node.moment import Moment
from actors.push.counts import PushCounts
from actors.push.space_owners import SpaceOwners
from actors.push.subscriptions import Subscriptions
from actors.space.spaces import EchoSpaces
from gateway.push.endpoint_rules import PushHosts
from gateway.push.network import Internet, Network, tls_contexts
from gateway.push.notify_shares import NotifyShares
from gateway.push.push_service import PushService, PushTools
from gateway.push.sender import Sender
from gateway.push.settings import PushSettings
from gateway.push.vapid import VapidTokens, read_keys


def push_tools(
    settings: PushSettings, now: Callable[[], Moment], counts: PushCounts, network: Network | None = None
) -> PushTools | None:
    """None where no keys are set. `network` lets a test stand between. Raises SettingsError."""
    keys = read_keys(settings)
    if keys is None:
        return None
    contexts = tls_contexts(settings.ca_certificates)
    sender = Sender(
        settings,
        VapidTokens(keys),
        network or Internet(),
        contexts,
        os.urandom,
        lambda: now().wall_ms / 1000,
    )
    return PushTools(keys, PushHosts(settings.hosts), sender, NotifyShares(settings), counts)


def push_of_spaces(spaces: EchoSpaces, tools: PushTools, settings: PushSettings) -> PushService:
    subscriptions = Subscriptions(SpaceOwners(spaces), settings.subscriptions_per_space_max)
    return PushService("space_id", subscriptions, tools, lambda: spaces.now().wall_ms)
