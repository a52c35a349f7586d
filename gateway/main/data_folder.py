"""The data folder of a gateway: keys, certificates, revocations and the log, held by one process at a time.

    token.key   the Ed25519 seed that signs tokens        ca.key, ca.crt   the CA that vouches for nodes
    leafs/      the certificates it has issued            revoked          ids of revoked tokens, one a line
    log.sqlite  the command log                           lock             held while somebody uses the folder
    echo.key    32 bytes for what the gateway seals for itself; made by the first start that knows its own address
    token.jwks  where the last start found the keys of a deployment's own tokens; without it tokens are made here
    operator-scopes.since  when the folder first met a gateway that knows operators' scopes, in ms: tokens of operators
                issued before then have all of them if they name none
    running.json  where the gateway that holds the folder can be reached, for the command line
    backup.tmp/ copies of databases, while a backup is taken of them
    restoring/  what a backup has, while a folder is made of it
    engine      says that the log is on an engine, and not here
    processes/  of gateways on an engine, which share the folder: a lock, a socket and the audit of each, by number

The first start of a gateway makes it all, ca.crt last; nobody else makes anything in a folder that is not whole. Keys
are never readable by others, not even while they are being written.
"""

import errno
import fcntl
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from nacl.signing import SigningKey

from actors.device.identity import DeviceIdentity
from actors.private_file import write_private
from gateway.identity.token_keys import TokenKeys
from gateway.identity.tokens import AnyScope, Issuer, Scope, TokenClass, Verifier, jwks_of, key_id
from gateway.main.folder_forms import newer_database
from schemas.certificates import CertificateAuthority, KnownCertificates, Leaf

ISSUER = AUDIENCE = "heliograph"
TOKEN_KEY, CA_KEY, CA_FILE = MADE_AT_FIRST = "token.key", "ca.key", "ca.crt"
ECHO_KEY = "echo.key"
RUNNING_FILE = "running.json"
FOREIGN_FILE = "token.jwks"
RESTORING = "restoring"
SINCE_FILE = "operator-scopes.since"
NO_TOKENS = "This gateway makes no tokens: they come from the issuer whose keys are in its JWKS file (access.jwks)."
KEY_BYTES = 32
PLACES = "processes"
ENGINE_MARK = "engine"
PLACES_MAX = 256  # processes that share a folder; the next one is refused
_SHARE_S_MAX = 2.0  # for whoever makes a folder that is to be shared, or looks at it, to be done; then it is in use
_LOOK_S = 0.02
NODE_TOKEN_LIFE_S = 365 * 24 * 3600  # as long as a node's certificate


class FolderError(Exception):
    """The folder cannot be used; the text says why and what to do."""


class FolderInUseError(FolderError):
    """Another process has the folder: talk to it, or stop it first."""


def is_data_folder(path: Path) -> bool:
    """Whether a gateway has finished its first start here."""
    return all((path / name).is_file() for name in MADE_AT_FIRST)


def is_held(path: Path) -> bool:
    """Whether somebody has this folder now. A note that a gateway left when it was killed does not say that."""
    try:
        fd = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # gateways on an engine share it, so a shared one says nothing
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def refuse_newer(path: Path) -> None:
    """Raises FolderError for a folder that a later version has written to: this one would not understand it."""
    with _told(path):
        newer = newer_database(path)
    if newer is not None:
        raise FolderError(
            f"{path} is of a newer version: {newer.name} has form {newer.form}, and heliograph {version('heliograph')} "
            f"reads up to {newer.known}. Install a newer version, or restore a backup that this one has made"
        )


def refuse_half_restored(path: Path) -> None:
    """Raises FolderError for a folder into which a backup was being restored."""
    if (path / RESTORING).exists() and not is_data_folder(path):
        again = f"empty it, then `heliograph restore BACKUP --data {path}`"
        raise FolderError(f"a backup was being restored into {path}, and that did not end: {again}")


