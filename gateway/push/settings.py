"""The section `[push]`: the keys by which push services know this gateway, which of them it uses, and the limits."""

from dataclasses import dataclass, field

from gateway.push.endpoint_rules import VENDORS, is_entry


@dataclass(frozen=True, slots=True)
class PushSettings:
    # All three, or none; without them every route and tool of push is 503 `push_not_configured`. `heliograph push keys`
    # makes a pair. The private key is in no dump of the settings.
    vapid_public_key: str | None = None  # base64url, 65 bytes: what browsers subscribe with
    vapid_private_key: str | None = field(default=None, repr=False)  # base64url, 32 bytes
    vapid_subject: str | None = None  # mailto: or https:, where push services reach whoever runs this gateway
    # Hosts of push services, exact or `*.` and a domain; a subscription with another one is 400 `invalid_subscription`,
    # and one that was taken before is not sent to. One that is not a browser vendor's may be on a private address.
    hosts: tuple[str, ...] = VENDORS
    ca_certificates: str | None = None  # PEM; signers of such hosts' certificates, besides those of the system
    # ---- subscriptions; one more takes the place of the one that has failed for longest, or is 413 `space_full`
    subscriptions_per_space_max: int = 100
    subscriptions_per_project_max: int = 1_000
    # ---- notifications
    sends_max: int = 32  # of one notification at a time; the next one waits
    send_s_max: float = 5.0  # for one, from the look-up of the name to the answer; then it has failed
    notify_s_max: float = 25.0  # for all; then the rest have failed, and come first the next time
    message_ttl_s: int = 86_400  # for which a push service keeps a message for a browser that is away; then it is gone
    notifies_max: int = 16  # under way, of all spaces and projects; the next one is 503 `overloaded`
    notifies_per_owner_max: int = 2  # under way, of one space or project; the next one is 429 `rate_limited`
    # ---- rate of one address, as a burst and what is refilled; above it 429 `rate_limited`
    subscribes_burst: int = 10  # to projects, which ask for no credential
    subscribes_per_min: float = 10.0

    def __post_init__(self) -> None:
        if not all(map(is_entry, self.hosts)):
            raise ValueError(
                "push.hosts has hosts in lower case, without port, such as push.example.org or *.push.example.org"
            )
        limits = (
            self.subscriptions_per_space_max,
            self.subscriptions_per_project_max,
            self.sends_max,
            self.message_ttl_s,
            self.notifies_max,
            self.notifies_per_owner_max,
            self.subscribes_burst,
        )
        times = (self.send_s_max, self.notify_s_max, self.subscribes_per_min)
        if min(limits) < 1 or not all(time > 0 for time in times):  # also what is no number
            raise ValueError("limits of the section push are at least 1, and its seconds and rates above 0")
