"""One message to many browsers, each through its push service (RFC 8030): sealed for it, signed for the service.

A service is named by whoever subscribed, so before every message its host is held against the operator's list, and all
of its addresses must be public, unless the operator added the host. The connection goes to one of these very addresses;
the certificate must be the host's. There is no redirect, no second try, and of an answer only its head is read.

So many at a time, each for so long, and all of them for so long: who is left over then is told by the outcome.
"""

import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import h11
import trio
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from actors.push.subscription_rules import Outcome, Subscriber
from gateway.push.address_rules import is_public
from gateway.push.aes128gcm import SALT_BYTES, seal
from gateway.push.endpoint_rules import Endpoint, PushHosts, Trust, read_endpoint
from gateway.push.network import ADDRESS_S_MAX, ADDRESSES_MAX, Network
from gateway.push.response_rules import outcome_of
from gateway.push.settings import PushSettings
from gateway.push.vapid import VapidTokens

HEAD_BYTES_MAX = 16 * 1024  # of an answer, with all that comes before the head that counts; then it has failed
_READ_BYTES = 4 * 1024
# Of whoever is reached: a connection that is refused or lost, a certificate of another, an answer that is not HTTP.
_LOST = (OSError, ssl.SSLError, trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError)


class NotReachedError(OSError):
    """There is no address that may be connected to, or none that answers."""


class Sender:
    def __init__(
        self,
        settings: PushSettings,
        tokens: VapidTokens,
        network: Network,
        contexts: tuple[ssl.SSLContext, ssl.SSLContext],
        random: Callable[[int], bytes],
        now_s: Callable[[], float],
    ) -> None:
        """`contexts` are of vendors' hosts and of those that the operator added; `now_s` is the wall clock."""
        self._settings = settings
        self._hosts = PushHosts(settings.hosts)
        self._tokens = tokens
        self._network = network
        self._context_of = {Trust.VENDOR: contexts[0], Trust.OPERATOR: contexts[1]}
        self._random = random
        self._now_s = now_s

    async def send(self, message: bytes, to: Sequence[Subscriber]) -> Mapping[Subscriber, Outcome]:
        """Returns when every one is done, or after `notify_s_max`. `to` is in the order of sending."""
        outcomes = dict.fromkeys(to, Outcome.LEFT_OVER)
        waiting = iter(to)
        found: dict[str, Sequence[str]] = {}  # addresses by name; a look-up is good for one notification

        async def work() -> None:
            for one in waiting:
                outcomes[one] = await self._send_to(one, message, found)

        with trio.move_on_after(self._settings.notify_s_max):
            async with trio.open_nursery() as nursery:
                for _ in range(min(self._settings.sends_max, len(to))):
                    nursery.start_soon(work)
        return outcomes

    async def _send_to(self, one: Subscriber, message: bytes, found: dict[str, Sequence[str]]) -> Outcome:
        endpoint = read_endpoint(one.endpoint)
        trust = Trust.NONE if endpoint is None else self._hosts.trust_in(endpoint.host)
        if endpoint is None or trust is Trust.NONE:
            await trio.lowlevel.checkpoint()
            return Outcome.FAILED
        body = seal(message, one.p256dh, one.auth, generate_private_key(SECP256R1()), self._random(SALT_BYTES))
        status = None
        with trio.move_on_after(self._settings.send_s_max):
            try:
                stream = await self._connected(endpoint, trust, found)
                try:
                    status = await self._post(stream, endpoint, body)
                finally:
                    await trio.aclose_forcefully(stream)
            except _LOST:
                pass
        return Outcome.FAILED if status is None else outcome_of(status)

    async def _connected(self, endpoint: Endpoint, trust: Trust, found: dict[str, Sequence[str]]) -> trio.abc.Stream:
        """Raises what is in `_LOST`."""
        name = endpoint.server_name
        if name not in found:
            found[name] = await self._network.addresses(name)
        addresses = found[name]
        if trust is not Trust.OPERATOR and not all(map(is_public, addresses)):
            raise NotReachedError
        for address in addresses[:ADDRESSES_MAX]:
            plain = None
            with trio.move_on_after(ADDRESS_S_MAX), suppress(OSError):
                plain = await self._network.connect(address)
            if plain is not None:
                return trio.SSLStream(plain, self._context_of[trust], server_hostname=name, https_compatible=True)
        raise NotReachedError

    async def _post(self, stream: trio.abc.Stream, endpoint: Endpoint, body: bytes) -> int | None:
        """The status. None: there was none in what an answer's head may have."""
        http = h11.Connection(h11.CLIENT, HEAD_BYTES_MAX)
        request = h11.Request(
            method="POST",
            target=endpoint.target,
            headers=[
                ("Host", endpoint.host),
                ("TTL", str(self._settings.message_ttl_s)),
                ("Content-Encoding", "aes128gcm"),
                ("Content-Type", "application/octet-stream"),
                ("Content-Length", str(len(body))),
                ("Authorization", self._tokens.authorization(endpoint.origin, int(self._now_s()))),
                ("Connection", "close"),
            ],
        )
        parts = [http.send(event) for event in (request, h11.Data(body), h11.EndOfMessage())]
        await stream.send_all(b"".join(part for part in parts if part))
        received = 0
        while True:
            event = http.next_event()
            if isinstance(event, h11.Response):
                return event.status_code
            if event is h11.NEED_DATA:
                chunk = await stream.receive_some(_READ_BYTES)
                received += len(chunk)
                if received > HEAD_BYTES_MAX:
                    return None
                http.receive_data(bytes(chunk))
            elif not isinstance(event, h11.InformationalResponse):
                return None
