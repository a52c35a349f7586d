"""Who we are for NATS, as a file says it, in any of the forms in which NATS gives credentials out.

A nonce is signed here, with the library that nodes and tokens use already. The file is read once, at start.
"""

import base64
import binascii
import re
from dataclasses import dataclass, field
from pathlib import Path

from nacl.signing import SigningKey

_JWT = re.compile(r"-+BEGIN NATS USER JWT-+\s+(\S+)\s+-+END NATS USER JWT-+")
_SEED = re.compile(r"^SU[A-Z2-7]{56}$", re.MULTILINE)
_USER_PREFIX = 20 << 3
_SEED_BYTES = slice(2, 34)  # behind two bytes of prefix, before two of checksum


class BadCredentialsError(Exception):
    """The file is in no form that NATS has; the text says which there are, and never what is in it."""


@dataclass(frozen=True, slots=True)
class Nkey:
    """Signs what a server asks to be signed."""

    seed: bytes = field(repr=False)

    @property
    def public(self) -> str:
        body = bytes([_USER_PREFIX]) + bytes(SigningKey(self.seed).verify_key)
        checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
        return base64.b32encode(body + checksum).decode().rstrip("=")

    def sign(self, nonce: str) -> bytes:
        return base64.b64encode(SigningKey(self.seed).sign(nonce.encode()).signature)


@dataclass(frozen=True, slots=True)
class Credentials:
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    jwt: str | None = field(default=None, repr=False)
    nkey: Nkey | None = None


NOBODY = Credentials()


def read_credentials(path: Path) -> Credentials:
    """Raises BadCredentialsError, OSError."""
    text = path.read_text(errors="replace").strip()
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if seed is not None:
        return Credentials(jwt=None if jwt is None else jwt[1], nkey=Nkey(_seed(seed[0])))
    user, colon, password = text.partition(":")
    if jwt is None and text and re.fullmatch("[!-~]+", text):
        return Credentials(user=user, password=password) if colon else Credentials(token=text)
    raise BadCredentialsError(
        "it has neither NATS credentials nor an NKey's seed (SU…), nor USER:PASSWORD, nor a token"
    )


def _seed(text: str) -> bytes:
    raw = base64.b32decode(text + "=" * (-len(text) % 8))
    if int.from_bytes(raw[-2:], "little") != binascii.crc_hqx(raw[:-2], 0):
        raise BadCredentialsError("its NKey's seed is damaged: copy it again")
    return raw[_SEED_BYTES]
