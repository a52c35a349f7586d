"""`POST /devices/renew` as a device asks it: one request, one answer, then the connection is closed.

Where the gateway is dialled over TLS this is too. Time and size are bounded; whatever comes back is an answer of the
contract or a failure in words of our own. What is asked, and what to do with the answer, is for `renewal`.
"""

from dataclasses import dataclass
from typing import Any

import h11
import jiter
import msgspec
import trio

from actors.device.gateway_address import USER_AGENT, GatewayAddress, Stream
from schemas.contract import contract
from schemas.errors import Code

PATH = "/devices/renew"
ASK_S_MAX = 30.0  # for all of it; then it has failed
ANSWER_BYTES_MAX = 16 * 1024  # of a body; a longer one is a failure
READ_BYTES = 4096
_ANSWER = contract("node.renew.answer@1.0.0")
_CODES = frozenset(code.value for code in Code)


@dataclass(frozen=True, slots=True)
class Granted:
    token: str | None
    certificate: bytes  # not checked yet


@dataclass(frozen=True, slots=True)
class Failure:
    reason: str  # fixed words, with at most a status and a code of the closed set
    retry_after_s: float | None = None


class RenewalClient:
    def __init__(self, address: GatewayAddress) -> None:
        self._address = address

    async def __call__(self, token: str, body: dict[str, Any]) -> Granted | Failure:
        try:
            with trio.fail_after(ASK_S_MAX):
                status, data = await self._exchange(token, msgspec.json.encode(body))
        except trio.TooSlowError:
            return Failure("the gateway did not answer in time")
        except (OSError, trio.BrokenResourceError, ExceptionGroup):
            return Failure("the gateway cannot be reached")
        except (h11.LocalProtocolError, UnicodeEncodeError):
            return Failure("the token or the gateway's name cannot stand in a header")
        except h11.RemoteProtocolError:
            return Failure("the answer is not HTTP, or too long")
        return _read(status, data)

    async def _exchange(self, token: str, body: bytes) -> tuple[int, bytes]:
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=ANSWER_BYTES_MAX)
        headers = {
            "host": self._address.host_header,
            "user-agent": USER_AGENT,
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
        }
        stream = await self._address.open_stream()
        try:
            request = h11.Request(method="POST", target=PATH, headers=list(headers.items()))
            parts = [connection.send(event) for event in (request, h11.Data(data=body), h11.EndOfMessage())]
            await stream.send_all(b"".join(part for part in parts if part))
            return await _answer(stream, connection)
        finally:
            await trio.aclose_forcefully(stream)


async def _answer(stream: Stream, connection: h11.Connection) -> tuple[int, bytes]:
    status, body = 0, b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(READ_BYTES)))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > ANSWER_BYTES_MAX:
                raise h11.RemoteProtocolError("too long")
        elif isinstance(event, h11.EndOfMessage):
            return status, body
        elif isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("no answer")


def _read(status: int, data: bytes) -> Granted | Failure:
    try:
        body = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        body = None
    if status != 200:
        return _refused(status, body if isinstance(body, dict) else {})
    if not _ANSWER.is_valid(body):
        return Failure("the answer does not fit its schema")
    assert isinstance(body, dict)
    return Granted(body["token"], bytes.fromhex(body["certificate"]))


def _refused(status: int, body: dict[str, Any]) -> Failure:
    code, retry_after_ms = body.get("code"), body.get("retry_after_ms")
    named = f" {code}" if isinstance(code, str) and code in _CODES else ""
    told_s = retry_after_ms / 1000 if isinstance(retry_after_ms, int) and 0 <= retry_after_ms < 2**53 else None
    return Failure(f"the gateway answered HTTP {status}{named}", told_s)
