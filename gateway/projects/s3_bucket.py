"""A bucket of an S3-compatible service, over HTTP: what is there, how large it is, its bytes, and its removal.

Every request has a deadline, no answer is longer than it may be, and no redirect is followed: the endpoint is the
operator's word. Certificates are verified. Nothing of our environment is used, neither proxies nor a .netrc. A bucket
that does not answer, or not as it should, is an outcome; why goes to the log, now and then.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlsplit

import structlog
import trio

from actors.log_throttle import LogThrottle
from actors.node.moment import Moment
from gateway.main.settings import SettingsError
from gateway.projects.origin_client import Head, LostError, OriginClient, Take
from gateway.projects.s3_settings import S3Settings
from gateway.projects.s3_signature_rules import S3Keys, S3Place, presigned_put, signed_headers
from schemas.echo.errors import EchoError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

COMPLAIN_EVERY_S = 60.0  # between two lines about a bucket that does not answer
# Without the right to list a bucket, what is not there is forbidden.
_MISSING = (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN)
_GONE = (HTTPStatus.OK, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND)  # to a DELETE


_PLAIN = {"accept-encoding": "identity", "user-agent": "heliograph"}
UNREADY_S = 1.0  # for which a bucket that did not answer counts as such; then it is asked again


class Unseen(Enum):
    """Why nobody can say how large an object is."""

    MISSING = auto()
    UNKNOWN = auto()
    """The bucket did not answer, or not as it should."""


class Bucket(Protocol):
    def presigned_put(self, key: str, content_type: str, size: int, now_s: int, life_s: int) -> str:
        """A URL to put exactly that many bytes to."""

    async def is_ready(self) -> bool:
        """Whether it is there and lets us in, as of a few seconds ago."""

    async def size(self, key: str) -> int | Unseen:
        """Of an object."""

    async def fetch(self, key: str, take: Take) -> EchoError | bool:
        """Give its bytes to `take` as they come, until that has something against them. Whether that was all."""

    async def remove(self, key: str) -> bool:
        """Whether it is gone for certain."""


class S3Bucket:
    """Use `opened_bucket`."""

    def __init__(self, client: OriginClient, settings: S3Settings, now: Callable[[], Moment]) -> None:
        self._client = client
        self._settings = settings
        self._now = now
        self._place = S3Place.of(settings.endpoint, settings.bucket, is_virtual=settings.addressing == "virtual")
        self._keys = S3Keys(settings.access_key, settings.secret_key, settings.region)
        self._complaints = LogThrottle(COMPLAIN_EVERY_S)
        self._asking = trio.Lock()
        self._is_ready = False
        self._known_until_s = float("-inf")

    def presigned_put(self, key: str, content_type: str, size: int, now_s: int, life_s: int) -> str:
        return presigned_put(self._place, self._keys, key, content_type, size, now_s, life_s)

    async def is_ready(self) -> bool:
        async with self._asking:  # whoever waits here has the answer that comes
            if self._now().mono_s >= self._known_until_s:
                head = await self._ask("HEAD", "", self._settings.answer_s_max)
                self._is_ready = isinstance(head, Head) and head.status == HTTPStatus.OK
                if not self._is_ready:
                    self._complain(head)
                good_s = self._settings.reachable_s if self._is_ready else UNREADY_S
                self._known_until_s = self._now().mono_s + good_s
            return self._is_ready

    async def size(self, key: str) -> int | Unseen:
        head = await self._ask("HEAD", key, self._settings.answer_s_max)
        if isinstance(head, Head) and head.status in _MISSING:
            return Unseen.MISSING
        if isinstance(head, Head) and head.status == HTTPStatus.OK and head.length is not None:
            return head.length
        self._complain(head)
        return Unseen.UNKNOWN

    async def fetch(self, key: str, take: Take) -> EchoError | bool:
        head = await self._ask("GET", key, self._settings.fetch_s_max, take)
        if isinstance(head, EchoError):
            return head
        if head is None or head.status != HTTPStatus.OK:
            self._complain(head)
            return False
        return True

    async def remove(self, key: str) -> bool:
        head = await self._ask("DELETE", key, self._settings.answer_s_max)
        is_gone = isinstance(head, Head) and head.status in _GONE
        if not is_gone:
            self._complain(head)
        return is_gone

    async def _ask(self, method: str, key: str, s_max: float, take: Take | None = None) -> Head | EchoError | None:
        """None: there was no answer, or not all of one."""
        with trio.move_on_after(s_max), suppress(LostError):
            return await self._client.ask(method, self._place.path(key), self._headers(method, key), take)
        return None

    def _headers(self, method: str, key: str) -> dict[str, str]:
        return {**signed_headers(self._place, self._keys, method, key, self._now_s()), **_PLAIN}

    def _now_s(self) -> int:
        return self._now().wall_ms // 1000

    def _complain(self, head: object) -> None:
        self._known_until_s = float("-inf")
        answers = self._complaints.hit(self._now().mono_s)
        if answers:
            log.warning("bucket_unreachable", status=head.status if isinstance(head, Head) else None, answers=answers)


@asynccontextmanager
async def opened_bucket(settings: S3Settings | None, now: Callable[[], Moment]) -> AsyncIterator[S3Bucket | None]:
    """For as long as the block lasts; None where none is set. Raises SettingsError."""
    if settings is None:
        yield None
        return
    try:
        verified = ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:  # an SSLError is one
        raise SettingsError(f"echo.s3.ca_file is no file with certificates ({error.strerror or error})") from None
    where = urlsplit(settings.endpoint)
    host = where.hostname or ""
    name = f"{settings.bucket}.{host}" if settings.addressing == "virtual" else host
    is_tls = where.scheme == "https"
    client = OriginClient(name, where.port or (443 if is_tls else 80), verified if is_tls else None, settings.looks_max)
    try:
        yield S3Bucket(client, settings, now)
    finally:
        await client.aclose()
