"""Names and credentials of echo spaces: their forms, and the hashes by which credentials are kept and looked up.

Whoever has a token is let in, so what is kept of one is its SHA-256 and nothing else. Minting takes its random bytes
from the caller. What a credential allows is not known here.
"""

import base64
import hashlib
import re

NAME_CHARS_MAX = 64  # `uid`, `tuid`, `sub`
KEY_CHARS_MAX = 128
SECRET_BYTES = 32  # of every credential: 43 characters of base64url

ROOM_TOKEN = "es_"
IAM_ACCESS = "ea_"
IAM_REFRESH = "er_"
CLAIM = "ei_"  # the creator's, and an invitation
AUTH_CODE = "ec_"

KEY_PATTERN = r"^[A-Za-z0-9._:@~-]{1,128}$"
_KEY = re.compile(KEY_PATTERN)
_NAME = re.compile(r"[A-Za-z0-9._:@~-]{1,64}")
KEY_PREFIX_PATTERN = r"^[A-Za-z0-9._:@~-]{0,128}$"
_PREFIX = re.compile(KEY_PREFIX_PATTERN)
ULID_PATTERN = r"^[0-7][0-9a-hjkmnp-tv-z]{25}$"
_ULID = re.compile(ULID_PATTERN)
# 32 bytes are 43 digits, of which the last has four bits: sixteen digits are possible there.
_CREDENTIAL = re.compile(r"e[saric]_[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")
_DOTS = (".", "..")


def is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None and text not in _DOTS


def is_name(text: str) -> bool:
    """Whether it can be a `uid`, a `tuid` or a `sub`."""
    return _NAME.fullmatch(text) is not None and text not in _DOTS


def is_key_prefix(text: str) -> bool:
    """Whether some key could begin with it."""
    return _PREFIX.fullmatch(text) is not None


def is_ulid(text: str) -> bool:
    """In lower case, as spaces, files, projects and connections are named."""
    return _ULID.fullmatch(text) is not None


def credential(prefix: str, secret: bytes) -> str:
    """The credential of 32 random bytes."""
    if len(secret) != SECRET_BYTES:
        raise ValueError("a credential is made of 32 random bytes")
    return prefix + base64.urlsafe_b64encode(secret).rstrip(b"=").decode()


def is_credential(text: str, prefix: str) -> bool:
    return text.startswith(prefix) and _CREDENTIAL.fullmatch(text) is not None


def credential_hash(text: str) -> bytes:
    """What a credential is kept as and looked up by. One of a wrong form takes as long, and is nobody's."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
