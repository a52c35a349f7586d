"""The envelope of encrypted rooms: a JWE compact string (RFC 7516), `dir` with A256GCM.

    BASE64URL({"alg":"dir","enc":"A256GCM","kid":…}) . (empty) . iv . ciphertext . tag

The `kid` is authenticated with the header and names the place that the text was sealed for: `room#kv/<key>` or
`room#ws`, under the room's key; or `x:…`, under a key that the clients hold themselves. A reader compares it with the
place where it found the envelope. The server judges the shape alone (`read_envelope`); it seals for clients without
cryptography, and never opens: `unseal` is for clients.

The room's key follows from the token, so whoever has the token has the key, the server too during a request. It
protects storage and backups, not against whoever runs the gateway.
"""

import base64
import re
from dataclasses import dataclass

import jiter
import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from schemas.echo.errors import EchoError
from schemas.echo.names import is_key

KEY_BYTES = 32
IV_BYTES = 12  # random, by the caller, for every seal
KID_CHARS_MAX = 256  # a longer one is no envelope
WS_KID = "room#ws"
_KV_KID = "room#kv/"
_OWN_KID = "x:"
_INFO = b"echo room key v1"
_HEADER_CHARS_MAX = 2048  # a kid may be escaped; a longer header is not even parsed
_TAG_BYTES = 16
_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.\.([A-Za-z0-9_-]{16})\.([A-Za-z0-9_-]*)\.([A-Za-z0-9_-]{22})")


@dataclass(frozen=True, slots=True)
class Envelope:
    """What its shape says. Whether it opens, only a holder of its key can say."""

    kid: str
    header: str  # as it is authenticated
    iv: bytes
    ciphertext: bytes  # with the tag at its end

    @property
    def is_clients_own(self) -> bool:
        """Sealed under a key that this service cannot derive."""
        return self.kid.startswith(_OWN_KID)


def sealed_fault(text: str) -> EchoError | None:
    """What an encrypted room has against this text. Five parts are an attempt at an envelope, all else is plain."""
    if read_envelope(text) is not None:
        return None
    return EchoError.INVALID_ENCRYPTION if text.count(".") == 4 else EchoError.ENCRYPTION_REQUIRED


def payload_fault(data: bytes | None, binary: bytes | None) -> EchoError | None:
    """What an encrypted room has against a payload, as the JSON text of `data` or as `bin`."""
    if binary is not None:
        return sealed_fault(binary.decode("ascii", "replace"))
    text = jiter.from_json(data or b"null")
    return sealed_fault(text) if isinstance(text, str) else EchoError.ENCRYPTION_REQUIRED


def kv_kid(key: str) -> str:
    return _KV_KID + key


def is_kid(text: str) -> bool:
    if len(text) > KID_CHARS_MAX:
        return False
    if text.startswith(_KV_KID):
        return is_key(text.removeprefix(_KV_KID))
    return text == WS_KID or (text.startswith(_OWN_KID) and len(text) > len(_OWN_KID))


def read_envelope(text: str) -> Envelope | None:
    """None: it is not of the shape."""
    parts = _COMPACT.fullmatch(text)
    if parts is None or len(parts[1]) > _HEADER_CHARS_MAX:
        return None
    header, iv, ciphertext, tag = (_from_base64url(part) for part in parts.groups())
    if header is None or iv is None or ciphertext is None or tag is None:
        return None
    try:
        members = jiter.from_json(header, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return None
    if not isinstance(members, dict) or members.keys() != {"alg", "enc", "kid"}:
        return None
    kid = members["kid"]
    if members["alg"] != "dir" or members["enc"] != "A256GCM" or not isinstance(kid, str) or not is_kid(kid):
        return None
    return Envelope(kid, parts[1], iv, ciphertext + tag)


def room_key(token: str, space_id: str) -> bytes:
    """HKDF-SHA256 of the room's token. Never stored."""
    return HKDF(SHA256(), KEY_BYTES, salt=space_id.encode("ascii"), info=_INFO).derive(token.encode("ascii"))


def shown_key(key: bytes) -> str:
    """As `encryption_key` shows it."""
    return _base64url(key)


def seal(key: bytes, kid: str, plaintext: bytes, iv: bytes) -> str:
    """The envelope of `plaintext` for the place that `kid` names. `iv` is random and never used again."""
    if len(iv) != IV_BYTES or not is_kid(kid):
        raise ValueError("an envelope has an IV of 96 random bits and a kid of the documented form")
    header = _base64url(msgspec.json.encode({"alg": "dir", "enc": "A256GCM", "kid": kid}))
    sealed = AESGCM(key).encrypt(iv, plaintext, header.encode())
    return f"{header}..{_base64url(iv)}.{_base64url(sealed[:-_TAG_BYTES])}.{_base64url(sealed[-_TAG_BYTES:])}"


def unseal(key: bytes, kid: str, envelope: Envelope) -> bytes | None:
    """What was sealed for this place under this key; None: it was not, or it has been altered since."""
    if envelope.kid != kid:
        return None
    try:
        return AESGCM(key).decrypt(envelope.iv, envelope.ciphertext, envelope.header.encode())
    except InvalidTag:
        return None


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _from_base64url(text: str) -> bytes | None:
    """Of the one text that encodes it: no padding, no bits left over."""
    if len(text) % 4 == 1:
        return None
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return data if len(text) % 4 == 0 or _base64url(data[-(len(data) % 3) :]) == text[len(text) // 4 * 4 :] else None
