"""RFC 8292: how a push service knows who sends. The key pair from the settings, and a signed token for each service.

A token is signed once for an origin and used for hours: signing takes longer than all else that a message needs.
"""

import base64
import binascii
import re
from collections import OrderedDict
from dataclasses import dataclass, field

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    derive_private_key,
    generate_private_key,
)

from gateway.main.settings import SettingsError
from gateway.push.aes128gcm import POINT_BYTES, point_of
from gateway.push.settings import PushSettings

SCALAR_BYTES = 32  # of a private key of P-256
TOKEN_S = 12 * 3600  # for which a token is good: half of what is allowed, as clocks differ
RENEW_S = 6 * 3600  # for which one is used
ORIGINS_MAX = 256  # that tokens are kept of; then the one used least recently is signed anew when it is needed
_VISIBLE = r"[!#-\[\]-~]"  # without quotes and backslashes
_SUBJECT = re.compile(rf"mailto:{_VISIBLE}+@{_VISIBLE}+|https://{_VISIBLE}+")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+={0,2}")


@dataclass(frozen=True, slots=True)
class VapidKeys:
    public_key: str
    subject: str
    private_key: EllipticCurvePrivateKey = field(repr=False)


def read_keys(settings: PushSettings) -> VapidKeys | None:
    """None: Web Push is not configured. Raises SettingsError, which never says what a key is."""
    public, private, subject = settings.vapid_public_key, settings.vapid_private_key, settings.vapid_subject
    given = {"vapid_public_key": public, "vapid_private_key": private, "vapid_subject": subject}
    missing = [name for name, value in given.items() if not value]
    if len(missing) == len(given):
        return None
    if missing or not public or not private or not subject:
        raise SettingsError(f"push.{missing[0]} is not set and others of it are: set all three, or none")
    if not is_subject(subject):
        raise SettingsError("push.vapid_subject is mailto: and an address, or an https: URL")
    key, point = _private_key(private), base64url_bytes(public)
    if key is None:
        raise SettingsError("push.vapid_private_key is not 32 bytes in base64url: `heliograph push keys` makes a pair")
    if point is None or len(point) != POINT_BYTES:
        raise SettingsError("push.vapid_public_key is not 65 bytes in base64url: `heliograph push keys` makes a pair")
    if point != point_of(key.public_key()):
        raise SettingsError("push.vapid_public_key and push.vapid_private_key are not a pair: set both from one run")
    return VapidKeys(base64url(point), subject, key)


def _private_key(text: str) -> EllipticCurvePrivateKey | None:
    scalar = base64url_bytes(text)
    if scalar is None or len(scalar) != SCALAR_BYTES:
        return None
    try:
        return derive_private_key(int.from_bytes(scalar), SECP256R1())
    except ValueError:  # no number of a key, such as 0
        return None


def is_subject(text: str) -> bool:
    """Whether push services take it as the sender's contact. In a file of settings it stands as it is."""
    return _SUBJECT.fullmatch(text) is not None


def new_pair() -> tuple[str, str]:
    """A public and a private key, as the settings have them."""
    key = generate_private_key(SECP256R1())
    scalar = key.private_numbers().private_value.to_bytes(SCALAR_BYTES)
    return base64url(point_of(key.public_key())), base64url(scalar)


class VapidTokens:
    """The `Authorization` of a request, by the origin that it goes to."""

    def __init__(self, keys: VapidKeys) -> None:
        self._keys = keys
        self._kept: OrderedDict[str, tuple[int, str]] = OrderedDict()  # until when it is used

    def __len__(self) -> int:
        return len(self._kept)

    def authorization(self, origin: str, now_s: int) -> str:
        renew_s, header = self._kept.get(origin, (0, ""))
        # A clock that was set back must not leave us with a token that is good for too long from there.
        if not now_s < renew_s <= now_s + RENEW_S:
            claims = {"aud": origin, "exp": now_s + TOKEN_S, "sub": self._keys.subject}
            token = jwt.encode(claims, self._keys.private_key, algorithm="ES256")
            header = f"vapid t={token}, k={self._keys.public_key}"
            self._kept[origin] = (now_s + RENEW_S, header)
        self._kept.move_to_end(origin)
        if len(self._kept) > ORIGINS_MAX:
            self._kept.popitem(last=False)
        return header


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def base64url_bytes(text: str) -> bytes | None:
    """With or without padding, and nothing else around; None: it is not base64url."""
    if not _BASE64URL.fullmatch(text):
        return None
    digits = text.rstrip("=")
    try:
        return base64.urlsafe_b64decode(digits + "=" * (-len(digits) % 4))
    except binascii.Error:
        return None
