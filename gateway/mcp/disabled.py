"""`/mcp`, its views, documents and the authorization server where the operator has switched MCP off: 503 for all."""

from gateway.identity.oauth.documents import ISSUER_PATH, SERVER_DOCUMENT
from gateway.main.feature import Feature
from gateway.mcp.operations import disabled_operations
from gateway.mcp.views import VIEWS
from gateway.net.echo_answers import refuse
from gateway.net.exchange import Exchange
from gateway.net.router import ANY, Route
from schemas.echo.errors import EchoError


async def _refuse(exchange: Exchange) -> None:
    await refuse(exchange, EchoError.MCP_DISABLED)


def disabled_feature() -> Feature:
    routes: dict[str, Route] = {path: (ANY, _refuse) for view in VIEWS for path in (view.path, view.metadata_path)}
    sign_in: dict[str, Route] = dict.fromkeys((SERVER_DOCUMENT, ISSUER_PATH, f"{ISSUER_PATH}/*"), (ANY, _refuse))
    paths = (*routes, SERVER_DOCUMENT, ISSUER_PATH, f"{ISSUER_PATH}/token")
    return Feature({**routes, **sign_in}, disabled_operations(paths))
