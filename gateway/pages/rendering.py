"""A page's HTML by Quart and Jinja, with the headers that every page has.

Quart is told of no request: who may see what is decided before, and the page comes with all that its template needs.
So whatever Quart logs or refuses, it knows no path and no token to say. What is in a template is escaped.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader, StrictUndefined
from quart import Response, render_template, request
from quart_trio import QuartTrio

from gateway.net.echo_answers import NO_STORE
from gateway.net.exchange import Exchange, Receive, Send
from gateway.net.quart_mount import mount

HTML_TYPE = "text/html"
_CONTENT_TYPE = f"{HTML_TYPE}; charset=utf-8"
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS: Mapping[bytes, bytes] = {
    **NO_STORE,
    b"content-security-policy": _POLICY,
    b"referrer-policy": b"no-referrer",
    b"x-robots-tag": b"noindex",
}
_PAGE = "heliograph.page"
COMMON_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Page:
    template: str
    values: Mapping[str, Any]
    status: int = 200
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    """Beside those of every page."""


class Renderer:
    def __init__(self, templates: Path, assets: str) -> None:
        """`templates` is a feature's folder, used before that of all pages; `assets` is where its assets are served."""
        quart = QuartTrio(__name__)
        quart.jinja_options = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
        quart.jinja_env.loader = FileSystemLoader([templates, COMMON_TEMPLATES])
        quart.jinja_env.globals["assets"] = assets
        quart.config["PROPAGATE_EXCEPTIONS"] = True  # the door answers for what fails, as with every route
        quart.add_url_rule("/", view_func=_render)
        self._app = mount(quart)  # type: ignore[arg-type]  # ASGI's messages, in other words

    async def show(self, exchange: Exchange, page: Page) -> None:
        await exchange.hand_over(partial(self._serve, exchange.method, page))

    async def _serve(self, method: str, page: Page, receive: Receive, send: Send) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "HEAD" if method == "HEAD" else "GET",
            "scheme": "http",
            "path": "/",
            "raw_path": b"/",
            "query_string": b"",
            "headers": [],
            _PAGE: page,
        }

        async def until_gone() -> MutableMapping[str, Any]:
            """Without a body, however much of one the client sends on: Quart would keep it."""
            while (message := await receive())["type"] != "http.disconnect":
                pass
            return message

        await self._app(scope, until_gone, send)


async def _render() -> Response:
    scope: Mapping[str, Any] = request.scope  # what ASGI has, and ours
    page: Page = scope[_PAGE]
    body = (await render_template(page.template, **page.values)).encode()
    headers = {name.decode(): value.decode() for name, value in {**PAGE_HEADERS, **page.headers}.items()}
    response = Response(b"" if request.method == "HEAD" else body, page.status, headers, content_type=_CONTENT_TYPE)
    response.content_length = len(body)
    return response
