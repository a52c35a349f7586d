"""The node under test outside of the wire: its folder, and its process where the kit was given a command for it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from nacl.signing import SigningKey

from actors.device.identity import DeviceIdentity
from actors.device.identity_files import TOKEN_FILE
from actors.kit.facts import Enrolled, Renewed
from actors.kit.player import Noticed
from actors.kit.steps import Exited
from actors.private_file import write_private
from gateway.identity.tokens import Issuer, Scope, TokenClass
from schemas.certificates import CertificateAuthority, KnownCertificates, Leaf
from schemas.manifest import NodeIdentity
from schemas.ulids import Mint

TENANT = "kit"
TOKEN_LIFE_S = 365 * 24 * 3600  # so long that no node renews its identity in the middle of a run
REAP_S_MAX = 5.0  # for the kernel to end a process that was killed


class NodeFolder:
    """An identity as `node enroll` makes it, of an authority that nobody else knows."""

    def __init__(self, folder: Path, now_ms: int) -> None:
        """Raises OSError if it cannot be written."""
        mint = Mint(os.urandom)
        authority = CertificateAuthority.make(Ed25519PrivateKey.generate(), now_ms)
        issuer = Issuer(Ed25519PrivateKey.generate(), issuer="heliograph", audience="heliograph")
        node_id = mint.mint(now_ms).lower()

        def token(at_ms: int) -> str:
            return issuer.mint(
                sub=node_id,
                tenant=TENANT,
                token_class=TokenClass.DEVICE_RUNTIME,
                scopes=[Scope.DEVICE_CONNECT],
                jti=mint.mint(at_ms),
                now_ms=at_ms,
                life_s=TOKEN_LIFE_S,
            )

        def leaf_for(public_key: bytes, at_ms: int) -> Leaf:
            return authority.issue(node_id, TENANT, Ed25519PublicKey.from_public_bytes(public_key), at_ms)

        key = SigningKey.generate()
        leaf = leaf_for(key.verify_key.encode(), now_ms)
        self.path = folder
        self.enrolled = Enrolled(
            NodeIdentity(node_id, TENANT),
            leaf,
            KnownCertificates(authority.certificate, [leaf]),
            token=token(now_ms),
            next_token=token(now_ms),
            renew=lambda public_key, at_ms: Renewed(token(at_ms), leaf_for(public_key, at_ms)),
        )
        DeviceIdentity(key, leaf, self.enrolled.token).save(folder)

    def put_token(self, token: str) -> None:
        write_private(self.path / TOKEN_FILE, token.encode() + b"\n")


class NodeProcess:
    """Implements `actors.kit.player.Node`. Without a command somebody else starts the node."""

    def __init__(
        self,
        folder: NodeFolder,
        command: Sequence[str],
        output: Path | None,
        notices: trio.MemorySendChannel[Noticed],
        nursery: trio.Nursery,
    ) -> None:
        """`output` takes what the node prints; None: nothing does."""
        self._folder = folder
        self._command = list(command)
        self._output = output or Path(os.devnull)
        self._notices = notices
        self._nursery = nursery
        self._process: trio.Process | None = None

    def put_token(self, token: str) -> None:
        self._folder.put_token(token)

    async def start(self) -> None:
        """Raises OSError when there is no such program."""
        with self._output.open("ab") as output:
            # In a session of its own, so that what it starts can be ended with it, and no Ctrl-C of ours reaches it.
            self._process = await trio.lowlevel.open_process(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._nursery.start_soon(self._watch, self._process)

    async def _watch(self, process: trio.Process) -> None:
        await process.wait()
        if process is self._process:
            await self._notices.send((None, Exited(trio.current_time())))

    async def kill(self) -> None:
        """With all that it has started. Its group has its id, for it leads a session."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with trio.move_on_after(REAP_S_MAX):
            await process.wait()
