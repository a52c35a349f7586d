"""The policy of several gateways: a value that all of them watch, judged before it is put and by each that reads it.

A file that is named at start is put where there is none yet, and is not looked at again: from then on the policy is
what an operator pushes. A broken value, put there by some other way, is refused: at the start the gateway does not run,
later the old policy stays. No line of the log quotes the policy. Like the file's, its text may have secrets of other
MCP servers in it, and lies in the engine as it is.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import structlog
import trio

from actors.engine.facts import Facts
from actors.engine.kv import Entry, Gone, NotPut
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.governance.policy.policy import DEFAULT, Policy
from gateway.governance.policy.text import PolicyFlaw, parse
from gateway.main.settings import SettingsError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

KEY = "policy"
SHARED_BYTES_MAX = 768 * 1024  # what the engine takes as one value; a longer policy is refused


Judging: TypeAlias = Callable[[Callable[[bytes], Policy | PolicyFlaw], bytes], Awaitable[Policy | PolicyFlaw]]
"""Somewhere else than in the event loop: a long text takes longer than a call may wait."""


@dataclass(frozen=True, slots=True)
class Pushed:
    revision: int
    policy: Policy


class SharedPolicy:
    """Whoever decides by the policy asks for `current` anew at every call. `load`, then `start`."""

    path: Path | None = None  # there is no file to look at

    def __init__(self, facts: Facts, judging: Judging = trio.to_thread.run_sync) -> None:
        self.current: Policy = DEFAULT
        self.revision = 0  # of the value that was judged last; 0: there is none
        self.text: str | None = None  # of `current`; None: it is the default
        self._kv = facts.kv
        self._judging = judging
        self._told: Entry | None = None
        self._news = trio.Event()
        facts.follow(KEY, self._heard)

    async def load(self, seed: Path | None, seed_text: str | None) -> None:
        """Once, when all facts are told. `seed_text` is what the file says. Raises SettingsError."""
        if seed_text is not None:
            judged = await self._judging(_judged, seed_text.encode())
            if isinstance(judged, PolicyFlaw):
                raise SettingsError(f"governance.policy: {seed}: {judged.words}")
            put = NotPut.MOVED if self._told is not None else await self._kv.put(KEY, seed_text.encode(), expected=0)
            if isinstance(put, int):
                self._told = Entry(KEY, seed_text.encode(), put)
            elif put is not NotPut.MOVED:
                raise SettingsError(f"governance.policy: {seed}: the engine does not take it ({put.value})")
            else:
                log.info("policy_file_not_needed", path=str(seed))
                self._told = self._told or await self._kv.get(KEY)
        flaw = await self._judge()
        if flaw is not None:
            raise SettingsError(
                f"the policy in the engine is broken: {flaw.words}; push another at a gateway that runs, "
                "or put one with `nats kv put`"
            )

    def start(self, supervisor: Supervisor) -> None:
        supervisor.start(ChildSpec(name="policy", run=self.watch, kind=Kind.PERMANENT, stage=Stage.CORE))

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await self._news.wait()
            self._news = trio.Event()
            flaw = await self._judge()
            if flaw is not None:
                log.error("policy_refused", line=flaw.line, message=flaw.message, advice=flaw.advice)

    async def push(self, text: str, expected: int | None = None) -> Pushed | PolicyFlaw | NotPut:
        """In force here when this returns. `expected`: the revision that it replaces; None: the one that holds here."""
        data = text.encode(errors="surrogatepass")
        if len(data) > SHARED_BYTES_MAX:
            return PolicyFlaw(
                None, "it is too long", f"a policy of several gateways has {SHARED_BYTES_MAX} bytes at most"
            )
        policy = await self._judging(_judged, data)
        if isinstance(policy, PolicyFlaw):
            return policy
        put = await self._kv.put(KEY, data, expected=self.revision if expected is None else expected)
        if isinstance(put, NotPut):
            return put
        if put > self.revision:
            self._take(put, policy, data)
        return Pushed(put, policy)

    def _heard(self, change: Entry | Gone) -> None:
        if change.key != KEY:
            return
        if isinstance(change, Gone):  # what holds holds; whoever starts now finds none
            log.warning("policy_deleted")
            self._told, self.revision = None, 0
            return
        self._told = change
        self._news.set()

    async def _judge(self) -> PolicyFlaw | None:
        """Whatever was told last, if it was not judged yet."""
        told = self._told
        if told is None or told.revision == self.revision:
            return None
        policy = await self._judging(_judged, told.data)
        if told is not self._told:
            return None  # there is another by now
        if isinstance(policy, PolicyFlaw):
            self.revision = told.revision
            return policy
        self._take(told.revision, policy, told.data)
        return None

    def _take(self, revision: int, policy: Policy, data: bytes) -> None:
        self.revision, self.text = revision, data.decode()
        self.current = policy
        log.info("policy_loaded", entries=len(policy.entries), revision=policy.revision)


def _judged(data: bytes) -> Policy | PolicyFlaw:
    try:
        return parse(data.decode())
    except UnicodeDecodeError as error:
        return PolicyFlaw(data.count(b"\n", 0, error.start) + 1, "it is not UTF-8", "save it as UTF-8")
