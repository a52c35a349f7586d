"""Registration of clients without keeping any (RFC 7591): the `client_id` is the registration, sealed.

Only we can make one, and nobody can read or alter it. A key that changes makes clients register again, which they do
by themselves. What a client says of itself beyond its redirect URIs and its name is passed over.
"""

import base64
import hashlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
)
from nacl.exceptions import CryptoError

from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.redirect_rules import RedirectUri, read_redirect_uri

PREFIX = "dcr_"
URIS_MAX = 5
REGISTRATION_BYTES_MAX = 1_024  # of redirect URIs and name, as sealed; more is `invalid_client_metadata`
NAME_CHARS_MAX = 256
BODY_BYTES_MAX = 16 * 1024  # with all that is passed over; more is 413
_CLIENT_ID_CHARS_MAX = 2_048
_NONCE_BYTES: int = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
_KEY_BYTES = 32


class Client(msgspec.Struct, frozen=True):
    redirect_uris: list[str]
    client_name: str = ""


class _Request(msgspec.Struct, frozen=True):
    redirect_uris: Any = None
    client_name: Any = None


@dataclass(frozen=True, slots=True)
class Label:
    """A client that is not registered, and only calls itself so."""

    text: str


def read_registration(body: bytes, schemes: Collection[str]) -> Client | OAuthError:
    try:
        asked = msgspec.json.decode(body, type=_Request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return OAuthError.INVALID_CLIENT_METADATA
    uris, name = asked.redirect_uris, asked.client_name if asked.client_name is not None else ""
    if not isinstance(uris, list) or not 1 <= len(uris) <= URIS_MAX:
        return OAuthError.INVALID_REDIRECT_URI
    if not all(isinstance(uri, str) and read_redirect_uri(uri, schemes) for uri in uris):
        return OAuthError.INVALID_REDIRECT_URI
    if not isinstance(name, str) or len(name) > NAME_CHARS_MAX or not name.isprintable():
        return OAuthError.INVALID_CLIENT_METADATA
    client = Client(uris, name)
    return OAuthError.INVALID_CLIENT_METADATA if len(_packed(client)) > REGISTRATION_BYTES_MAX else client


def registration_document(client_id: str, client: Client, now_s: int) -> dict[str, Any]:
    """What is registered, whatever else was asked for (RFC 7591 §3.2.1)."""
    return {
        "client_id": client_id,
        "client_id_issued_at": now_s,
        **({"client_name": client.client_name} if client.client_name else {}),
        "redirect_uris": client.redirect_uris,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }


class ClientIds:
    def __init__(self, key: bytes) -> None:
        """`key` is the gateway's; a sub-key of it seals."""
        self._key = hashlib.blake2b(digest_size=_KEY_BYTES, key=key, person=b"oauth client id").digest()

    def seal(self, client: Client) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + crypto_aead_xchacha20poly1305_ietf_encrypt(_packed(client), PREFIX.encode(), nonce, self._key)
        return _written(sealed)

    def read(self, client_id: str) -> Client | Label | None:
        """None when it is no client id: one of ours that does not open, or a label that cannot be shown.

        A URL is a label too, and is never fetched.
        """
        if client_id.startswith(PREFIX):
            return self._unseal(client_id)
        if not client_id or len(client_id) > NAME_CHARS_MAX or not client_id.isprintable():
            return None
        return Label(client_id)

    def _unseal(self, client_id: str) -> Client | None:
        text = client_id.removeprefix(PREFIX)
        if len(text) > _CLIENT_ID_CHARS_MAX or not text.isascii():
            return None
        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            if _written(sealed) != client_id:  # base64 has several spellings, a client has one id
                return None
            packed = crypto_aead_xchacha20poly1305_ietf_decrypt(
                sealed[_NONCE_BYTES:], PREFIX.encode(), sealed[:_NONCE_BYTES], self._key
            )
        except (CryptoError, ValueError):
            return None
        return msgspec.json.decode(packed, type=Client)


def registered(client: Client, uri: RedirectUri, schemes: Collection[str]) -> bool:
    """Whether the client may be answered there."""
    return any(
        known is not None and uri.fits(known)
        for known in (read_redirect_uri(one, schemes) for one in client.redirect_uris)
    )


def _written(sealed: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()


def _packed(client: Client) -> bytes:
    return msgspec.json.encode(client)
