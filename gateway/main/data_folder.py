"""The data folder of an embedded gateway: keys, certificates, revocations and the log, held by one process at a time.

    token.key   the Ed25519 seed that signs tokens        ca.key, ca.crt   the CA that vouches for nodes
    leafs/      the certificates it has issued            revoked          ids of revoked tokens, one a line
    log.sqlite  the command log                           lock             held while somebody uses the folder
    token.jwks  where the last start found the keys of a deployment's own tokens; without it tokens are made here

The first start makes it all. Keys are never readable by others, not even while they are being written.
"""

import fcntl
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from nacl.signing import SigningKey

from actors.device.identity import DeviceIdentity
from actors.private_file import write_private
from gateway.identity.token_keys import TokenKeys
from gateway.identity.tokens import Issuer, Scope, TokenClass, Verifier, jwks_of, key_id
from schemas.certificates import CertificateAuthority, KnownCertificates, Leaf

ISSUER = AUDIENCE = "heliograph"
FOREIGN_FILE = "token.jwks"
NO_TOKENS = "This gateway makes no tokens: they come from the issuer whose keys are in its JWKS file (access.jwks)."
NODE_TOKEN_LIFE_S = 365 * 24 * 3600  # as long as a node's certificate


class FolderInUseError(Exception):
    """Another process has the folder: talk to it, or stop it first."""


def makes_tokens(path: Path) -> bool:
    """Whether the gateway of this folder makes its tokens itself, as it was last started."""
    return not (path / FOREIGN_FILE).exists()


class DataFolder:
    """Use `hold`."""

    def __init__(self, path: Path, now_ms: int) -> None:
        self.path = path
        self._token_key = Ed25519PrivateKey.from_private_bytes(_secret(path / "token.key"))
        self._ca = self._load_ca(now_ms)
        self.certificates = KnownCertificates(self._ca.certificate, self._leafs())
        self.issuer = Issuer(self._token_key, issuer=ISSUER, audience=AUDIENCE)
        public_key = self._token_key.public_key()
        keys = {key_id(public_key): public_key}
        self.jwks = jwks_of(keys)
        self.verifier = Verifier(keys, issuer=ISSUER, audience=AUDIENCE, revoked=self._revoked())

    @classmethod
    @contextmanager
    def hold(cls, path: Path, now_ms: int) -> Iterator["DataFolder"]:
        """The folder, made if need be, and nobody else's until the end of the block. Raises FolderInUseError."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderInUseError(f"{path} is in use by a running gateway") from None
            yield cls(path, now_ms)
        finally:
            os.close(fd)

    def trust(self, keys: TokenKeys | None) -> None:
        """Whose tokens count: those of these keys, or (None) those that are made here. Commands are told by a file."""
        if keys is None:
            (self.path / FOREIGN_FILE).unlink(missing_ok=True)
            return
        write_private(self.path / FOREIGN_FILE, f"{keys.path.absolute()}\n".encode())
        self.jwks = jwks_of(keys.current)
        self.verifier = Verifier(keys.current, issuer=keys.issuer, audience=keys.audience, revoked=self._revoked())
        keys.on_change = self._adopt

    def _adopt(self, keys: Mapping[str, Ed25519PublicKey]) -> None:
        self.verifier.adopt(keys)
        self.jwks.update(jwks_of(keys))  # the very document that is being served

    @property
    def log_path(self) -> Path:
        return self.path / "log.sqlite"

    def _load_ca(self, now_ms: int) -> CertificateAuthority:
        key = Ed25519PrivateKey.from_private_bytes(_secret(self.path / "ca.key"))
        file = self.path / "ca.crt"
        if not file.exists():
            made = CertificateAuthority.make(key, now_ms)
            write_private(file, made.certificate.public_bytes(Encoding.DER))
        return CertificateAuthority(key, x509.load_der_x509_certificate(file.read_bytes()))

    def _leafs(self) -> list[Leaf]:
        return [Leaf.from_der(file.read_bytes()) for file in sorted((self.path / "leafs").glob("*.crt"))]

    def _revoked(self) -> list[str]:
        file = self.path / "revoked"
        return file.read_text().split() if file.exists() else []

    # ---- what an operator does --------------------------------------------------------------------------------------

    def enroll(self, node_id: str, tenant: str, jti: str, now_ms: int) -> DeviceIdentity:
        """Give a node its key, its certificate and, if tokens are made here, its token; we remember the certificate."""
        key = Ed25519PrivateKey.generate()
        leaf = self._ca.issue(node_id, tenant, key.public_key(), now_ms)
        token = ""
        if makes_tokens(self.path):
            scopes, life_s = [Scope.DEVICE_CONNECT], NODE_TOKEN_LIFE_S
            token = self.mint(TokenClass.DEVICE_RUNTIME, node_id, tenant, scopes, life_s, jti, now_ms)
        (self.path / "leafs").mkdir(mode=0o700, exist_ok=True)
        write_private(self.path / "leafs" / f"{leaf.kid}.crt", leaf.der)
        self.certificates.learn(leaf)
        return DeviceIdentity(SigningKey(key.private_bytes_raw()), leaf, token)

    def mint(
        self,
        token_class: TokenClass,
        sub: str,
        tenant: str,
        scopes: Collection[Scope],
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
        """Durable before it counts."""
        fd = os.open(self.path / "revoked", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, jti.encode() + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        self.verifier.revoke(jti)


def _secret(file: Path) -> bytes:
    """The 32 bytes of a key file, made on the first start."""
    if not file.exists():
        write_private(file, os.urandom(32).hex().encode() + b"\n")
    return bytes.fromhex(file.read_text().strip())
