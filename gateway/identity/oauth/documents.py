"""The two documents by which a client finds its way: RFC 9728 of the resource, RFC 8414 of the authorization server.

Their members and their order are those of the contract. The resource's routes are with the resource: `/mcp` and its
views answer with `resource_document`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.identity.oauth.resource_rules import MCP, is_loopback_host
from gateway.identity.oauth.scope_rules import FLEET_SCOPES, SCOPES_SUPPORTED
from gateway.net.cors import CORS, answer_preflight
from gateway.net.exchange import Exchange
from gateway.net.router import ANY, Routes

ISSUER_PATH = "/oauth"
SERVER_DOCUMENT = "/.well-known/oauth-authorization-server/oauth"  # RFC 8414 §3.1: the issuer's path is inserted
_HEADERS: Mapping[bytes, bytes] = {**CORS, b"cache-control": b"public, max-age=300"}


def resource_base(base: str, host: str | None, scheme: str) -> str:
    """Of a request with this `Host`: on this very machine a resource has that name, as its client knows it.

    A challenge names the document under it too: a client compares what it finds with the address that it called.
    """
    return f"{scheme}://{host}" if is_loopback_host(host) else base


def resource_document(
    base: str, host: str | None, scheme: str, path: str = MCP, *, has_server: bool = True
) -> dict[str, Any]:
    """Without `has_server` nobody can sign in here, and it names no authorization server."""
    return {
        "resource": resource_base(base, host, scheme) + path,
        "resource_name": "Heliograph",
        **({"authorization_servers": [base + ISSUER_PATH]} if has_server else {}),
        "scopes_supported": list(SCOPES_SUPPORTED if path == MCP else FLEET_SCOPES),
        "bearer_methods_supported": ["header"],
    }


def server_document(base: str, has_registration: bool) -> dict[str, Any]:
    issuer = base + ISSUER_PATH
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "revocation_endpoint": f"{issuer}/revoke",
        **({"registration_endpoint": f"{issuer}/register"} if has_registration else {}),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none"],
        "scopes_supported": list(SCOPES_SUPPORTED),
        "authorization_response_iss_parameter_supported": True,
    }


class ServerDocument:
    def __init__(self, base: Callable[[], str], has_registration: bool) -> None:
        self._base = base
        self._has_registration = has_registration
        self.routes: Routes = {SERVER_DOCUMENT: (ANY, self._serve)}

    async def _serve(self, exchange: Exchange) -> None:
        await serve_document(exchange, server_document(self._base(), self._has_registration))


async def serve_document(exchange: Exchange, document: Mapping[str, Any]) -> None:
    """For everybody, in browsers too."""
    if exchange.method == "OPTIONS":
        await answer_preflight(exchange)
    elif exchange.method in ("GET", "HEAD"):
        await exchange.json(document, headers=_HEADERS)
    else:
        await exchange.refuse_method("GET", CORS)
