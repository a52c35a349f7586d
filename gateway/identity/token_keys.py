"""The public keys of whoever issues a deployment's tokens: a JWKS file, read at the start and whenever it changes.

A broken file is refused: at the start the gateway does not run, later the old keys stay. Private keys and tokens are
made elsewhere; to judge a token is left to `access.tokens`. No line of the log quotes the file.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.identity.settings import AccessSettings
from gateway.identity.tokens import keys_of_jwks
from gateway.main.settings import SettingsError
from gateway.main.watched_file import Reading, WatchedFile, read_regular

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

JWKS_BYTES_MAX = 1024 * 1024  # a longer file is refused without being read

Keys = Mapping[str, Ed25519PublicKey]


class TokenKeys:
    """Use `open`."""

    def __init__(
        self, path: Path, settings: AccessSettings, reading: "Reading[Keys | str]" = trio.to_thread.run_sync
    ) -> None:
        """Raises SettingsError when the file cannot be read, or has no key."""
        self.path = path
        self.issuer, self.audience = settings.issuer, settings.audience
        self._file = WatchedFile(path, settings.reload_s, read_keys, self._take, reading)
        keys = read_keys(path)
        if isinstance(keys, str):
            raise SettingsError(f"access.jwks: {path}: {keys}")
        self.current = keys
        self.on_change: Callable[[Keys], None] = lambda _: None

    @classmethod
    def open(cls, settings: AccessSettings) -> "TokenKeys | None":
        """None: the gateway makes its own tokens. Raises SettingsError."""
        if not settings.reload_s > 0:
            raise SettingsError("access.reload_s is a number of seconds above 0")
        if settings.jwks is None:
            if (settings.issuer, settings.audience) != (AccessSettings().issuer, AccessSettings().audience):
                raise SettingsError("access.issuer and access.audience are of the tokens of access.jwks: name that too")
            return None
        return cls(Path(settings.jwks), settings)

    def start(self, supervisor: Supervisor) -> None:
        supervisor.start(ChildSpec(name="token_keys", run=self.watch, kind=Kind.PERMANENT, stage=Stage.CORE))

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        await self._file.watch()

    def _take(self, keys: Keys | str) -> None:
        if isinstance(keys, str):
            log.error("token_keys_refused", message=keys)
            return
        self.current = keys
        self.on_change(keys)
        log.info("token_keys_loaded", keys=len(keys))


def read_keys(path: Path) -> Keys | str:
    """The keys by `kid`, or why there are none and what to do, in fixed words."""
    try:
        data = read_regular(path, JWKS_BYTES_MAX)
    except OSError as error:
        return f"it cannot be read ({error.strerror}): see that it exists and may be read"
    if data is None:
        return "it is not a regular file: name a JSON file"
    if len(data) > JWKS_BYTES_MAX:
        return f"it is too long: a JWKS has at most {JWKS_BYTES_MAX} bytes"
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return "it is not JSON: write a JWKS (RFC 7517)"
    try:
        return keys_of_jwks(document)
    except ValueError as error:
        return str(error)
