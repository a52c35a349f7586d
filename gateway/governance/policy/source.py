"""The policy that holds now, and the file that it comes from: read at the start, and again whenever it changes.

A broken file is refused: at the start the gateway does not run, later the old policy stays. What a policy means, and
what is wrong with a broken one, is not decided here. No line of the log quotes the file.
"""

from pathlib import Path

import structlog
import trio

from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.governance.policy.policy import DEFAULT, Policy
from gateway.governance.policy.text import PolicyFlaw, parse
from gateway.governance.settings import GovernanceSettings
from gateway.main.settings import SettingsError
from gateway.main.watched_file import Reading, WatchedFile, read_regular

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

POLICY_BYTES_MAX = 1024 * 1024  # four bytes a character at most; a longer file is refused without being read


class PolicySource:
    """Use `open`. Whoever decides by the policy asks for `current` anew at every call."""

    def __init__(
        self,
        path: Path | None,
        current: Policy,
        reload_s: float,
        reading: Reading[Policy | PolicyFlaw] = trio.to_thread.run_sync,
    ) -> None:
        self.path = path
        self.current = current
        self._file = None if path is None else WatchedFile(path, reload_s, read_policy, self._take, reading)

    @classmethod
    def open(cls, settings: GovernanceSettings) -> "PolicySource":
        """Raises SettingsError when the file cannot be read, or is no policy."""
        if not settings.reload_s > 0:
            raise SettingsError("governance.reload_s is a number of seconds above 0")
        if settings.policy is None:
            return cls(None, DEFAULT, settings.reload_s)
        path = Path(settings.policy)
        source = cls(path, DEFAULT, settings.reload_s)
        policy = read_policy(path)
        if isinstance(policy, PolicyFlaw):
            raise SettingsError(f"governance.policy: {path}: {policy.words}")
        source.current = policy
        return source

    def start(self, supervisor: Supervisor) -> None:
        self._say_loaded()
        if self._file is not None:
            supervisor.start(ChildSpec(name="policy", run=self.watch, kind=Kind.PERMANENT, stage=Stage.CORE))

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        assert self._file is not None
        await self._file.watch()

    def _take(self, policy: Policy | PolicyFlaw) -> None:
        if isinstance(policy, PolicyFlaw):
            log.error("policy_refused", line=policy.line, message=policy.message, advice=policy.advice)
        else:
            self.current = policy
            self._say_loaded()

    def _say_loaded(self) -> None:
        log.info("policy_loaded", entries=len(self.current.entries), revision=self.current.revision)


def read_policy(path: Path) -> Policy | PolicyFlaw:
    """The policy in this file, or why there is none; `line` is None when the file cannot be read at all."""
    try:
        data = read_regular(path, POLICY_BYTES_MAX)
    except OSError as error:
        return PolicyFlaw(None, f"it cannot be read ({error.strerror})", "see that it exists and may be read")
    if data is None:
        return PolicyFlaw(None, "it is not a regular file", "name a TOML file")
    if len(data) > POLICY_BYTES_MAX:
        return PolicyFlaw(None, "it is too long", f"a policy has at most {POLICY_BYTES_MAX} bytes")
    try:
        return parse(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return PolicyFlaw(line, "it is not UTF-8", "save it as UTF-8")
