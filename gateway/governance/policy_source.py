"""The policy that holds now, and the file that it comes from: read at the start, and again whenever it changes.

A broken file is refused: at the start the gateway does not run, later the old policy stays. A changed file is read once
two looks in a row have found it the same, so that one that is still being written is not taken for a policy. What a
policy means, and what is wrong with a broken one, is not decided here. No line of the log quotes the file.
"""

import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import structlog
import trio

from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.governance.policy import DEFAULT, Policy
from gateway.governance.policy_text import PolicyFlaw, parse
from gateway.governance.settings import GovernanceSettings
from gateway.settings import SettingsError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

POLICY_BYTES_MAX = 1024 * 1024  # four bytes a character at most; a longer file is refused without being read

Look: TypeAlias = tuple[int, ...] | None  # what a file looks like from outside; None: it cannot be seen
Reading: TypeAlias = Callable[[Callable[[Path], Policy | PolicyFlaw], Path], Awaitable[Policy | PolicyFlaw]]


class PolicySource:
    """Use `open`. Whoever decides by the policy asks for `current` anew at every call."""

    def __init__(
        self, path: Path | None, current: Policy, reload_s: float, reading: Reading = trio.to_thread.run_sync
    ) -> None:
        self.path = path
        self._current = current
        self._reload_s = reload_s
        self._reading = reading  # in a thread: a long policy takes longer to read than a call may wait
        self._judged: Look = None if path is None else _look(path)

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
        source._current = policy
        return source

    @property
    def current(self) -> Policy:
        return self._current

    def start(self, supervisor: Supervisor) -> None:
        if self.path is not None:
            supervisor.start(ChildSpec(name="policy", run=self.watch, kind=Kind.PERMANENT, stage=Stage.CORE))

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        assert self.path is not None
        before = self._judged
        while True:
            await trio.sleep(self._reload_s)
            seen = _look(self.path)
            if seen == before and seen != self._judged:
                await self._judge(self.path, seen)
            before = seen

    async def _judge(self, path: Path, seen: Look) -> None:
        policy = await self._reading(read_policy, path)
        if _look(path) != seen:
            return  # it changed meanwhile: the next looks will tell
        self._judged = seen
        if isinstance(policy, PolicyFlaw):
            log.error("policy_refused", line=policy.line, message=policy.message, advice=policy.advice)
        else:
            self._current = policy
            log.info("policy_loaded", entries=len(policy.entries))


def read_policy(path: Path) -> Policy | PolicyFlaw:
    """The policy in this file, or why there is none; `line` is None when the file cannot be read at all."""
    try:
        # Without blocking: a pipe would keep us waiting for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return PolicyFlaw(None, "it is not a regular file", "name a TOML file")
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(POLICY_BYTES_MAX + 1)
        finally:
            os.close(fd)
    except OSError as error:
        return PolicyFlaw(None, f"it cannot be read ({error.strerror})", "see that it exists and may be read")
    if len(data) > POLICY_BYTES_MAX:
        return PolicyFlaw(None, "it is too long", f"a policy has at most {POLICY_BYTES_MAX} bytes")
    try:
        return parse(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return PolicyFlaw(line, "it is not UTF-8", "save it as UTF-8")


def _look(path: Path) -> Look:
    try:
        seen = os.stat(path)  # noqa: PTH116  # as little work as can be, in the event loop
    except OSError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
