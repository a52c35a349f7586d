"""`GET /` with the form, `GET /s/:token` with the room, and what a browser is told when it gets neither.

Rates and tokens are asked for as on every route of spaces, before a page is made. The page of a space with IAM has a
sign-in and the room's empty parts; its script fetches everything else, for members.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import segno

from actors.space.events import Space
from gateway.net.exchange import Exchange
from gateway.net.router import ANY, Routes
from gateway.pages.rendering import HTML_TYPE, Page, Renderer
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.answers import JSON_TYPE, NO_STORE, logged_refusal, refuse, refuse_method
from gateway.spaces.creation import CSRF_COOKIE, csrf_cookies
from gateway.spaces.documents import Documents
from gateway.spaces.pages import ASSETS, TEMPLATES
from gateway.spaces.pages.problem_texts import problem_text
from gateway.spaces.settings import EchoSettings
from schemas.echo.errors import EchoError, retry_after_s
from schemas.echo.scopes import FILE_READ, FILE_WRITE, FULL, KV_READ, KV_WRITE, WS_READ, WS_WRITE
from schemas.echo.times import rfc3339

_CSRF_BYTES = 32
_CSRF = re.compile(r"[A-Za-z0-9_-]{43}")
_LIVES_S = (259_200, 86_400, 3_600, 600, 60)  # to choose from, as far as they are allowed
_INVITE_LIVES_S = (86_400, 3_600, 604_800)  # the same for an invite, which ends with its space at the latest
_SCOPE_TEXTS = (
    (KV_READ, "read values"),
    (KV_WRITE, "write and delete values"),
    (FILE_READ, "download files"),
    (FILE_WRITE, "add and delete files"),
    (WS_READ, "receive messages"),
    (WS_WRITE, "send messages"),
    (FULL, "everything, and decide on members: an owner"),
)
_QR_MASK = 3
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


@dataclass(frozen=True, slots=True)
class Protection:
    """Whether spaces can be protected with passkeys here, and one of them still."""

    has_passkeys: bool = False
    is_claim_used: Callable[[str], bool] = lambda _: False


class PageRoutes:
    def __init__(
        self,
        admission: SpaceAdmission,
        documents: Documents,
        settings: EchoSettings,
        base: Callable[[], str],
        now_ms: Callable[[], int],
        protection: Protection,
        *,
        has_push: bool = False,
    ) -> None:
        self._admission = admission
        self._documents = documents
        self._settings = settings
        self._base = base
        self._now_ms = now_ms
        self._protection = protection
        self._has_push = has_push
        self._renderer = Renderer(TEMPLATES, ASSETS)
        self.routes: Routes = {"/": (ANY, self._landing), "/s/{}": (ANY, self._room)}

    async def _landing(self, exchange: Exchange) -> None:
        if not await self._is_read(exchange) or not await self._admission.admit_address(exchange, {}, self.refuse):
            return
        if await self._is_sent_on(exchange):
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
        if await self._is_sent_on(exchange):
            return
        await self._renderer.show(
            exchange, self._sign_in_page(space, token) if space.has_iam else self._room_page(space, token)
        )

    def _room_page(self, space: Space, token: str) -> Page:
        info = self._documents.info(space, token)
        protection = self._protection
        can_protect = protection.has_passkeys and not protection.is_claim_used(space.space_id)
        values = {
            **self._of_both(token),
            "is_iam": False,
            "info": info,
            "prompt": self._documents.prompt(space, token),
            "can_protect": can_protect,
        }
        return Page("room.html", values)

    def _sign_in_page(self, space: Space, token: str) -> Page:
        """For everybody who has the link: so without the key, and what else is for members."""
        known = self._documents.info(space, token)
        info = {name: known[name] for name in ("rest", "websocket_url", "dashboard_url", "encryption_enabled")}
        lives = [(life_s, life_text(life_s)) for life_s in _INVITE_LIVES_S if life_s <= self._settings.ttl_s_max]
        values = {
            **self._of_both(token),
            "is_iam": True,
            "info": info,
            "space_id": space.space_id,
            "scopes": _SCOPE_TEXTS,
            "invite_lives": lives,
        }
        return Page("sign-in.html", values)

    def _of_both(self, token: str) -> dict[str, Any]:
        return {
            "base": self._base(),
            "file_bytes_max": self._settings.file_bytes_max,
            "message_bytes_max": self._settings.message_bytes_max,
            "lives": _lives(self._settings),
            "now": rfc3339(self._now_ms()),
            "qr": _qr(f"{self._base()}/s/{token}"),
            "has_passkeys": self._protection.has_passkeys,
            "has_push": self._has_push,
        }

    async def _is_sent_on(self, exchange: Exchange) -> bool:
        """From the number of this machine to its name, if that is BASE: passkeys need a name. Fragments go along."""
        base = urlsplit(self._base())
        is_there = base.hostname != "localhost" or not _is_number_of_this_machine(exchange.header(b"host"))
        if is_there or not self._protection.has_passkeys or not _is_browser(exchange.header(b"accept")):
            return False
        headers = {**NO_STORE, b"location": f"{self._base()}{quote(exchange.path)}".encode()}
        await exchange.answer(302, b"", b"text/plain; charset=utf-8", headers)
        return True

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


def _is_number_of_this_machine(host: str | None) -> bool:
    return (host or "").partition(":")[0] == "127.0.0.1" or (host or "").startswith("[::1]")


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
