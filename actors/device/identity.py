"""Who a device is: its key, its certificate and its token in a folder, its fingerprint, and the manifest it signs.

The files are what enrolment leaves behind, or a renewal (`identity_files`). A key that others can read is refused.
"""

import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from nacl.signing import SigningKey

from actors.device.identity_files import (
    KEY_FILE,
    LEAF_FILE,
    TOKEN_FILE,
    discard_next,
    promote_next,
    read_key,
    read_token,
    write_identity,
)
from actors.device.manifest_life import SignedManifest
from schemas.canonical import digest
from schemas.certificates import CertificateError, Leaf
from schemas.manifest import LIFE_MS_MAX, sign

MACHINE_ID_FILES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_NO_MAC = "00:00:00:00:00:00"


class IdentityError(Exception):
    """The folder does not hold an identity that can be used: a mistake of whoever set the device up."""


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    key: SigningKey
    leaf: Leaf
    token: str  # empty: the gateway makes none, and somebody else has to put one into the folder

    def __post_init__(self) -> None:
        if self.key.verify_key.encode() != self.leaf.public_key:
            raise IdentityError("the key is not the one that the certificate was issued for")

    @property
    def node_id(self) -> str:
        return self.leaf.node_id

    @classmethod
    def load(cls, folder: Path) -> "DeviceIdentity":
        """As it is in the folder, once a renewal that was cut short after its answer has been brought to its end."""
        try:
            promote_next(folder)
        except OSError as error:
            raise IdentityError(
                f"cannot write to {folder} ({error.strerror}): a renewed identity waits there"
            ) from error
        try:
            if stat.S_IMODE((folder / KEY_FILE).stat().st_mode) & 0o077:
                raise IdentityError(f"{KEY_FILE} can be read by others: chmod 600 it")
            leaf = Leaf.from_der((folder / LEAF_FILE).read_bytes())
            return cls(read_key(folder), leaf, read_token(folder))
        except OSError as error:
            raise IdentityError(f"{folder} lacks {KEY_FILE}, {LEAF_FILE} or {TOKEN_FILE}") from error
        except (CertificateError, ValueError) as error:
            raise IdentityError(f"{KEY_FILE} or {LEAF_FILE} is not in its form") from error

    def save(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        discard_next(folder)  # it was for the identity before
        write_identity(folder, self.key, self.leaf, self.token)


def newer_token_from(folder: Path) -> Callable[[str], str | None]:
    """For an agent whose token was refused: the one in the folder, if somebody has put another there."""

    def newer_token(refused: str) -> str | None:
        try:
            token = read_token(folder)
        except (OSError, UnicodeDecodeError):
            return None
        return token if token and token != refused else None

    return newer_token


# ---- the fingerprint -------------------------------------------------------------------------------------------------


def hw_fingerprint(machine_id: str | None, mac_primary: str | None) -> dict[str, Any]:
    """The manifest's `hw_fingerprint` over the sources that this machine has."""
    sources = {"machine_id": machine_id, "mac_primary": mac_primary}
    known = {name: value for name, value in sources.items() if value}
    if not known:
        raise IdentityError("this machine has neither a network card nor a machine id: write one to /etc/machine-id")
    return {"algo": "blake3-256", "value": digest(known), "sources": list(known)}


def this_machine() -> dict[str, Any]:
    """The fingerprint of the machine we run on."""
    return hw_fingerprint(_machine_id(), _mac_primary())


def _machine_id(files: Sequence[Path] = MACHINE_ID_FILES) -> str | None:
    for file in files:
        try:
            machine_id = file.read_text().strip()
        except (OSError, UnicodeDecodeError):
            continue
        if machine_id:
            return machine_id
    return None


def _mac_primary() -> str | None:
    """Of the real network cards the first by name. Virtual ones (whose address somebody made up) only if need be."""
    macs = [
        (is_made_up(address.address), name, address.address.lower())
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family == psutil.AF_LINK and address.address.lower() not in ("", _NO_MAC)
    ]
    return min(macs)[2] if macs else None


def is_made_up(mac: str) -> bool:
    """Locally administered, by the second-lowest bit of its first byte."""
    return bool(int(mac[:2], 16) & 0b10)


# ---- the manifest ----------------------------------------------------------------------------------------------------


def manifest_signer(
    identity: DeviceIdentity,
    fingerprint: Mapping[str, Any],
    capabilities: Sequence[Mapping[str, Any]],
    *,
    life_ms: int = LIFE_MS_MAX,
) -> Callable[[int], SignedManifest]:
    """Makes this device's manifest with a given stamp, which has to come from the gateway's clock."""

    def signed(issued_at_ms: int) -> SignedManifest:
        manifest = sign(
            {
                "manifest_version": "1.1.0",
                "node_id": identity.node_id,
                "hw_fingerprint": dict(fingerprint),
                "issued_at_ms": issued_at_ms,
                "expires_at_ms": issued_at_ms + life_ms,
                "capabilities": [dict(capability) for capability in capabilities],
            },
            identity.leaf.kid,
            identity.key,
        )
        return SignedManifest(manifest, digest(manifest))

    return signed
