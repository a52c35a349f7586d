"""From where a browser may reach the endpoint: the hosts and origins that it takes, and CORS where every origin may."""

from mcp.server.transport_security import TransportSecuritySettings

from gateway.net.cors import CORS, PREFLIGHT
from gateway.net.exchange import Exchange

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_EXPOSE = b"access-control-expose-headers"

EXPOSED = {**CORS, _EXPOSE: CORS[_EXPOSE] + b", MCP-Session-Id, MCP-Protocol-Version"}


def security(public_url: str | None) -> TransportSecuritySettings:
    """Hosts and origins by which a browser may reach this endpoint: the public one, and this machine's own."""
    hosts, origins = list(_LOOPBACK), [f"http://{host}" for host in _LOOPBACK]
    if public_url is not None:
        hosts.append(public_url.split("://", 1)[1])
        origins.append(public_url)
    return TransportSecuritySettings(
        allowed_hosts=[*hosts, *(f"{host}:*" for host in _LOOPBACK)],
        allowed_origins=[*origins, *(f"http://{host}:*" for host in _LOOPBACK)],
    )


async def answer_preflight(exchange: Exchange) -> None:
    """`EXPOSED` is added to every answer already."""
    await exchange.no_content({name: value for name, value in PREFLIGHT.items() if name not in EXPOSED})
