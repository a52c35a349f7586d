"""The files of a device's identity, and how the next identity takes their place, whatever is interrupted when.

    node.key   the Ed25519 seed, 64 hex digits     token   what it authenticates with; empty where others make tokens
    node.crt   the leaf certificate, DER           next/   the same files of the identity that is being asked for

    next/ holds            means                                                  found at a start, it
    ---------------------  -----------------------------------------------------  ------------------------------------
    nothing, or is not     nothing is under way                                   leaves the identity as it is
    node.key               a renewal may have been asked for with this key        does too; the next one asks with it
    node.crt too           the answer is here, its token too if it had one        is promoted

Promotion copies the files of `next/` over the old ones and then takes `next/` away by one rename. It may be cut short
anywhere and is simply done again. Every step is on the disk before the one after it. What the files say is for others.
"""

import os
import shutil
from pathlib import Path

from nacl.signing import SigningKey

from actors.private_file import write_private
from schemas.certificates import Leaf

KEY_FILE = "node.key"
LEAF_FILE = "node.crt"
TOKEN_FILE = "token"
NEXT_FOLDER = "next"
DONE_FOLDER = "next.done"  # of a promotion, on its way out


def write_identity(folder: Path, key: SigningKey, leaf: Leaf, token: str) -> None:
    """Over what is there. Without a token the one that is there stays."""
    write_private(folder / KEY_FILE, key.encode().hex().encode() + b"\n")
    write_private(folder / LEAF_FILE, leaf.der)
    if token:
        write_private(folder / TOKEN_FILE, token.encode() + b"\n")
    _sync(folder)


def read_key(folder: Path) -> SigningKey:
    return SigningKey(bytes.fromhex((folder / KEY_FILE).read_text().strip()))


def read_token(folder: Path) -> str:
    return (folder / TOKEN_FILE).read_text().strip()


# ---- the next identity -----------------------------------------------------------------------------------------------


def next_key(folder: Path) -> SigningKey:
    """The key to ask with: the one that was asked with before, or a new one. On the disk before it is returned."""
    inner = folder / NEXT_FOLDER
    try:
        return read_key(inner)
    except (OSError, ValueError):
        discard_next(folder)
    key = SigningKey.generate()
    inner.mkdir(mode=0o700)
    write_private(inner / KEY_FILE, key.encode().hex().encode() + b"\n")
    _sync(inner)
    _sync(folder)
    return key


def complete_next(folder: Path, leaf: Leaf, token: str | None) -> None:
    """The answer, which the caller has checked. The certificate comes last: it says that the rest is there."""
    inner = folder / NEXT_FOLDER
    (inner / TOKEN_FILE).unlink(missing_ok=True)
    if token is not None:
        write_private(inner / TOKEN_FILE, token.encode() + b"\n")
    _sync(inner)
    write_private(inner / LEAF_FILE, leaf.der)
    _sync(inner)


def promote_next(folder: Path) -> bool:
    """Put a whole next identity in force; False when there is none. Raises OSError if the disk does not take it."""
    shutil.rmtree(folder / DONE_FOLDER, ignore_errors=True)
    inner = folder / NEXT_FOLDER
    try:
        key, leaf = read_key(inner), Leaf.from_der((inner / LEAF_FILE).read_bytes())
        token = read_token(inner) if (inner / TOKEN_FILE).exists() else ""
        old = Leaf.from_der((folder / LEAF_FILE).read_bytes())
    except (OSError, ValueError):
        return False
    is_ours = (leaf.node_id, leaf.tenant) == (old.node_id, old.tenant)
    if not is_ours or key.verify_key.encode() != leaf.public_key:
        return False
    write_identity(folder, key, leaf, token)
    discard_next(folder)
    return True


def discard_next(folder: Path) -> None:
    """All of it at once: half of a next identity would be taken for one that is being asked for."""
    inner, done = folder / NEXT_FOLDER, folder / DONE_FOLDER
    shutil.rmtree(done, ignore_errors=True)
    if inner.exists():
        inner.rename(done)
        _sync(folder)
        shutil.rmtree(done, ignore_errors=True)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
