"""Which subscriptions are taken: as a browser makes them, of a host that is trusted, with keys that can be sealed for.

Pure. That something else is in such an object is the browser's business.
"""

from collections.abc import Mapping
from typing import Any

from actors.push.subscription_rules import Subscriber
from gateway.push.aes128gcm import AUTH_BYTES, read_point
from gateway.push.endpoint_rules import PushHosts, Trust, read_endpoint
from gateway.push.vapid import base64url_bytes
from schemas.echo.errors import EchoError
from schemas.echo.push import SubscribeWish

_KEY_CHARS_MAX = 128  # of base64url; what is longer is no key


def read_subscription(
    wish: SubscribeWish, hosts: PushHosts, now_ms: int, member_id: str | None = None
) -> Subscriber | EchoError:
    made = wish.subscription
    text, keys, ends = made.get("endpoint"), made.get("keys"), made.get("expirationTime")
    endpoint = read_endpoint(text) if isinstance(text, str) else None
    if not isinstance(text, str) or endpoint is None or hosts.trust_in(endpoint.host) is Trust.NONE:
        return EchoError.INVALID_SUBSCRIPTION
    if ends is not None and (isinstance(ends, bool) or not isinstance(ends, (int, float))):
        return EchoError.INVALID_SUBSCRIPTION
    p256dh, auth = _key(keys, "p256dh"), _key(keys, "auth")
    if read_point(p256dh) is None or len(auth) != AUTH_BYTES:
        return EchoError.INVALID_SUBSCRIPTION
    return Subscriber(text, p256dh, auth, now_ms, wish.uid, wish.subs, member_id)


def _key(keys: Any, name: str) -> bytes:
    """Empty where there is none."""
    text = keys.get(name) if isinstance(keys, Mapping) else None
    return (base64url_bytes(text) or b"") if isinstance(text, str) and len(text) <= _KEY_CHARS_MAX else b""
