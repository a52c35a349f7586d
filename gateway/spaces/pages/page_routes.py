"""`GET /` with the form, `GET /s/:token` with the room, and what a browser is told when it gets neither.

Rates and tokens are asked for as on every route of spaces, before a page is made.
"""

import re
import secrets
from collections.abc import Callable, Mapping

import segno

from gateway.net.exchange import Exchange
from gateway.net.router import ANY, Routes
from gateway.pages.rendering import HTML_TYPE, Page, Renderer
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.answers import JSON_TYPE, logged_refusal, refuse, refuse_method
from gateway.spaces.creation import CSRF_COOKIE, csrf_cookies
from gateway.spaces.documents import Documents
from gateway.spaces.pages import ASSETS, TEMPLATES
from gateway.spaces.pages.problem_texts import problem_text
from gateway.spaces.settings import EchoSettings
from schemas.echo.errors import EchoError, retry_after_s
from schemas.echo.times import rfc3339

_CSRF_BYTES = 32
_CSRF = re.compile(r"[A-Za-z0-9_-]{43}")
_LIVES_S = (259_200, 86_400, 3_600, 600, 60)  # to choose from, as far as they are allowed
_QR_MASK = 3
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


class PageRoutes:
    def __init__(
        self,
        admission: SpaceAdmission,
        documents: Documents,
        settings: EchoSettings,
        base: Callable[[], str],
        now_ms: Callable[[], int],
    ) -> None:
        self._admission = admission
        self._documents = documents
        self._settings = settings
        self._base = base
        self._now_ms = now_ms
        self._renderer = Renderer(TEMPLATES, ASSETS)
        self.routes: Routes = {"/": (ANY, self._landing), "/s/{}": (ANY, self._room)}

    async def _landing(self, exchange: Exchange) -> None:
        if not await self._is_read(exchange) or not await self._admission.admit_address(exchange, {}, self.refuse):
            return
        settings = self._settings
        csrf = _csrf_value(exchange) if settings.csrf == "strict" else None
        values = {
            "base": self._base(),
            "csrf": csrf,
            "lives": [("", f"{life_text(settings.room_ttl_s)} (the longest)"), *_lives(settings)],
            "wants_password": settings.create_password is not None,
        }
        cookie = f"{CSRF_COOKIE}={csrf}; Secure; Path=/; HttpOnly; SameSite=Strict"
        headers = {} if csrf is None else {b"set-cookie": cookie.encode()}
        await self._renderer.show(exchange, Page("landing.html", values, headers=headers))

    async def _room(self, exchange: Exchange) -> None:
        if not await self._is_read(exchange):
            return
        token = exchange.name
        space = await self._admission.admit(exchange, token, {}, self.refuse)
        if space is None:
            return
        if space.has_iam:  # nothing of it is for those who have the token alone
            await self.refuse(exchange, EchoError.INSUFFICIENT_SCOPE)
            return
        info = self._documents.info(space, token)
        values = {
            "info": info,
            "file_bytes_max": self._settings.file_bytes_max,
            "message_bytes_max": self._settings.message_bytes_max,
            "lives": _lives(self._settings),
            "now": rfc3339(self._now_ms()),
            "prompt": self._documents.prompt(space, token),
            "qr": _qr(info["dashboard_url"]),
        }
        await self._renderer.show(exchange, Page("room.html", values))

    async def _is_read(self, exchange: Exchange) -> bool:
        if exchange.method in ("GET", "HEAD"):
            return True
        await refuse_method(exchange, "GET, HEAD", refuse=self.refuse)
        return False

    async def refuse(
        self,
        exchange: Exchange,
        error: EchoError,
        headers: Mapping[bytes, bytes] = {},
        retry_after_ms: int | None = None,
    ) -> None:
        """In words for people, if it is a browser that asks; else as everywhere. Status and headers are the same."""
        if not _is_browser(exchange.header(b"accept")):
            await refuse(exchange, error, headers, retry_after_ms)
            return
        correlation_id, more = logged_refusal(exchange, error, headers, retry_after_ms)
        title, text = problem_text(error)
        wait_s = None if retry_after_ms is None else retry_after_s(retry_after_ms)
        values = {"title": title, "text": text, "wait_s": wait_s, "correlation_id": correlation_id}
        await self._renderer.show(exchange, Page("problem.html", values, error.status, more))


def life_text(life_s: int) -> str:
    """In the largest unit that it is a whole number of."""
    unit_s, unit = next((unit_s, unit) for unit_s, unit in _UNITS if life_s % unit_s == 0)
    count = life_s // unit_s
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def _lives(settings: EchoSettings) -> list[tuple[int, str]]:
    """Those shorter than the longest."""
    allowed = range(settings.ttl_s_min, min(settings.ttl_s_max + 1, settings.room_ttl_s))
    return [(life_s, life_text(life_s)) for life_s in _LIVES_S if life_s in allowed]


def _is_browser(accept: str | None) -> bool:
    """Browsers ask for HTML by its name; scripts take anything, or JSON."""
    kinds = (accept or "").lower()
    return HTML_TYPE in kinds and JSON_TYPE not in kinds


def _csrf_value(exchange: Exchange) -> str:
    """The one that the browser has, so that forms in two tabs both work; else a new one."""
    known = csrf_cookies(exchange)
    return known[0] if len(known) == 1 and _CSRF.fullmatch(known[0]) else secrets.token_urlsafe(_CSRF_BYTES)


def _qr(url: str) -> str:
    """Black on white whatever the page's colours are, as cameras need it. Its size is for the stylesheet.

    Trying all eight masks for the best one takes 4 ms instead of 1; a link of random characters needs no choice.
    """
    svg: str = segno.make_qr(url, mask=_QR_MASK).svg_inline(
        border=4, light="#fff", svgid="qr", svgclass=None, lineclass=None, omitsize=True, title="QR code of the link"
    )
    return svg
