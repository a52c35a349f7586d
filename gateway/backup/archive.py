"""A backup as one file: a tar of regular files, with the manifest as its last member; written and read in pieces.

Only the plainest headers are written, and only these are read: whatever else a tar may have (links, extended headers)
no backup has. Where the bytes come from or go to is for others. Everything here blocks: it is called in threads.
"""

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gateway.backup.gathering import BackupError, Gathered
from gateway.backup.manifest_rules import BYTES_MAX, FORM, MEMBERS_MAX, Manifest, Member, NotRestorable, broken, judge
from gateway.backup.member_rules import MANIFEST

PIECE_BYTES = 256 * 1024  # in memory at once
_END = bytes(2 * tarfile.BLOCKSIZE)
_GZIP = b"\x1f\x8b"
_UNREADABLE = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, UnicodeDecodeError)

Pieces = Iterator[bytes]


# ---- out -------------------------------------------------------------------------------------------------------------


class Archive:
    """What `gather` found, as the bytes of a file. `pieces` once; then `manifest` is what it said last."""

    def __init__(self, gathered: Gathered, version: str, made_at_ms: int) -> None:
        self.manifest: Manifest | None = None
        self._gathered = gathered
        self._version = version
        self._made_at_ms = made_at_ms

    def pieces(self) -> Pieces:
        """Raises BackupError: what was written until then is no backup."""
        gathered = self._gathered
        members: list[Member] = []
        try:
            for item in gathered.items:
                if isinstance(item.content, bytes):
                    members.append(_member(item.name, item.content))
                    yield self._framed(item.name, item.content)
                else:
                    # One that is gone was removed since, and so it is where this is restored.
                    member = yield from self._file(item.name, item.content)
                    members += [] if member is None else [member]
        except OSError as error:
            raise BackupError(f"cannot read a file of the folder: {error.strerror}, {error.filename}") from error
        self.manifest = Manifest(
            FORM,
            self._version,
            self._made_at_ms,
            gathered.log_id,
            gathered.forms,
            gathered.wish.spaces,
            gathered.wish.audit,
            gathered.left_out,
            tuple(members),
        )
        yield self._framed(MANIFEST, self.manifest.encoded()) + _END

    def _framed(self, name: str, content: bytes) -> bytes:
        return self._header(name, len(content)) + content + _padding(len(content))

    def _file(self, name: str, path: Path) -> Generator[bytes, None, Member | None]:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return None
        with file:
            size = left = file.seek(0, 2)
            file.seek(0)
            digest = hashlib.sha256()
            yield self._header(name, size)
            while left:
                piece = file.read(min(PIECE_BYTES, left))
                if not piece:
                    raise BackupError("a file became shorter while it was read: see that nobody changes the folder")
                left -= len(piece)
                digest.update(piece)
                yield piece
            yield _padding(size)
        return Member(name, size, digest.hexdigest())

    def _header(self, name: str, size: int) -> bytes:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o600, self._made_at_ms // 1000
        return info.tobuf(tarfile.GNU_FORMAT)


def _member(name: str, content: bytes) -> Member:
    return Member(name, len(content), hashlib.sha256(content).hexdigest())


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


# ---- in --------------------------------------------------------------------------------------------------------------


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file, compressed or not. Raises BackupError, also for what turns out to be wrong within the block."""
    try:
        with path.open("rb") as file:
            is_gzip = file.read(2) == _GZIP
            file.seek(0)
            if is_gzip:
                with gzip.GzipFile(fileobj=file) as inside:
                    yield inside  # type: ignore[misc]  # it has what is used of a file
            else:
                yield file
    except _UNREADABLE:
        raise BackupError(broken("it ends too soon, or is no archive").why) from None
    except OSError as error:
        raise BackupError(f"cannot read {path}: {error.strerror or error}") from error


def read(file: IO[bytes], take: Callable[[str, Pieces], None]) -> tuple[bytes | None, dict[str, Member]]:
    """Hand each member to `take`, which need not read all of it. The manifest, if it is the last one, and all others as
    they are. Raises what `opened` translates."""
    seen: dict[str, Member] = {}
    manifest: bytes | None = None
    while True:
        block = _exactly(file, tarfile.BLOCKSIZE)
        if not any(block):
            break
        info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        if manifest is not None or info.type != tarfile.REGTYPE or info.size < 0 or info.name in seen:
            raise tarfile.ReadError
        if info.name == MANIFEST:
            if info.size > BYTES_MAX:
                raise tarfile.ReadError
            manifest = _exactly(file, info.size)
        else:
            if len(seen) >= MEMBERS_MAX:
                raise tarfile.ReadError
            digest = hashlib.sha256()
            pieces = _hashed(_pieces(file, info.size), digest.update)
            take(info.name, pieces)
            for _ in pieces:
                pass
            seen[info.name] = Member(info.name, info.size, digest.hexdigest())
        if any(_exactly(file, len(_padding(info.size)))):
            raise tarfile.ReadError
    if any(_exactly(file, tarfile.BLOCKSIZE)) or file.read(1):
        raise tarfile.ReadError
    return manifest, seen


def verified(path: Path, forms_max: Mapping[str, int]) -> Manifest:
    """Read all of it. Raises BackupError unless it is a whole backup that this version can restore."""

    def pass_over(_: str, __: Pieces) -> None:
        pass

    with opened(path) as file:
        found, seen = read(file, pass_over)
    judged = judge(found, seen, forms_max)
    if isinstance(judged, NotRestorable):
        raise BackupError(judged.why)
    return judged


def _exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _pieces(file: IO[bytes], size: int) -> Pieces:
    while size:
        piece = _exactly(file, min(size, PIECE_BYTES))
        size -= len(piece)
        yield piece


def _hashed(pieces: Pieces, update: Callable[[bytes], None]) -> Pieces:
    for piece in pieces:
        update(piece)
        yield piece
