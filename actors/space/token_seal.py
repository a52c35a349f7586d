"""How tokens of rooms are kept that are shown again: those of projects, and of spaces with IAM. Pure.

XChaCha20-Poly1305 under a key of its own, made of the gateway's `echo.key`, which has other uses too. The space's name
is sealed in, so a token opens for its own space alone. What is sealed lies in the space's stream, under the space's key
as well: it is gone with the space, and useless without `echo.key`.
"""

import os

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
)
from nacl.exceptions import CryptoError

_INFO = b"echo token seal v1"
_KEY_BYTES = 32
_NONCE_BYTES: int = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES


class TokenSeal:
    __slots__ = ("_key",)

    def __init__(self, echo_key: bytes) -> None:
        if len(echo_key) != _KEY_BYTES:
            raise ValueError(f"echo.key has {_KEY_BYTES} bytes")
        self._key = HKDF(SHA256(), _KEY_BYTES, salt=None, info=_INFO).derive(echo_key)

    def seal(self, space_id: str, token: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = crypto_aead_xchacha20poly1305_ietf_encrypt(token.encode(), space_id.encode(), nonce, self._key)
        return nonce + sealed

    def open(self, space_id: str, sealed: bytes) -> str | None:
        """None: nothing was sealed, for another space, or under another `echo.key`."""
        nonce, ciphertext = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            token = crypto_aead_xchacha20poly1305_ietf_decrypt(ciphertext, space_id.encode(), nonce, self._key)
        except (CryptoError, ValueError):
            return None
        return token.decode()
