"""One HTTP request and its answer over ASGI: headers, a bounded body, JSON out, errors as envelopes."""

from collections.abc import Awaitable, Callable, Container, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import msgspec
import trio

from gateway.net.body_pace_rules import BODY_PACE, BodyPace
from gateway.net.query_rules import BadQuery as BadQuery
from gateway.net.query_rules import read_fields
from gateway.net.refusal_form import FormOf, RefusalForm, device_form_only
from gateway.net.refusal_log import RefusalLog
from schemas.errors import CODE_OF_STATUS, Code, ErrorEnvelope, envelope, http_status

AsgiScope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

T = TypeVar("T")

CORRELATION_ID = b"x-correlation-id"  # the id under which the log knows the call, or the refusal
BODY_NOW = "heliograph.body_now"  # the door's way to give a body that is there already
WHEN_GONE = "heliograph.when_gone"  # the door's way to tell of a disconnect without a task that waits for it
BODY_BYTES_MAX = 64 * 1024  # a larger one: 413
_LENGTH_DIGITS_MAX = 20  # read of a Content-Length: of one that has more, they are too large for anybody

TOKENS_REMEMBERED_MAX = 256  # of headers; beyond it the one asked for least recently is taken apart anew


@lru_cache(TOKENS_REMEMBERED_MAX)
def _bearer_of(authorization: bytes) -> str | None:
    """The very same string each time, which has its hash already: whoever looks a token up needs no other."""
    scheme, _, token = authorization.decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


class ClientGone(Exception):  # noqa: N818  # named for what happened
    """The client hung up before its request was whole: nobody is there to be answered."""


class BodyTooLarge(Exception):  # noqa: N818
    """More than BODY_BYTES_MAX: 413."""


