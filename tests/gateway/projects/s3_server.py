"""A small S3: one bucket in memory that checks signatures with botocore, of URLs and of headers, as S3 does.

The S3 servers that package registries bring take any presigned URL. This one signs what it received anew, with the
host, the headers and the time of the request, and compares the whole URL, or the whole Authorization header.
"""

import hmac
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from ssl import SSLContext
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit

import botocore.auth
import h11
import trio
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

ACCESS_KEY, SECRET_KEY, REGION, BUCKET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCY", "eu-central-1", "a-bucket"
MAX_SKEW_S = 900
STAMP = "%Y%m%dT%H%M%SZ"


@contextmanager
def botocore_at(at: datetime) -> Iterator[None]:
    """Its clock, which is nowhere to be handed in."""
    with patch.object(botocore.auth, "get_current_datetime", lambda: at.replace(tzinfo=None)):
        yield


@dataclass
class Stored:
    content: bytes
    content_type: str


@dataclass
class Asked:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class S3Server:
    scheme: str = "http"
    port: int = 0
    objects: dict[str, Stored] = field(default_factory=dict)
    asked: list[tuple[str, str, int]] = field(default_factory=list)  # method, key, status
    connections: int = 0
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    answer_instead: Callable[[Asked], bytes | None] = lambda _: (
        None
    )  # bytes of an answer that this server would not give
    secret_key: str = SECRET_KEY
    hangs_up: bool = False  # after each answer, without having said so

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def serve(self, stream: trio.abc.Stream) -> None:
        self.connections += 1
        connection = h11.Connection(h11.SERVER)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            async with stream:
                while await self._serve_one(stream, connection):
                    connection.start_next_cycle()

    async def _serve_one(self, stream: trio.abc.Stream, connection: h11.Connection) -> bool:
        """Whether another request may follow."""
        asked, body = None, b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some()))
            elif isinstance(event, h11.Request):
                headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
                asked = Asked(event.method.decode(), event.target.decode(), headers, b"")
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return False
        assert asked is not None
        asked.body = body
        instead = self.answer_instead(asked)
        if instead is not None:
            await stream.send_all(instead)
            return False
        status, answer, kind = self._answer(asked)
        self.asked.append((asked.method, self._key(asked), status))
        length = len(answer)
        head = h11.Response(status_code=status, headers=[("content-length", str(length)), ("content-type", kind)])
        data = connection.send(head) or b""
        if asked.method != "HEAD" and answer:
            data += connection.send(h11.Data(data=answer)) or b""
        await stream.send_all(data + (connection.send(h11.EndOfMessage()) or b""))
        return not self.hangs_up and connection.our_state is h11.DONE and connection.their_state is h11.DONE

    def _key(self, asked: Asked) -> str:
        return unquote(urlsplit(asked.target).path).removeprefix(f"/{BUCKET}").removeprefix("/")

    def _answer(self, asked: Asked) -> tuple[int, bytes, str]:
        key = self._key(asked)
        if not (self._is_presigned(asked) if "X-Amz-Signature" in asked.target else self._is_signed(asked)):
            return 403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>", "application/xml"
        match asked.method:
            case "PUT":
                self.objects[key] = Stored(asked.body, asked.headers["content-type"])
                return 200, b"", "text/plain"
            case "DELETE":
                self.objects.pop(key, None)
                return 204, b"", "text/plain"
            case "HEAD" | "GET":
                if not key:
                    return 200, b"", "application/xml"
                found = self.objects.get(key)
                missing = (404, b"<Error><Code>NoSuchKey</Code></Error>", "application/xml")
                return missing if found is None else (200, found.content, found.content_type)
        return 405, b"", "text/plain"

    def _credentials(self) -> Credentials:
        return Credentials(ACCESS_KEY, self.secret_key)

    def _url(self, asked: Asked) -> str:
        return f"{self.scheme}://{asked.headers['host']}{asked.target}"

    def _is_presigned(self, asked: Asked) -> bool:
        url = self._url(asked)
        fields = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        try:
            at = datetime.strptime(fields["X-Amz-Date"], STAMP).replace(tzinfo=UTC)
            life_s, names = int(fields["X-Amz-Expires"]), fields["X-Amz-SignedHeaders"].split(";")
            headers = {name: asked.headers[name] for name in names if name != "host"}
        except (KeyError, ValueError):
            return False  # without a header that is signed, too
        if not 0 <= (self.now() - at).total_seconds() < life_s:
            return False
        request = AWSRequest(asked.method, url.partition("?")[0], headers=headers)
        signer = botocore.auth.S3SigV4QueryAuth(self._credentials(), "s3", REGION, expires=life_s)
        with botocore_at(at):
            signer.add_auth(request)
        return hmac.compare_digest(request.url, url)

    def _is_signed(self, asked: Asked) -> bool:
        try:
            at = datetime.strptime(asked.headers["x-amz-date"], STAMP).replace(tzinfo=UTC)
            said = asked.headers["authorization"]
        except (KeyError, ValueError):
            return False
        if abs((self.now() - at).total_seconds()) > MAX_SKEW_S:
            return False
        request = AWSRequest(asked.method, self._url(asked))
        with botocore_at(at):
            botocore.auth.S3SigV4Auth(self._credentials(), "s3", REGION).add_auth(request)
        return hmac.compare_digest(request.headers["Authorization"], said)


@asynccontextmanager
async def s3_server(tls: SSLContext | None = None) -> AsyncIterator[S3Server]:
    server = S3Server("http" if tls is None else "https")
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server.port = listener.socket.getsockname()[1]

        async def serve(stream: trio.SocketStream) -> None:
            await server.serve(stream if tls is None else trio.SSLStream(stream, tls, server_side=True))

        nursery.start_soon(partial(trio.serve_listeners, serve, [listener]))
        yield server
        nursery.cancel_scope.cancel()


@dataclass
class PutAnswer:
    status: int
    body: bytes


async def put(url: str, body: bytes, **headers: str) -> PutAnswer:
    """As a browser or curl does, with exactly these headers besides the length."""
    where = urlsplit(url)
    target = f"{where.path}?{where.query}"
    fields = {"host": where.netloc, "content-length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    async with await trio.open_tcp_stream(where.hostname or "", where.port or 80) as stream:
        await stream.send_all(f"PUT {target} HTTP/1.1\r\n{head}connection: close\r\n\r\n".encode() + body)
        answer = b"".join([piece async for piece in stream])
    said, _, content = answer.partition(b"\r\n\r\n")
    return PutAnswer(int(said.split()[1]), content)
