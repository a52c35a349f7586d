"""At start: the server and its objects are looked at, and what is missing is made.

The log's identity is made with its stream, and then written to the configuration bucket. So a stream that was lost, or
exchanged, is found out by the next start, and not taken for an empty log. Several processes may start at once.

A bucket in memory is lost with a server that restarts alone: it is made again while gateways run, too.

What is wrong with what is there is up to `objects_rules`.
"""

import random
from math import inf
from typing import Any

import msgspec
import structlog
import trio
from ulid import ULID

from gateway.engine.jetstream_rules import (
    API,
    EXPECTED_SEQ,
    NO_STREAM,
    NOT_NOW,
    ReadProblem,
    Verdict,
    api_answer,
    api_code,
    got,
    judge,
)
from gateway.engine.link import Link, LinkState, Message
from gateway.engine.nats_runs import Names, Stored
from gateway.engine.objects_rules import (
    CONFIG,
    LIVE,
    LOG_ID_KEY,
    MANIFESTS,
    Problem,
    bucket_config,
    bucket_problems,
    identity_problems,
    log_config,
    log_problems,
    server_problems,
    sync_problems,
)
from gateway.engine.settings import EngineSettings

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

BUCKETS = (LIVE, MANIFESTS, CONFIG)
_AGAIN_S = (0.1, 0.3)
_REMAKE_AGAIN_S = (0.5, 1.5)  # after a bucket could not be made again, and that was said


class NotReadyError(Exception):
    """What is wrong, each with its remedy: for an operator, who has to do something."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class Objects:
    """Looks at, and makes, the objects of one engine."""

    def __init__(self, link: Link, names: Names, settings: EngineSettings) -> None:
        self._link = link
        self._names = names
        self._settings = settings

    async def prepare(self, is_always_synced: bool | None = None) -> str:
        """The log's id. Raises `NotReadyError`."""
        problems = [
            *server_problems(self._link.server_version, self._link.payload_bytes_max),
            *sync_problems(is_always_synced, self._settings),
        ]
        if problems:  # an older server would refuse what is made next, and not say why
            raise NotReadyError(problems)
        for bucket in BUCKETS:
            found = await self._made(bucket_config(self._names, self._settings, bucket))
            problems += bucket_problems(self._names, self._settings, bucket, found)
        log_id = await self._kept_log_id()
        stream = await self._config_of(self._names.log)
        if stream is None and log_id is None:
            stream = await self._made(log_config(self._names, self._settings, str(ULID())))
        stream_log_id = None if stream is None else stream.get("metadata", {}).get(LOG_ID_KEY)
        problems += [] if stream is None else log_problems(self._names, self._settings, stream)
        problems += identity_problems(self._names, log_id, stream_log_id)
        if problems:
            raise NotReadyError(problems)
        if log_id is None:
            log_id = await self._keep_log_id(str(stream_log_id))
            problems += identity_problems(self._names, log_id, stream_log_id)
        if problems:
            raise NotReadyError(problems)
        assert log_id is not None
        return log_id

    async def keep_live(self) -> None:
        """Make the bucket in memory again whenever a server comes back without it; until cancelled."""
        has_changed = trio.Event()
        unfollow = self._link.follow(lambda _: has_changed.set())
        try:
            while True:
                has_changed = trio.Event()
                again_s = inf
                if self._link.state is LinkState.UP and not await self._has_live():
                    again_s = random.uniform(*_REMAKE_AGAIN_S)
                with trio.move_on_after(again_s):
                    await has_changed.wait()
        finally:
            unfollow()

    async def _has_live(self) -> bool:
        try:
            await self._made(bucket_config(self._names, self._settings, LIVE))
        except NotReadyError as error:
            log.warning("engine_bucket_not_made", problem=str(error))
            return False
        return True

    # ── streams ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _made(self, config: dict[str, Any]) -> dict[str, Any]:
        """As it is now: made by us, or found."""
        name = config["name"]
        began_s = trio.current_time()
        while True:
            found = await self._config_of(name)
            if found is not None:
                return found
            # Refused if somebody else is faster, if the servers have not found each other yet, and if it cannot be.
            code = api_code(await self._ask(f"STREAM.CREATE.{name}", config))
            if code and trio.current_time() - began_s >= self._settings.append_patience_s:
                remedy = (
                    f"is there room for {config['num_replicas']} replicas? See the servers' logs, or `nats stream add`"
                )
                raise NotReadyError([Problem(f"NATS does not make {name} (code {code})", remedy)])
            if code:
                await trio.sleep(random.uniform(*_AGAIN_S))

    async def _config_of(self, name: str) -> dict[str, Any] | None:
        """None: there is no such stream."""
        answer = await self._ask(f"STREAM.INFO.{name}", None)
        code = api_code(answer)
        if code == NO_STREAM:
            return None
        said = api_answer(answer)
        if not isinstance(said, dict) or "config" not in said:
            remedy = "is JetStream enabled for this account, and may its users ask for $JS.API.>?"
            raise NotReadyError([Problem(f"NATS does not describe {name} (code {code})", remedy)])
        config: dict[str, Any] = said["config"]
        return config

    async def _ask(self, subject: str, request: object) -> Message:
        """What the API says: until somebody says something other than that it is not able to."""
        data = b"" if request is None else msgspec.json.encode(request)
        began_s = trio.current_time()
        while True:
            answer = await self._link.request(API + subject, data, timeout_s=self._settings.read_s_max)
            if isinstance(answer, Message) and api_code(answer) not in NOT_NOW:
                return answer
            if trio.current_time() - began_s >= self._settings.append_patience_s:
                problem = Problem("JetStream does not answer", "is it enabled on the servers, and for this account?")
                raise NotReadyError([problem])
            await trio.sleep(random.uniform(*_AGAIN_S))

    # ── the log's id ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _log_id_subject(self) -> str:
        return f"$KV.{self._names.bucket(CONFIG)}.log_id"

    async def _kept_log_id(self) -> str | None:
        subject = f"{API}STREAM.MSG.GET.KV_{self._names.bucket(CONFIG)}"
        request = msgspec.json.encode({"last_by_subj": self._log_id_subject})
        began_s = trio.current_time()
        while True:
            found = got(await self._link.request(subject, request, timeout_s=self._settings.read_s_max))
            if not isinstance(found, ReadProblem):
                return found.data.decode() if isinstance(found, Stored) and found.data else None
            if trio.current_time() - began_s >= self._settings.append_patience_s:
                raise NotReadyError([Problem("JetStream does not answer", "see its log")])
            await trio.sleep(random.uniform(*_AGAIN_S))

    async def _keep_log_id(self, log_id: str) -> str | None:
        """What is kept from now on: ours, or that of who was faster."""
        began_s = trio.current_time()
        while trio.current_time() - began_s < self._settings.append_patience_s:
            answer = await self._link.request(
                self._log_id_subject, log_id.encode(), {EXPECTED_SEQ: "0"}, timeout_s=self._settings.attempt_s_max
            )
            if judge(answer, f"KV_{self._names.bucket(CONFIG)}").verdict in (Verdict.LANDED, Verdict.MOVED):
                return await self._kept_log_id()
            await trio.sleep(random.uniform(*_AGAIN_S))
        raise NotReadyError([Problem("JetStream does not take the log's id", "see its log: is there no room?")])
