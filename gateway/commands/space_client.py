"""An echo service over HTTP, with nothing but its address: any instance, and never a data folder.

What is sent has credentials in it: `http.client` knows neither proxies nor redirects, whatever the environment or the
answer says. What an answer means is for the commands.
"""

import http.client
import json
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

from gateway.commands.parsing import CommandError
from gateway.commands.space_hint_rules import wait_ms, what_to_do
from gateway.commands.space_response import ANSWER_S_MAX, BoundedResponse

ANSWER_BYTES_MAX = 16 * 1024 * 1024  # of a JSON answer; a longer one is no answer of an echo service
LIST_PAGES_MAX = 256  # and
LIST_PAGE_BYTES_MAX = 1024 * 1024  # of a list, a few thousand entries a page; more is no list of an echo service
LIST_CURSOR_BYTES_MAX = 1024  # the same
_ERROR_BYTES_MAX = 64 * 1024
_NO_SUCH_ROUTE = ("not_found", "method_not_allowed")

Body: TypeAlias = bytes | Iterable[bytes] | None


class SpaceRefusedError(Exception):
    """The service answered with an error. The text is its word, its message, and what to do."""

    def __init__(self, word: str, message: str = "", retry_after_ms: int | None = None) -> None:
        self.word = word
        self.retry_after_ms = retry_after_ms
        super().__init__(f"{word}: {' '.join(part for part in (message, what_to_do(word, retry_after_ms)) if part)}")


class UnreachableError(CommandError):
    """The service could not be reached, or not for long enough: another attempt may succeed."""


class EchoService:
    def __init__(self, base: str, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: what a service over https is known by; None: what the system trusts."""
        self.base = base
        self._tls = tls

    def info(self, api: str) -> dict[str, Any] | None:
        """The document of a space; None at an instance that does not have that route."""
        try:
            found = self.ask("GET", api, wants="space_id")
        except SpaceRefusedError as refused:
            if refused.word in _NO_SUCH_ROUTE:
                return None
            raise
        if not isinstance(found["space_id"], str) or not found["space_id"].isascii():
            raise self.is_no_service(200)
        return found

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        wants: str,
        headers: Mapping[str, str] = {},
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> dict[str, Any]:
        """The answer, an object with the key that is wanted. Raises SpaceRefusedError, CommandError."""
        content = None if body is None else json.dumps(body).encode()
        with self.open(method, path, content, {"content-type": "application/json", **headers}) as response:
            return self.document(response, wants, bytes_max)

    def order(self, method: str, path: str, headers: Mapping[str, str] = {}) -> None:
        """Of which only whether it was done is of interest."""
        with self.open(method, path, None, headers):
            pass

    def document(self, response: BoundedResponse, wants: str, bytes_max: int = ANSWER_BYTES_MAX) -> dict[str, Any]:
        with self._answering():
            answer = json_object(response.read(bytes_max + 1)[:bytes_max])
        if answer is None or wants not in answer:
            raise self.is_no_service(response.status)
        return answer

    def listed(self, path: str, wants: str, headers: Mapping[str, str] = {}) -> Iterator[dict[str, Any]]:
        """All of a list that comes in pages; `path` has a query already. Raises CommandError if it does not end."""
        cursor: str | None = None
        for _ in range(LIST_PAGES_MAX):
            more = "" if cursor is None else f"&cursor={quote(cursor, safe='')}"
            page = self.ask("GET", path + more, wants=wants, headers=headers, bytes_max=LIST_PAGE_BYTES_MAX)
            yield from objects(page[wants])
            following = page.get("next_cursor")
            if not isinstance(following, str) or following == cursor:
                return
            if not _is_cursor(following):
                break
            cursor = following
        raise self.is_no_service(200)

    def text(self, response: BoundedResponse) -> str:
        with self._answering():
            return response.read(ANSWER_BYTES_MAX).decode(errors="replace")

    @contextmanager
    def open(self, method: str, path: str, body: Body, headers: Mapping[str, str] = {}) -> Iterator[BoundedResponse]:
        """The response to what was done, to be read within the block. Raises as `ask`.

        A body of pieces goes out as they come, in chunks unless its length is among the headers.
        """
        with self._lent() as connection:
            with self._answering():
                response = self._response(connection, method, path, body, {"accept": "application/json", **headers})
                if response.status >= 300:
                    raise self._refusal(response.status, response.read(_ERROR_BYTES_MAX))
            yield response

    @contextmanager
    def _lent(self) -> Iterator[http.client.HTTPConnection]:
        """A connection for one request."""
        with closing(self.connection()) as connection:
            yield connection

    def _response(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Body,
        headers: Mapping[str, str],
    ) -> BoundedResponse:
        is_long = any(name.lower() == "content-length" for name in headers) or isinstance(body, bytes) or body is None
        target = urlsplit(self.base).path + path
        # A refusal may come before all is sent, and then the connection ends: it is told all the same.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, target, body, headers, encode_chunked=not is_long)
        response: BoundedResponse = connection.getresponse()  # type: ignore[assignment]  # its `response_class`
        return response

    def connection(self) -> http.client.HTTPConnection:
        where = urlsplit(self.base)
        host = where.hostname or ""
        if where.scheme == "http":
            connection = http.client.HTTPConnection(host, where.port, timeout=ANSWER_S_MAX)
        else:
            connection = http.client.HTTPSConnection(host, where.port, timeout=ANSWER_S_MAX, context=self._tls)
        connection.response_class = BoundedResponse
        return connection

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            raise CommandError(untrusted(self.base, error)) from None
        except http.client.BadStatusLine:  # which repeats the line
            raise UnreachableError(unreachable(self.base, "what it says is no HTTP")) from None
        except (OSError, http.client.HTTPException, UnicodeError) as error:  # the last: a host's name that cannot be
            raise UnreachableError(unreachable(self.base, error)) from None

    def _refusal(self, status: int, body: bytes) -> Exception:
        said = json_object(body)
        if said is None or not isinstance(said.get("error"), str):
            # What is not ours has its own words for it, and 404 and 405 mean the same everywhere.
            plain = {404: "not_found", 405: "method_not_allowed"}.get(status)
            return self.is_no_service(status) if plain is None else SpaceRefusedError(plain)
        return SpaceRefusedError(said["error"], str(said.get("message", "")), wait_ms(said))

    def is_no_service(self, status: int) -> CommandError:
        return CommandError(
            f"what answers at {self.base} is not an echo service, or not it alone (HTTP {status}, and not the JSON "
            "that it would send): give the service's own address"
        )


def _is_cursor(text: str) -> bool:
    try:
        return len(text.encode()) <= LIST_CURSOR_BYTES_MAX
    except UnicodeEncodeError:  # half of a pair
        return False


def unreachable(base: str, error: object) -> str:
    return f"{base} does not answer ({error}): see that it runs, and that the address is right"


def untrusted(base: str, error: ssl.SSLCertVerificationError) -> str:
    return (
        f"the certificate of {base} is not one that this system trusts ({error.verify_message}): "
        "SSL_CERT_FILE names a file with others"
    )


def json_object(body: bytes | bytearray | str) -> dict[str, Any] | None:
    """None: it is no JSON, or no object."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def objects(found: Any) -> list[dict[str, Any]]:
    """Of a list in an answer, those that can be what they should be."""
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
