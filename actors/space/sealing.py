"""How what a space keeps is sealed under its key: XChaCha20-Poly1305, a sub-key for each use.

Small things (names, values, subscriptions, bodies of events) have a random nonce in front. A file is sealed in chunks,
so that a range can be read without the rest; a chunk's nonce is the file's random prefix, the chunk's number and
whether it is the last one, so chunks that were moved, left out or taken from elsewhere do not open. Names of keys and
endpoints are looked up by keyed hashes, each with a sub-key of its own, which say nothing without the key.

Where keys and ciphertext lie is left to others.
"""

import hashlib
import os

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_ABYTES,
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
)
from nacl.exceptions import CryptoError

from actors.log.store import UnreadableError

KEY_BYTES = 32
CHUNK_BYTES = 64 * 1024  # of content; sealed, it is longer by TAG_BYTES
TAG_BYTES: int = crypto_aead_xchacha20poly1305_ietf_ABYTES
NONCE_BYTES: int = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
_COUNTER_BYTES = 4
PREFIX_BYTES = NONCE_BYTES - _COUNTER_BYTES - 1


class SpaceKey:
    """A space's key, by what can be done with it."""

    __slots__ = ("_endpoints", "_events", "_files", "_keys", "_rows", "space_id")

    def __init__(self, space_id: str, key: bytes) -> None:
        self.space_id = space_id
        self._keys = _sub_key(key, b"look-up")
        self._endpoints = _sub_key(key, b"endpoint look-up")
        self._rows = _sub_key(key, b"rows")
        self._files = _sub_key(key, b"files")
        self._events = _sub_key(key, b"events")

    def key_lookup(self, name: str) -> bytes:
        """What the name of a key is found by."""
        return _lookup(name, self._keys)

    def endpoint_lookup(self, endpoint: str) -> bytes:
        """What the endpoint of a subscription is found by."""
        return _lookup(endpoint, self._endpoints)

    def seal_row(self, data: bytes, place: bytes) -> bytes:
        """`place` says where it belongs: it opens nowhere else."""
        return _seal(data, self.space_id.encode() + place, self._rows)

    def unseal_row(self, sealed: bytes, place: bytes) -> bytes:
        return _unseal(sealed, self.space_id.encode() + place, self._rows)

    def seal_event(self, data: bytes) -> bytes:
        return _seal(data, self.space_id.encode(), self._events)

    def unseal_event(self, sealed: bytes) -> bytes:
        return _unseal(sealed, self.space_id.encode(), self._events)

    def seal_chunk(self, file_id: str, prefix: bytes, number: int, is_last: bool, data: bytes) -> bytes:
        nonce, place = _chunk_nonce(prefix, number, is_last), f"{self.space_id}{file_id}".encode()
        return crypto_aead_xchacha20poly1305_ietf_encrypt(data, place, nonce, self._files)

    def unseal_chunk(self, file_id: str, prefix: bytes, number: int, is_last: bool, sealed: bytes) -> bytes:
        nonce, place = _chunk_nonce(prefix, number, is_last), f"{self.space_id}{file_id}".encode()
        return _decrypt(sealed, place, nonce, self._files)


def chunk_count(size: int) -> int:
    """How many chunks a file of this size has: an empty one has an empty one."""
    return max(1, -(-size // CHUNK_BYTES))


def sealed_size(size: int) -> int:
    """How long a file of this size is, sealed."""
    return size + chunk_count(size) * TAG_BYTES


def _lookup(name: str, key: bytes) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=16, key=key).digest()


def _sub_key(key: bytes, use: bytes) -> bytes:
    return hashlib.blake2b(digest_size=KEY_BYTES, key=key, person=use).digest()


def _chunk_nonce(prefix: bytes, number: int, is_last: bool) -> bytes:
    return prefix + number.to_bytes(_COUNTER_BYTES) + (b"\x01" if is_last else b"\x00")


def _seal(data: bytes, place: bytes, key: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + crypto_aead_xchacha20poly1305_ietf_encrypt(data, place, nonce, key)


def _unseal(sealed: bytes, place: bytes, key: bytes) -> bytes:
    return _decrypt(sealed[NONCE_BYTES:], place, sealed[:NONCE_BYTES], key)


def _decrypt(sealed: bytes, place: bytes, nonce: bytes, key: bytes) -> bytes:
    try:
        return crypto_aead_xchacha20poly1305_ietf_decrypt(sealed, place, nonce, key)
    except (CryptoError, ValueError):
        raise UnreadableError("not what was sealed here") from None
