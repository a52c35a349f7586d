"""`/api/s/…`: from a path with a token in it to whoever answers. Every refusal here has the form of echo's errors.

A path is one of those below or 404, a method one of those that it has or 405, whatever the token is; so neither tells
anything of a space. No path, query, key or token goes into the log.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import jiter

from actors.space.events import Space
from actors.space.spaces import EchoSpaces
from gateway.net.cors import CORS, answer_preflight
from gateway.net.exchange import Exchange
from gateway.net.router import WHOLE, Routes
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.answers import NO_STORE, encoding_of_body, refuse, refuse_method
from gateway.spaces.documents import Documents
from gateway.spaces.kv_routes import KvRoutes
from gateway.spaces.route_scopes import CEREMONIES, needed
from gateway.spaces.settings import EchoSettings
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from schemas.echo.names import is_key
from schemas.echo.scopes import FULL

PREFIX = "/api/s/"
_TTL_S_MAX = 2**31  # of a wish; the rules cut it to what a space may last, and more is malformed
_OF_TWO_WORDS = ("iam", "push")
NO_CORS: Mapping[bytes, bytes] = {}
Handle: TypeAlias = Callable[[Exchange, Space, str, str], Awaitable[None]]  # with the token, and the last name
Methods: TypeAlias = Mapping[str, Handle]


class SpaceRoutes:
    def __init__(
        self,
        spaces: EchoSpaces,
        admission: SpaceAdmission,
        kv: KvRoutes,
        documents: Documents,
        settings: EchoSettings,
        more: Mapping[tuple[str, bool], Methods] = {},
    ) -> None:
        """`more` is by what follows the token, and whether a name follows that."""
        self._spaces = spaces
        self._admission = admission
        self._documents = documents
        self._settings = settings

        async def list_keys(exchange: Exchange, space: Space, _token: str, _name: str) -> None:
            await kv.list(exchange, space)

        self._table: dict[tuple[str, bool], Methods] = {
            ("", False): {"GET": self._info, "DELETE": self._delete, "PATCH": self._patch},
            ("kv", False): {"GET": list_keys},
            ("kv", True): {"GET": kv.read, "POST": kv.write, "DELETE": kv.delete},
            **more,
        }
        self.endpoints = [
            (method, f"{PREFIX}{{}}{f'/{what}' if what else ''}{'/{}' if named else ''}")
            for (what, named), methods in self._table.items()
            for method in methods
        ]
        self.routes: Routes = {f"{PREFIX}*": (WHOLE, self._handle), "/api/*": (WHOLE, _answer_nowhere)}

    async def _handle(self, exchange: Exchange) -> None:
        token, *rest = exchange.path.removeprefix(PREFIX).split("/")
        words = 2 if rest and rest[0] in _OF_TWO_WORDS else 1  # of what is asked for, before a name
        what, names = "/".join(rest[:words]), rest[words:]
        name, place = names[0] if names else "", (what, bool(names))
        cors = NO_CORS if place in CEREMONIES else CORS
        if exchange.method == "OPTIONS" and cors is CORS:
            await answer_preflight(exchange)
            return
        methods = None if len(names) > 1 or (rest and not what) else self._table.get(place)
        if methods is None or exchange.has_encoded_slash:
            await refuse(exchange, EchoError.NOT_FOUND, cors)
            return
        handle = methods.get("GET" if exchange.method == "HEAD" else exchange.method)
        if handle is None:
            allowed = [*methods, *(["HEAD"] if "GET" in methods else [])]
            await refuse_method(exchange, ", ".join(allowed), cors)
            return
        space = await self._admission.admit(exchange, token, cors)
        if space is None:
            return
        if space.has_iam:
            fault = self._admission.access_fault(exchange, space, needed(what, exchange.method))
            if fault is not None:
                await refuse(exchange, fault, cors)
                return
        if what == "kv" and names and not is_key(name):
            await refuse(exchange, EchoError.INVALID_KEY, CORS)
            return
        await handle(exchange, space, token, name)

    # ---- the space itself --------------------------------------------------------------------------------------------

    async def _info(self, exchange: Exchange, space: Space, token: str, _name: str) -> None:
        await exchange.json(self._documents.info(space, token), headers={**NO_STORE, **CORS})

    async def _delete(self, exchange: Exchange, space: Space, _token: str, _name: str) -> None:
        claim = self._claim(exchange, space)
        fault = claim if isinstance(claim, EchoError) else await self._spaces.delete(space.space_id, claim)
        if fault is not None:
            await refuse(exchange, fault, CORS)
            return
        await exchange.no_content(CORS)

    async def _patch(self, exchange: Exchange, space: Space, token: str, _name: str) -> None:
        claim = self._claim(exchange, space)
        fault = claim if isinstance(claim, EchoError) else self._spaces.claim_fault(space.space_id, claim)
        if fault is not None:  # before the body: what it says is the creator's business
            await refuse(exchange, fault, CORS)
            return
        if encoding_of_body(exchange.header(b"content-type"), Encoding.JSON) is not Encoding.JSON:
            await refuse(exchange, EchoError.UNSUPPORTED_MEDIA_TYPE, CORS)
            return
        ttl_s = _wanted_ttl_s(await exchange.body(self._settings.body_bytes_max))
        if ttl_s is None:
            await refuse(exchange, EchoError.INVALID_PAYLOAD, CORS)
            return
        claim = self._claim(exchange, self._spaces.get(space.space_id) or space)  # who was an owner may be none by now
        moved = claim if isinstance(claim, EchoError) else await self._spaces.move_end(space.space_id, claim, ttl_s)
        if isinstance(moved, EchoError):
            is_too_often = moved is EchoError.RATE_LIMITED
            wait_ms = self._spaces.move_wait_ms(space.space_id) if is_too_often else None
            await refuse(exchange, moved, CORS, wait_ms)
            return
        await exchange.json(self._documents.info(moved, token), headers={**NO_STORE, **CORS})

    def _claim(self, exchange: Exchange, space: Space) -> str | EchoError | None:
        """What was shown in the claim's place; None: it takes none, an owner asks. A member who is none is told so."""
        fault = self._admission.access_fault(exchange, space, FULL) if space.has_iam else EchoError.UNAUTHORIZED
        return exchange.bearer() or "" if fault is EchoError.UNAUTHORIZED else fault


def _wanted_ttl_s(body: bytes) -> int | None:
    """As strictly as a value's: None for what is not exactly `{"ttl_seconds": integer}`."""
    try:
        raw = jiter.from_json(body, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return None
    ttl_s = raw.get("ttl_seconds") if isinstance(raw, dict) and len(raw) == 1 else None
    is_ttl = isinstance(ttl_s, int) and not isinstance(ttl_s, bool) and 0 <= ttl_s <= _TTL_S_MAX
    return ttl_s if is_ttl else None


async def _answer_nowhere(exchange: Exchange) -> None:
    """Below `/api/` where no route is: a browser may learn that too."""
    if exchange.method == "OPTIONS":
        await answer_preflight(exchange)
    else:
        await refuse(exchange, EchoError.NOT_FOUND, CORS)
