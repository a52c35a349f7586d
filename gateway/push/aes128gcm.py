"""RFC 8291: a message that only the browser of a subscription can open, as one record of `aes128gcm` (RFC 8188). Pure.

The key pair and the salt are of one message alone; whoever seals brings them. What the message says is not known here.
"""

import hmac

from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDH,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SALT_BYTES = 16
AUTH_BYTES = 16
POINT_BYTES = 65  # of an uncompressed point of P-256
_RECORD_BYTES = 4_096
_TAG_BYTES = 16
# A push service takes 4,096 bytes in all: a header, the message with the end of its padding, and the tag.
MESSAGE_BYTES_MAX = _RECORD_BYTES - (SALT_BYTES + 4 + 1 + POINT_BYTES) - 1 - _TAG_BYTES
_LAST_RECORD = b"\x02"


def read_point(point: bytes) -> EllipticCurvePublicKey | None:
    """A public key as browsers write it: 65 bytes, uncompressed. None: it is none, or not on the curve."""
    if len(point) != POINT_BYTES or point[0] != 4:
        return None
    try:
        return EllipticCurvePublicKey.from_encoded_point(SECP256R1(), point)
    except ValueError:
        return None


def point_of(key: EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def seal(message: bytes, p256dh: bytes, auth: bytes, own: EllipticCurvePrivateKey, salt: bytes) -> bytes:
    """The body for the push service. `p256dh` and `auth` are of a subscription that was checked."""
    if len(message) > MESSAGE_BYTES_MAX or len(auth) != AUTH_BYTES or len(salt) != SALT_BYTES:
        raise ValueError("too long a message, or keys that nobody has checked")
    browser = read_point(p256dh)
    if browser is None:
        raise ValueError("no point of P-256: nobody has checked it")
    point = point_of(own.public_key())
    of_both = _hmac(auth, own.exchange(ECDH(), browser))
    secret = _hmac(of_both, b"WebPush: info\0" + p256dh + point + b"\1")
    pseudorandom = _hmac(salt, secret)
    key = _hmac(pseudorandom, b"Content-Encoding: aes128gcm\0\1")[:16]
    nonce = _hmac(pseudorandom, b"Content-Encoding: nonce\0\1")[:12]
    header = salt + _RECORD_BYTES.to_bytes(4) + bytes([POINT_BYTES]) + point
    return header + AESGCM(key).encrypt(nonce, message + _LAST_RECORD, None)


def _hmac(key: bytes, data: bytes) -> bytes:
    """Both halves of HKDF: each output here has one block."""
    return hmac.digest(key, data, "sha256")
