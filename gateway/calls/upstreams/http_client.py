"""The HTTP client for upstreams with an address: says when a call's first byte was sent, and reads no endless body.

Nothing of our environment is used, neither proxies nor a .netrc: an upstream gets what the policy says and no more.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2

from gateway.calls.upstreams.reach import REACH
from gateway.calls.upstreams.settings import UpstreamSettings

# They log the addresses that they ask, which may hold secrets.
for _name in ("httpx2", "httpcore2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False

_SENDING = ("http11.send_request_headers.started", "http2.send_request_headers.started")


class BodyTooLongError(Exception):
    """The upstream's fault: a body past all bounds, or a packed one, of which nobody knows how long it is."""


def http_client(headers: Mapping[str, str], timeout_s: float, settings: UpstreamSettings) -> httpx2.AsyncClient:
    """Each read may take `timeout_s`; what a call may take in all is the caller's."""
    limits = httpx2.Limits(max_connections=2 * settings.calls_max, max_keepalive_connections=8)
    return httpx2.AsyncClient(
        headers={"accept-encoding": "identity", **headers},
        # A stream of news is silent for as long as nothing changes.
        timeout=httpx2.Timeout(timeout_s, read=None),
        transport=_Transport(httpx2.AsyncHTTPTransport(limits=limits, trust_env=False), settings.message_bytes_max),
        trust_env=False,
    )


class _Transport(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncHTTPTransport, bytes_max: int) -> None:
        self._inner = inner
        self._bytes_max = bytes_max

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        reach = REACH.get()
        if reach is not None:

            async def trace(event: str, _: Mapping[str, Any]) -> None:
                if event in _SENDING:
                    reach.sent = True

            request.extensions = {**request.extensions, "trace": trace}
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise BodyTooLongError
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            # Events are bounded one by one, by the SDK.
            response.stream = _Bounded(response.stream, self._bytes_max)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: Any, bytes_max: int) -> None:
        self._inner = inner
        self._bytes_max = bytes_max

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > self._bytes_max:
                raise BodyTooLongError
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
