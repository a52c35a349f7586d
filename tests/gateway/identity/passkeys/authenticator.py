"""A browser with a passkey, in software: options of ours in, the JSON of `PublicKeyCredential.toJSON()` out.

Honest unless told otherwise: an `Answer` says what goes into it instead, and what is signed is what it says.
"""

import base64
import functools
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa_key
from cryptography.hazmat.primitives.hashes import SHA256
from webauthn.helpers import encode_cbor

PrivateKey: TypeAlias = EllipticCurvePrivateKey | Ed25519PrivateKey | RSAPrivateKey

ES256, EDDSA, RS256 = -7, -8, -257
UP, UV, BE, BS, AT, ED = 0x01, 0x04, 0x08, 0x10, 0x40, 0x80
NO_AAGUID = bytes(16)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is other than an honest browser and authenticator would have it; None: nothing."""

    client: Mapping[str, object] = field(default_factory=dict)  # members of clientDataJSON
    client_bytes: bytes | None = None  # all of it
    rp_id: str | None = None
    flags: int = UP | UV
    sign_count: int | None = None
    user_handle: bytes | None = None
    credential_id: bytes | None = None  # of a new one
    public_key: Mapping[int, object] | None = None
    public_key_bytes: bytes | None = None
    fmt: str = "none"
    statement: Mapping[str, object] = field(default_factory=dict)
    more: bytes = b""  # at the end of the authenticator's data


HONEST = Answer()


@dataclass(slots=True)
class Passkey:
    id: bytes
    rp_id: str
    user_handle: bytes
    key: PrivateKey
    sign_count: int = 0


class SoftwareAuthenticator:
    """Has the passkeys of one person. `counts` is False for those that are synchronized: their counter stays 0."""

    def __init__(self, origin: str, algorithm: int = ES256, *, counts: bool = True) -> None:
        self.origin = origin
        self.passkeys: list[Passkey] = []
        self._algorithm = algorithm
        self._counts = counts

    def register(self, options: Mapping[str, Any], answer: Answer = HONEST) -> dict[str, Any]:
        """`options` is `publicKey` of the gateway's answer. The passkey is kept."""
        user_handle = from_base64url(options["user"]["id"])
        credential_id = answer.credential_id or secrets.token_bytes(32)
        passkey = Passkey(credential_id, options["rp"]["id"], user_handle, new_key(self._algorithm))
        self.passkeys.append(passkey)
        client_data = self._client_data("webauthn.create", options, answer)
        public_key = cose_key(passkey.key) if answer.public_key is None else dict(answer.public_key)
        cose = encode_cbor(public_key) if answer.public_key_bytes is None else answer.public_key_bytes
        attested = NO_AAGUID + len(passkey.id).to_bytes(2, "big") + passkey.id + cose
        data = self._authenticator_data(passkey, answer, AT) + attested + answer.more
        attestation = encode_cbor({"fmt": answer.fmt, "attStmt": dict(answer.statement), "authData": data})
        response = {
            "clientDataJSON": base64url(client_data),
            "attestationObject": base64url(attestation),
            "authenticatorData": base64url(data),
            "transports": ["internal"],
            "publicKeyAlgorithm": self._algorithm,
        }
        return _credential(passkey, response)

    def sign_in(
        self, options: Mapping[str, Any], answer: Answer = HONEST, *, passkey: Passkey | None = None
    ) -> dict[str, Any]:
        """With the latest passkey, unless one is given."""
        used = passkey or self.passkeys[-1]
        client_data = self._client_data("webauthn.get", options, answer)
        data = self._authenticator_data(used, answer, 0) + answer.more
        user_handle = used.user_handle if answer.user_handle is None else answer.user_handle
        response = {
            "clientDataJSON": base64url(client_data),
            "authenticatorData": base64url(data),
            "signature": base64url(_sign(used.key, data + hashlib.sha256(client_data).digest())),
            "userHandle": base64url(user_handle),
        }
        return _credential(used, response)

    def _client_data(self, kind: str, options: Mapping[str, Any], answer: Answer) -> bytes:
        if answer.client_bytes is not None:
            return answer.client_bytes
        said = {"type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": False}
        return json.dumps({**said, **answer.client}, separators=(",", ":")).encode()

    def _authenticator_data(self, passkey: Passkey, answer: Answer, flags: int) -> bytes:
        if self._counts:
            passkey.sign_count += 1
        sign_count = passkey.sign_count if answer.sign_count is None else answer.sign_count
        party_hash = hashlib.sha256((answer.rp_id or passkey.rp_id).encode()).digest()
        return party_hash + bytes([answer.flags | flags]) + sign_count.to_bytes(4, "big")


def new_key(algorithm: int) -> PrivateKey:
    if algorithm == ES256:
        return generate_private_key(SECP256R1())
    return Ed25519PrivateKey.generate() if algorithm == EDDSA else rsa_key()


@functools.cache
def rsa_key(bits: int = 2048) -> RSAPrivateKey:
    """Always the same: making one takes long."""
    return generate_rsa_key(65537, bits)


def cose_key(key: PrivateKey) -> dict[int, object]:
    if isinstance(key, EllipticCurvePrivateKey):
        point = key.public_key().public_numbers()
        return {1: 2, 3: ES256, -1: 1, -2: point.x.to_bytes(32, "big"), -3: point.y.to_bytes(32, "big")}
    if isinstance(key, Ed25519PrivateKey):
        return {1: 1, 3: EDDSA, -1: 6, -2: key.public_key().public_bytes_raw()}
    modulus = key.public_key().public_numbers().n
    return {1: 3, 3: RS256, -1: modulus.to_bytes(key.key_size // 8, "big"), -2: b"\x01\x00\x01"}


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def _sign(key: PrivateKey, data: bytes) -> bytes:
    if isinstance(key, EllipticCurvePrivateKey):
        return key.sign(data, ECDSA(SHA256()))
    if isinstance(key, Ed25519PrivateKey):
        return key.sign(data)
    return key.sign(data, PKCS1v15(), SHA256())


def _credential(passkey: Passkey, response: Mapping[str, object]) -> dict[str, Any]:
    return {
        "id": base64url(passkey.id),
        "rawId": base64url(passkey.id),
        "type": "public-key",
        "authenticatorAttachment": "platform",
        "clientExtensionResults": {},
        "response": dict(response),
    }
