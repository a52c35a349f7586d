"""Every bound of the door, and what happens when it is reached."""

from dataclasses import dataclass

from gateway.net.addresses import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorLimits:
    """What the section `[door]` of the settings has."""

    head_bytes_max: int = 16 * 1024  # request line and headers; more is 431
    read_bytes_max: int = 16 * 1024  # taken from a socket at once; what is left waits in the kernel
    ahead_bytes_max: int = 64 * 1024  # kept of later requests during one; then no more is read until it is answered

    idle_s_max: float = 60.0  # between requests, and before the first; then closed silently
    head_s_max: float = 10.0  # from a head's first byte to its last; then 408
    sweep_s: float = 0.5  # between looks for connections past one of these two; how much later they may end
    handshake_s_max: float = 10.0  # for TLS; then closed
    body_s_max: float = 20.0  # spent waiting for one body's bytes, in all; then 408
    write_s_max: float = 30.0  # for the peer to take any byte of a response; then the connection is reset
    stopping_write_s_max: float = 3.0  # the same for HTTP/2 and WebSockets once we stop: no cancel reaches their writes
    passed_on_bytes_max: int = 1024  # read at once for HTTP/2 and WebSockets, whose frames cost more by the byte
    linger_s_max: float = 2.0  # for the peer to hang up after a refusal, and for TLS before a 503; then closed
    unreachable_s_max: int = 120  # TCP_USER_TIMEOUT; shorter, and a stream's last words are lost with it

    connections_max: int = 10_000  # in all; the next one is told 503
    # Of IPv6, a /64 is one address.
    connections_per_address_max: int = 256  # for one address; the next one, or its next request by proxy, is told 503
    turns_per_address_max: int = 8  # of one address's connections in a pass of the event loop, if there are others
    refusals_max: int = 64  # being told 503 at the same time; the next one is closed without a word
    handshakes_max: int = 512  # TLS handshakes under way; the next one breaks off the oldest of the address with most
    backlog: int = 1024  # not accepted yet; the kernel drops the next one's SYN, and its client tries again
    accept_again_s: float = 0.1  # pause after accept failed for want of file descriptors or memory

    http2_streams_max: int = 100  # requests at the same time on one HTTP/2 connection; the next one is a protocol error
    http2_resets_per_s_max: int = 100  # streams of one connection that its client resets; then GOAWAY, and it is closed
    hypercorn_requests_max: int = 1_000_000  # on one HTTP/2 connection, one after another; then it is closed
    websocket_bytes_max: int = 64 * 1024  # of one message; a longer one closes the WebSocket with 1009
    websocket_ping_s: float = 25.0  # between pings over HTTP/2: without traffic nobody notices a lost peer


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorSettings(DoorLimits):
    trusted_proxies: tuple[Network, ...] = ()  # peers whose X-Forwarded-For is believed; nobody else's is