def makes_tokens(path: Path) -> bool:
    """Whether the gateway of this folder makes its tokens itself, as it was last started."""
    return not (path / FOREIGN_FILE).exists()


def issuer_of(path: Path) -> Issuer:
    """What signs tokens for the gateway of this folder, whoever holds it. Raises FolderError."""
    with _told(path):
        _refuse_others(path)
        return Issuer(_key(path / TOKEN_KEY), issuer=ISSUER, audience=AUDIENCE)


@dataclass(frozen=True, slots=True)
class Place:
    """Of one process among those that share a folder."""

    number: int
    folder: Path

    @property
    def socket(self) -> Path:
        """Where the others of this machine reach it."""
        return self.folder / f"{self.number}.sock"

    @property
    def audit(self) -> Path:
        """The folder in which it keeps its part of the audit."""
        return self.folder.parent if self.number == 0 else self.folder / str(self.number)

    def others(self) -> list[tuple[int, Path]]:
        """The sockets of all other numbers, also of those that are gone."""
        sockets = [(int(file.stem), file) for file in self.folder.glob("*.sock") if file.stem.isdigit()]
        return sorted(each for each in sockets if each[0] != self.number)


class DataFolder:
    """Use `hold`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        token_key = _key(path / TOKEN_KEY)
        authority = x509.load_der_x509_certificate((path / CA_FILE).read_bytes())
        self._ca = CertificateAuthority(_key(path / CA_KEY), authority)
        self.certificates = KnownCertificates(self._ca.certificate, self._leafs())
        self.issuer = Issuer(token_key, issuer=ISSUER, audience=AUDIENCE)
        public_key = token_key.public_key()
        keys = {key_id(public_key): public_key}
        self.jwks = jwks_of(keys)
        self.verifier = Verifier(keys, issuer=ISSUER, audience=AUDIENCE, revoked=self.revoked())
        self.operators_since_ms = _since_ms(path)
        self._fd = -1

    @classmethod
    @contextmanager
    def hold(cls, path: Path, now_ms: int, *, make: bool = True, shares: bool = False) -> Iterator["DataFolder"]:
        """The folder, nobody else's until the end of the block. Raises FolderError.

        `make` is for a gateway that starts: it makes what is missing. Everybody else works on what a gateway has made,
        and leaves any other folder as it is. A gateway that `shares` the folder has it together with others that do.
        """
        with _told(path):
            if make:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            else:
                _refuse_others(path)
            fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with _told(path):
                is_alone = _lock(fd, path, shares=shares)
                refuse_half_restored(path)
                refuse_newer(path)
                if not shares and (path / ENGINE_MARK).exists():
                    raise FolderError(
                        f"the log of {path} is on an engine: start its gateway with --engine, and ask that. To go on "
                        f"alone, with the log that is in the folder, remove {path / ENGINE_MARK}"
                    )
                if make and is_alone:
                    _make(path, now_ms)
                    if shares and not (path / ECHO_KEY).exists():  # not by several, each its own
                        _write_key(path / ECHO_KEY)
                        _sync(path)
                if shares:
                    fcntl.flock(fd, fcntl.LOCK_SH)  # whoever waits for that finds a folder that is whole
                folder = cls(path)
                folder._fd = fd
            yield folder
        finally:
            os.close(fd)

    def trust(self, keys: TokenKeys | None) -> None:
        """Whose tokens count: those of these keys, or (None) those that are made here. Commands are told by a file."""
        if keys is None:
            (self.path / FOREIGN_FILE).unlink(missing_ok=True)
            return
        write_private(self.path / FOREIGN_FILE, f"{keys.path.absolute()}\n".encode())
        self.jwks = jwks_of(keys.current)
        self.verifier = Verifier(keys.current, issuer=keys.issuer, audience=keys.audience, revoked=self.revoked())
        keys.on_change = self._adopt

    def _adopt(self, keys: Mapping[str, Ed25519PublicKey]) -> None:
        self.verifier.adopt(keys)
        self.jwks.update(jwks_of(keys))  # the very document that is being served

    def has_others(self) -> bool:
        """For whoever leaves a folder that is shared: whether somebody stays. Afterwards it may be anybody's."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def is_on_engine(self) -> None:
        """From now on the log is elsewhere, and nobody is to go on with one that is here."""
        with _told(self.path):
            (self.path / ENGINE_MARK).touch(mode=0o600)
            _sync(self.path)

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Of a process among those that share the folder: the lowest number that none has. Raises FolderError."""
        folder = self.path.absolute() / PLACES
        with _told(self.path):
            folder.mkdir(mode=0o700, exist_ok=True)
            for number in range(PLACES_MAX):
                fd = os.open(folder / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    os.close(fd)
            else:
                raise FolderError(f"{PLACES_MAX} gateways have {self.path} already: give others a folder of their own")
        try:
            place = Place(number, folder)
            with _told(self.path):
                place.audit.mkdir(mode=0o700, exist_ok=True)
            yield place
        finally:
            os.close(fd)

    @property
    def log_path(self) -> Path:
        return self.path / "log.sqlite"

    def echo_key(self) -> bytes:
        """Made when it is first asked for. Raises FolderError."""
        with _told(self.path):
            file = self.path / ECHO_KEY
            if not file.exists():
                _write_key(file)
                _sync(self.path)
            key = bytes.fromhex(file.read_text().strip())
            if len(key) != KEY_BYTES:
                raise ValueError(f"{ECHO_KEY} has not {KEY_BYTES} bytes")
        return key

    def _leafs(self) -> list[Leaf]:
        return [Leaf.from_der(file.read_bytes()) for file in sorted((self.path / "leafs").glob("*.crt"))]

    def revoked(self) -> list[str]:
        """Ids of tokens that were revoked by whoever held this folder alone."""
        file = self.path / "revoked"
        return file.read_text().split() if file.exists() else []

    # ---- what an operator does --------------------------------------------------------------------------------------

    def enroll(self, node_id: str, tenant: str, jti: str, now_ms: int) -> DeviceIdentity:
        """Give a node its key, its certificate and, if tokens are made here, its token; we remember the certificate."""
        if self.certificates.tenants_of(node_id) - {tenant}:
            raise ValueError("this node id belongs to another tenant: leave it out for a new one, or choose another")
        identity = self.make_identity(node_id, tenant, jti, now_ms)
        self.keep([identity.leaf])
        self.certificates.learn(identity.leaf)
        return identity

    def make_identity(self, node_id: str, tenant: str, jti: str, now_ms: int) -> DeviceIdentity:
        """A key, a certificate and, if tokens are made here, a token. Nothing of it is kept."""
        key = Ed25519PrivateKey.generate()
        leaf = self.issue(node_id, tenant, key.public_key(), now_ms)
        token = self.node_token(node_id, tenant, jti, now_ms) or ""
        return DeviceIdentity(SigningKey(key.private_bytes_raw()), leaf, token)

    def issue(self, node_id: str, tenant: str, public_key: Ed25519PublicKey, now_ms: int) -> Leaf:
        """A certificate. It counts once it is kept, and learned by `certificates`."""
        return self._ca.issue(node_id, tenant, public_key, now_ms)

    def node_token(self, node_id: str, tenant: str, jti: str, now_ms: int) -> str | None:
        """The same for the same id and time; None where tokens come from elsewhere."""
        if not makes_tokens(self.path):
            return None
        scopes, life_s = [Scope.DEVICE_CONNECT], NODE_TOKEN_LIFE_S
        return self.mint(TokenClass.DEVICE_RUNTIME, node_id, tenant, scopes, life_s, jti, now_ms)

    def keep(self, leafs: Sequence[Leaf]) -> None:
        """Durable, names and all. Raises OSError."""
        folder = self.path / "leafs"
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
            _sync(self.path)
        for leaf in leafs:
            write_private(folder / f"{leaf.kid}.crt", leaf.der)
        _sync(folder)

    def drop(self, leaf: Leaf) -> None:
        """Its file goes. Raises OSError; idempotent."""
        (self.path / "leafs" / f"{leaf.kid}.crt").unlink(missing_ok=True)

    def mint(
        self,
        token_class: TokenClass,
        sub: str,
        tenant: str,
        scopes: Collection[AnyScope],
        life_s: int,
        jti: str,
        now_ms: int,
    ) -> str:
        """Raises ValueError for what no verifier would take: all of them, where tokens come from elsewhere."""
        if not makes_tokens(self.path):
            raise ValueError(NO_TOKENS)
        return self.issuer.mint(
            sub=sub, tenant=tenant, token_class=token_class, scopes=scopes, jti=jti, now_ms=now_ms, life_s=life_s
        )

    def revoke(self, jti: str) -> None:
        """It counts at once. Raises OSError when it cannot be made durable, and holds until the next start alone."""
        self.verifier.revoke(jti)
        fd = os.open(self.path / "revoked", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            line = b"\n%b\n" % jti.encode()  # on a line of its own, whatever a full disk left of the one before
            if os.write(fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(fd)
        finally:
            os.close(fd)


def _lock(fd: int, path: Path, *, shares: bool) -> bool:
    """Whether we are alone. Raises FolderInUseError."""
    end_s = time.monotonic() + _SHARE_S_MAX
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if shares and is_data_folder(path):
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
        if not shares or time.monotonic() >= end_s:
            who = "by a running gateway, or for a moment by another command"
            raise FolderInUseError(f"{path} is in use {who}: stop that gateway, or try again")
        time.sleep(_LOOK_S)


def _make(path: Path, now_ms: int) -> None:
    """What a gateway has from its first start on; the last file says that the others are there."""
    for name in (TOKEN_KEY, CA_KEY):
        if not (path / name).exists():
            _write_key(path / name)
    if not (path / SINCE_FILE).exists():  # once: a later moment would let in what this one keeps out
        write_private(path / SINCE_FILE, b"%d\n" % now_ms)
        _sync(path)
    if not (path / CA_FILE).exists():
        made = CertificateAuthority.make(_key(path / CA_KEY), now_ms)
        write_private(path / CA_FILE, made.certificate.public_bytes(Encoding.DER))


def _write_key(file: Path) -> None:
    write_private(file, os.urandom(KEY_BYTES).hex().encode() + b"\n")


def _sync(path: Path) -> None:
    """Make the names in the folder durable, not only what is in the files."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _since_ms(path: Path) -> int:
    """0, before every token, in a folder that no gateway of this version has started on."""
    file = path / SINCE_FILE
    return int(file.read_text()) if file.exists() else 0


def _key(file: Path) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(file.read_text().strip()))


def _refuse_others(path: Path) -> None:
    """Raises FolderError for a folder in which no gateway has finished its first start."""
    if is_data_folder(path):
        return
    refuse_half_restored(path)
    make = f"`heliograph serve --data {path}`"
    if any((path / name).exists() for name in MADE_AT_FIRST):
        raise FolderError(f"{path} is a data folder whose first start was interrupted, or goes on: {make} finishes it")
    found = f"{path} is not a gateway's data folder" if path.exists() else f"there is no data folder {path}"
    raise FolderError(f"{found}: name yours with --data or HELIOGRAPH_DATA, or make one with {make}")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the disk refuses, or somebody has broken, as one line for a person."""
    try:
        yield
    except OSError as error:
        why = f"{error.strerror}, {error.filename}"
        raise FolderError(f"cannot use the data folder {path} ({why}): name one that you may write to") from error
    except ValueError as error:  # a key or a certificate
        raise FolderError(f"a file in {path} is damaged ({error}): restore the folder from a backup") from error
