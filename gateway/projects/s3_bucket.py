"""A bucket of an S3-compatible service, over HTTP: what is there, how large it is, its bytes, and its removal.

Every request has a deadline, no answer is longer than it may be, and no redirect is followed: the endpoint is the
operator's word. Certificates are verified. Nothing of our environment is used, neither proxies nor a .netrc. A bucket
that does not answer, or not as it should, is an outcome; why goes to the log, now and then.
"""

import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from http import HTTPStatus
from typing import Protocol, TypeAlias

import httpx2
import structlog
import trio

from actors.log_throttle import LogThrottle
from actors.node.moment import Moment
from gateway.main.settings import SettingsError
from gateway.projects.s3_settings import S3Settings
from gateway.projects.s3_signature_rules import S3Keys, S3Place, presigned_put, signed_headers
from schemas.echo.errors import EchoError

# They log the addresses that they ask, which have ids of projects in them.
for _name in ("httpx2", "httpcore2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

COMPLAIN_EVERY_S = 60.0  # between two lines about a bucket that does not answer
# Without the right to list a bucket, what is not there is forbidden.
_MISSING = (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN)
_GONE = (HTTPStatus.OK, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND)  # to a DELETE


_FAILURES = (httpx2.HTTPError, httpx2.StreamError, OSError)
_PLAIN = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "heliograph"}
UNREADY_S = 1.0  # for which a bucket that did not answer counts as such; then it is asked again

Take: TypeAlias = Callable[[bytes], Awaitable[EchoError | None]]  # what there is against these bytes


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

    def __init__(self, client: httpx2.AsyncClient, settings: S3Settings, now: Callable[[], Moment]) -> None:
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
                status, _ = await self._ask("HEAD", "")
                self._is_ready = status == HTTPStatus.OK
                if not self._is_ready:
                    self._complain(status)
                good_s = self._settings.reachable_s if self._is_ready else UNREADY_S
                self._known_until_s = self._now().mono_s + good_s
            return self._is_ready

    async def size(self, key: str) -> int | Unseen:
        status, length = await self._ask("HEAD", key)
        if status in _MISSING:
            return Unseen.MISSING
        if status == HTTPStatus.OK and length.isascii() and length.isdigit():
            return int(length)
        self._complain(status)
        return Unseen.UNKNOWN

    async def fetch(self, key: str, take: Take) -> EchoError | bool:
        answer: EchoError | bool | None = None
        with trio.move_on_after(self._settings.fetch_s_max):
            with suppress(*_FAILURES):
                answer = await self._fetch(key, take)
        if answer is None:
            self._complain(None)
        return answer or False

    async def _fetch(self, key: str, take: Take) -> EchoError | bool:
        async with self._client.stream("GET", self._url(key), headers=self._headers("GET", key)) as response:
            if response.status_code != HTTPStatus.OK:
                self._complain(response.status_code)
                return False
            async for piece in response.aiter_raw():
                fault = await take(piece)
                if fault is not None:
                    return fault
        return True

    async def remove(self, key: str) -> bool:
        status, _ = await self._ask("DELETE", key)
        if status not in _GONE:
            self._complain(status)
        return status in _GONE

    async def _ask(self, method: str, key: str) -> tuple[int | None, str]:
        """The status of an answer and its length, if it says one; None: there was none. No body is read."""
        with trio.move_on_after(self._settings.answer_s_max):
            with suppress(*_FAILURES):
                async with self._client.stream(method, self._url(key), headers=self._headers(method, key)) as response:
                    if method == "HEAD" or response.status_code == HTTPStatus.NO_CONTENT:
                        await response.aread()  # there is none, and once that is seen the connection can be used again
                    return response.status_code, response.headers.get("content-length", "")
        return None, ""

    def _url(self, key: str) -> str:
        return f"{self._place.origin}{self._place.path(key)}"

    def _headers(self, method: str, key: str) -> dict[str, str]:
        return {**signed_headers(self._place, self._keys, method, key, self._now_s()), **_PLAIN}

    def _now_s(self) -> int:
        return self._now().wall_ms // 1000

    def _complain(self, status: int | None) -> None:
        self._known_until_s = float("-inf")
        answers = self._complaints.hit(self._now().mono_s)
        if answers:
            log.warning("bucket_unreachable", status=status, answers=answers)


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
    limits = httpx2.Limits(max_connections=settings.looks_max + 1, max_keepalive_connections=settings.looks_max)
    transport = httpx2.AsyncHTTPTransport(verify=verified, limits=limits, trust_env=False)
    timeout = httpx2.Timeout(settings.answer_s_max)
    async with httpx2.AsyncClient(transport=transport, timeout=timeout, trust_env=False) as client:
        yield S3Bucket(client, settings, now)