class Exchange:
    name = ""
    """What stood in the place of `{}` in its route's path."""
    refused_with: str | None = None
    """The word of a refusal, of routes that have words of their own; for whoever counts them."""

    def __init__(
        self,
        scope: AsgiScope,
        receive: Receive,
        send: Send,
        new_id: Callable[[], str],
        form_of: FormOf = device_form_only,
        refusals: RefusalLog | None = None,
    ) -> None:
        """`form_of`: by path, how a refusal is said that no route has words for. `refusals` is everybody's."""
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.scope = scope
        self._receive = receive
        self._send = send
        self.new_id = new_id
        self._form_of = form_of
        self._refusals = refusals or RefusalLog()
        self._body_is_whole = False

    @property
    def has_encoded_slash(self) -> bool:
        """Whether `path` has a `/` that stood there as `%2F`."""
        raw_path: bytes | None = self.scope.get("raw_path")
        return raw_path is not None and b"%" in raw_path and b"%2f" in raw_path.lower()

    def header(self, name: bytes) -> str | None:
        """The header's one value; None when it is absent. Several are as good as a wrong one.

        ASGI has names in lower case, and so must be this one.
        """
        values = [value.decode("latin-1") for key, value in self.scope["headers"] if key == name]
        return ", ".join(values) if values else None

    def has_several(self, name: bytes) -> bool:
        return [key for key, _ in self.scope["headers"]].count(name) > 1

    def bearer(self) -> str | None:
        """The token of the Authorization header; None when there is none of that kind."""
        values = [value for key, value in self.scope["headers"] if key == b"authorization"]
        return _bearer_of(values[0]) if len(values) == 1 else None

    def query(self, name: str) -> str | None:
        """The field's value, the last one if there are several; one that is empty counts as absent. Raises BadQuery."""
        values = self.queries(name)
        return values[-1] if values else None

    def queries(self, name: str) -> list[str]:
        """All values of the field that are not empty. Raises BadQuery."""
        return [value for key, value in read_fields(self.scope["query_string"]) if key == name]

    def only(self, name: str, passing_over: Container[str] = ()) -> str | None:
        """As `query`, of a field that may be given once. Raises BadQuery.

        `passing_over`: fields that are as good as absent when they are malformed, or given more than once.
        """
        values = [value for key, value in read_fields(self.scope["query_string"], passing_over) if key == name]
        if len(values) > 1 and name not in passing_over:
            raise BadQuery
        return values[0] if len(values) == 1 else None

    @property
    def local_url(self) -> str:
        """Of the address on which this request was accepted."""
        host, port = (self.scope.get("server") or ("127.0.0.1", 80))[:2]
        return f"{self.scope.get('scheme', 'http')}://{f'[{host}]' if ':' in host else host}:{port}"

    def body_now(self) -> bytes | None:
        """The body, if no moment passes until it is here; None when it has to be waited for."""
        take = self.extension(BODY_NOW)
        body: bytes | None = None if take is None else take()
        if body is not None and len(body) > BODY_BYTES_MAX:
            raise BodyTooLarge
        return body

    def announced_bytes(self) -> int:
        """How long the body will be, as far as the head says it."""
        length = self.header(b"content-length") or ""
        return int(length[:_LENGTH_DIGITS_MAX]) if length.isascii() and length.isdigit() else 0

    def pace_body(self, pace: BodyPace, form: RefusalForm | None = None) -> None:
        """Let the body come this slowly, where the door has a bound on that. `form`: how a slower one is refused, where
        that is not for the path to say."""
        set_pace = self.extension(BODY_PACE)
        if set_pace is not None:
            set_pace(pace, form)

    async def body(self, bytes_max: int = BODY_BYTES_MAX) -> bytes:
        if self.announced_bytes() > bytes_max:
            raise BodyTooLarge  # before a byte of it is asked for
        chunks, size = [], 0
        self._body_is_whole = False
        while (chunk := await self.next_chunk()) is not None:
            chunks.append(chunk)
            size += len(chunk)
            if size > bytes_max:
                raise BodyTooLarge
        return b"".join(chunks)

    async def next_chunk(self) -> bytes | None:
        """Some more of the body, as it comes; None at its end. How much there may be of it is for the caller."""
        if self._body_is_whole:
            return None
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        self._body_is_whole = not message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        return chunk

    async def unless_gone(
        self, work: Callable[[], Awaitable[T]], has_begun: Callable[[], bool] = lambda: False
    ) -> T | None:
        """What `work` returns. A client that hangs up, once its body is read and before its answer has begun, cancels
        it; then None, if anything. `has_begun` is asked where the server tells of a disconnect after an answer too."""
        when_gone = self.extension(WHEN_GONE)
        if when_gone is not None:
            when_gone()  # the door cancels the request as a whole
            return await work()
        result: T | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_gone, nursery.cancel_scope, has_begun)
            result = await work()
            nursery.cancel_scope.cancel()
        return result

    async def while_there(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """As `unless_gone`, of work that answers itself, in pieces: hanging up cancels it until the answer is whole."""
        when_gone = self.extension(WHEN_GONE)
        if when_gone is None:
            return await self.unless_gone(work)
        with trio.CancelScope() as scope:
            when_gone(scope.cancel)
            return await work()
        return None

    async def _cancel_when_gone(self, scope: trio.CancelScope, has_begun: Callable[[], bool]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not has_begun():
            scope.cancel()

    def extension(self, name: str) -> Any | None:
        """What the server offers beyond ASGI, if it does."""
        return self.scope.get("extensions", {}).get(name)

    def stand_in(self, method: str, path: str, body: bytes, extensions: Mapping[str, Any]) -> "Exchange":
        """Another request, which nobody sent: whoever answers it answers this one. `extensions` are all that it has.

        It has no headers, and so no credential; the body of this one has been read.
        """
        given = False

        async def receive() -> MutableMapping[str, Any]:
            nonlocal given
            if given:
                return await self._receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        made = {"method": method, "path": path, "raw_path": path.encode("utf-8", "surrogatepass"), "query_string": b""}
        scope = {**self.scope, **made, "headers": [], "extensions": dict(extensions)}
        return Exchange(scope, receive, self._send, self.new_id, self._form_of, self._refusals)

    # ---- answers ----------------------------------------------------------------------------------------------------

    def on_answer(self, begun: Callable[[MutableMapping[str, Any]], None]) -> None:
        """Let `begun` see the head of the answer, whoever gives it, and add to it."""
        send = self._send

        async def send_seen(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                begun(message)
            await send(message)

        self._send = send_seen

    def add_to_answer(self, headers: Mapping[bytes, bytes]) -> None:
        """Send these too, whoever answers."""

        def add(message: MutableMapping[str, Any]) -> None:
            message["headers"] = [*message.get("headers", ()), *headers.items()]

        self.on_answer(add)

    async def answer(
        self, status: int, body: bytes, content_type: bytes = b"application/json", headers: Mapping[bytes, bytes] = {}
    ) -> None:
        fields = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [*fields, *headers.items()]},
        )
        await self._send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})

    async def no_content(self, headers: Mapping[bytes, bytes] = {}) -> None:
        await self._send({"type": "http.response.start", "status": 204, "headers": list(headers.items())})
        await self._send({"type": "http.response.body", "body": b""})

    async def hand_over(self, serve: Callable[[Receive, Send], Awaitable[None]]) -> None:
        """Let `serve` answer in its own way."""
        await serve(self._receive, self._send)

    async def json(self, value: Any, status: int = 200, headers: Mapping[bytes, bytes] = {}) -> None:
        await self.answer(status, msgspec.json.encode(value), headers={b"cache-control": b"no-store", **headers})

    async def error(self, error: ErrorEnvelope, status: int, headers: Mapping[bytes, bytes] = {}) -> None:
        retry_ms = error.get("retry_after_ms")
        wait = {} if retry_ms is None else {b"retry-after": str(-(-retry_ms // 1000)).encode()}
        known = {} if "correlation_id" not in error else {CORRELATION_ID: error["correlation_id"].encode()}
        await self.json(error, status, {**wait, **known, **headers})

    async def refuse(
        self,
        code: Code,
        message: str | None = None,
        fix: str | None = None,
        *,
        headers: Mapping[bytes, bytes] = {},
        **more: Any,
    ) -> None:
        status = http_status(code)
        if "correlation_id" not in more:  # else whoever gave it has logged it
            more["correlation_id"] = self.logged_id(status)
        await self.error(envelope(code, message, fix, **more), status, headers)

    async def refuse_status(self, status: int, message: str, fix: str, headers: Mapping[bytes, bytes] = {}) -> None:
        """What has no code of its own borrows one by its status. A path with a form of its own has its own words."""
        form = self._form_of(self.path)
        if form is not None:
            refused = form(status, self.logged_id(status))
            more = {**dict(refused.headers), **headers}
            await self.answer(refused.status, refused.body, more.pop(b"content-type"), more)
            return
        error = envelope(CODE_OF_STATUS[status], message, fix, correlation_id=self.logged_id(status))
        await self.error(error, status, headers)

    async def refuse_method(self, allowed: str, headers: Mapping[bytes, bytes] = {}) -> None:
        more = {**headers, b"allow": b"GET, HEAD" if allowed == "GET" else allowed.encode()}
        await self.refuse_status(405, "This route has another method.", f"Use {allowed}.", more)

    async def cacheable(
        self, tag: str, body: bytes, content_type: bytes, cache_control: bytes, headers: Mapping[bytes, bytes] = {}
    ) -> None:
        """Answer with an ETag, or with 304 to who has it already."""
        headers = {**headers, b"etag": f'"{tag}"'.encode(), b"cache-control": cache_control}
        known = [part.strip().removeprefix("W/") for part in (self.header(b"if-none-match") or "").split(",")]
        if f'"{tag}"' in known or "*" in known:
            await self.answer(304, b"", content_type, headers)
        else:
            await self.answer(200, body, content_type, headers)

    def logged_id(self, status: int, **why: str) -> str:
        """A fresh correlation id. The log has it too, and why."""
        correlation_id = self.new_id()
        self._refusals.write(status, correlation_id, **why)
        return correlation_id
