"""`POST /spaces`: a new space, for a form (303 to its page) or for a script (201 with its document).

The claim is told once, to whoever made the space: in the fragment of the redirect, which no server and no log sees.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from actors.space.spaces import EchoSpaces
from gateway.net.exchange import BodyTooLarge, Exchange
from gateway.net.rates import Rate
from gateway.net.router import ANY, Routes
from gateway.spaces.admission import SpaceAdmission, address_of
from gateway.spaces.answers import JSON_TYPE, NO_STORE, Refuse, media_type, refuse, refuse_method
from gateway.spaces.documents import Documents
from gateway.spaces.settings import EchoSettings
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from schemas.echo.names import credential_hash

CREATION_PATH = "/spaces"
FORM_BYTES_MAX = 16 * 1024  # more is 413
FORM_TYPE = "application/x-www-form-urlencoded"
CSRF_COOKIE = "__Host-echo_csrf"
_FIELDS = frozenset({"password", "encryption", "protocol", "ttl_seconds", "csrf"})
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_TTL_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class SpaceForm:
    password: str
    is_encrypted: bool
    protocol: Encoding
    ttl_s: int | None
    csrf: str


class Creation:
    def __init__(
        self,
        spaces: EchoSpaces,
        admission: SpaceAdmission,
        documents: Documents,
        settings: EchoSettings,
        base: Callable[[], str],
        refuse: Refuse = refuse,
    ) -> None:
        self._spaces = spaces
        self._admission = admission
        self._documents = documents
        self._settings = settings
        self._base = base
        self._refuse = refuse
        self._creations = Rate(settings.creations_burst, settings.creations_per_h / 3600)
        self._passwords = Rate(settings.passwords_burst, settings.passwords_per_min / 60)
        self.routes: Routes = {CREATION_PATH: (ANY, self._handle)}

    async def _handle(self, exchange: Exchange) -> None:
        if exchange.method != "POST":
            await refuse_method(exchange, "POST", refuse=self._refuse)
            return
        if not await self._admission.admit_address(exchange, {}, self._refuse):
            return
        kind = media_type(exchange.header(b"content-type"))
        if kind not in (None, FORM_TYPE):
            await self._refuse(exchange, EchoError.UNSUPPORTED_MEDIA_TYPE)
            return
        try:
            form = read_form(await exchange.body(FORM_BYTES_MAX))
        except BodyTooLarge:
            form = EchoError.PAYLOAD_TOO_LARGE
        if isinstance(form, EchoError):
            await self._refuse(exchange, form)
            return
        if not self._comes_from_here(exchange, form):
            await self._refuse(exchange, EchoError.CSRF_FAILED)
            return
        address, now_s = address_of(exchange), self._spaces.now().mono_s
        if not await self._knows_password(exchange, form, address, now_s):
            return
        wait_ms = self._creations.take(address, now_s)
        if wait_ms is not None:
            await self._refuse(exchange, EchoError.RATE_LIMITED, retry_after_ms=wait_ms)
            return
        made = await self._spaces.open(form.protocol, form.ttl_s, is_encrypted=form.is_encrypted)
        if isinstance(made, EchoError):
            await self._refuse(exchange, made)
        elif JSON_TYPE in (exchange.header(b"accept") or "").lower():
            document = {**self._documents.info(made.space, made.token), "claim": made.claim}
            await exchange.json(document, 201, NO_STORE)
        else:
            location = f"/s/{made.token}#claim={made.claim}".encode()
            headers = {**NO_STORE, b"location": location, b"referrer-policy": b"no-referrer"}
            await exchange.answer(303, b"", b"text/plain; charset=utf-8", headers)

    async def _knows_password(self, exchange: Exchange, form: SpaceForm, address: str, now_s: float) -> bool:
        """Wrong ones are counted; while there are too many, right ones wait too."""
        wanted = self._settings.create_password
        if wanted is None:
            return True
        wait_ms = self._passwords.wait_ms(address, now_s)
        if wait_ms is not None:
            await self._refuse(exchange, EchoError.RATE_LIMITED, retry_after_ms=wait_ms)
            return False
        if hmac.compare_digest(credential_hash(form.password), credential_hash(wanted)):
            return True
        self._passwords.take(address, now_s)
        await self._refuse(exchange, EchoError.UNAUTHORIZED)
        return False

    def _comes_from_here(self, exchange: Exchange, form: SpaceForm) -> bool:
        """A page of another origin cannot make spaces in a visitor's name. Scripts send neither header."""
        origin, site = exchange.header(b"origin"), exchange.header(b"sec-fetch-site")
        if site is not None and site != "same-origin":
            return False
        if origin is not None and origin != self._base() and not _is_loopback(origin, exchange.header(b"host")):
            return False
        if self._settings.csrf == "standard":
            return True
        values = csrf_cookies(exchange)
        if len(values) != 1 or not values[0]:
            return False
        return hmac.compare_digest(credential_hash(values[0]), credential_hash(form.csrf))


def csrf_cookies(exchange: Exchange) -> list[str]:
    """A browser has one, if our form gave it one."""
    cookies = [part.strip().partition("=") for part in (exchange.header(b"cookie") or "").split(";")]
    return [value for name, _, value in cookies if name == CSRF_COOKIE]


def read_form(body: bytes) -> SpaceForm | EchoError:
    """Fields that are there and empty, as browsers send them, count as absent."""
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=len(_FIELDS))
    except ValueError:
        return EchoError.INVALID_PAYLOAD
    fields = dict(pairs)
    if len(fields) != len(pairs) or not fields.keys() <= _FIELDS:
        return EchoError.INVALID_PAYLOAD
    encryption, protocol = fields.get("encryption", ""), fields.get("protocol") or Encoding.JSON
    ttl = fields.get("ttl_seconds", "")
    is_ttl = not ttl or (ttl.isascii() and ttl.isdigit() and len(ttl) <= _TTL_DIGITS_MAX)
    if encryption not in ("", "on") or protocol not in tuple(Encoding) or not is_ttl:
        return EchoError.INVALID_PAYLOAD
    return SpaceForm(
        fields.get("password", ""),
        encryption == "on",
        Encoding(protocol),
        int(ttl) if ttl else None,
        fields.get("csrf", ""),
    )


def _is_loopback(origin: str, host: str | None) -> bool:
    """A page that this very machine's browser got from the host that it now posts to."""
    return host is not None and origin == f"http://{host}" and host.rpartition(":")[0] in _LOOPBACK
