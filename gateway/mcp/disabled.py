"""`/mcp`, its views and their documents where the operator has switched MCP off: 503 for everybody."""

from gateway.main.feature import Feature
from gateway.mcp.views import VIEWS
from gateway.net.echo_answers import refuse
from gateway.net.exchange import Exchange
from gateway.net.router import ANY, Route
from schemas.echo.errors import EchoError


async def _refuse(exchange: Exchange) -> None:
    await refuse(exchange, EchoError.MCP_DISABLED)


def disabled_feature() -> Feature:
    routes: dict[str, Route] = {path: (ANY, _refuse) for view in VIEWS for path in (view.path, view.metadata_path)}
    return Feature(routes)
