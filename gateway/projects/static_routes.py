"""`/api/projects/:id/static…` and `/upload/…`: published files listed, presigned, put and deleted.

Below the project API the bearer is asked for already. An upload URL is its own credential: it is looked at when the
request comes, and once more when its last byte has. Bodies come as they are, and are never held whole.
"""

from collections.abc import Callable, Mapping
from urllib.parse import quote

from actors.project.site_objects import StillGood
from gateway.net.body_pace_rules import BodyPace
from gateway.net.cors import CORS, answer_preflight
from gateway.net.echo_answers import refuse, refuse_method
from gateway.net.exchange import BodyTooLarge, Exchange
from gateway.net.rates import address_of
from gateway.net.router import WHOLE, Routes
from gateway.projects.answers import HEADERS, answer, answer_done, read_json
from gateway.projects.project_routes import AdmitAddress, Methods
from gateway.projects.put_signature_rules import UPLOAD, PutSignatures
from gateway.projects.settings import ProjectsSettings
from gateway.projects.static_service import Put, StaticService
from schemas.echo.errors import EchoError
from schemas.echo.site_paths import decoded_path

SHARE_AGAIN_MS = 1_000  # until another attempt makes sense of who has too many uploads under way
BODY_BYTES_MAX = 8 * 1024  # of what is asked to be presigned
_LIMIT_DIGITS_MAX = 9
_BEFORE_STATIC = 5  # slashes up to a path: /api/projects/ID/static/PATH
_BEFORE_UPLOAD = 3  # /upload/ID/PATH


class StaticRoutes:
    def __init__(
        self,
        service: StaticService,
        settings: ProjectsSettings,
        signatures: PutSignatures | None,
        admit_address: AdmitAddress,
        now_ms: Callable[[], int],
    ) -> None:
        self._service = service
        self._settings = settings
        self._signatures = signatures
        self._admit_address = admit_address
        self._now_ms = now_ms
        self._pace = BodyPace(
            settings.upload_free_s, settings.upload_bytes_per_s_min, idle_s_max=settings.upload_idle_s_max
        )
        self.table: Mapping[str, Methods] = {
            "static": {"GET": self._list},
            "static/presign": {"POST": self._presign},
            "static/*": {"PUT": self._put, "DELETE": self._delete},
        }
        self.routes: Routes = {f"{UPLOAD}*": (WHOLE, self._upload)}

    async def _list(self, exchange: Exchange, project_id: str, _: str) -> None:
        limit = exchange.only("limit")
        if limit is not None and not (limit.isascii() and limit.isdigit() and len(limit) <= _LIMIT_DIGITS_MAX):
            await refuse(exchange, EchoError.INVALID_PAYLOAD, CORS)
            return
        wanted = None if limit is None else int(limit)
        page = self._service.list(project_id, exchange.only("prefix"), exchange.only("cursor"), wanted)
        await answer(exchange, page)

    async def _presign(self, exchange: Exchange, project_id: str, _: str) -> None:
        body = await read_json(exchange, BODY_BYTES_MAX)
        await answer(exchange, body if isinstance(body, EchoError) else await self._service.presign(project_id, body))

    async def _delete(self, exchange: Exchange, project_id: str, _: str) -> None:
        path = _path(exchange, _BEFORE_STATIC)
        await answer_done(exchange, await self._service.delete(project_id, path or ""))

    async def _put(self, exchange: Exchange, project_id: str, _: str) -> None:
        path = _path(exchange, _BEFORE_STATIC)
        await self._take(exchange, project_id, path or "", self._settings.object_bytes_max)

    async def _upload(self, exchange: Exchange) -> None:
        if exchange.method == "OPTIONS":
            await answer_preflight(exchange)
            return
        if exchange.method != "PUT":
            await refuse_method(exchange, "PUT", CORS)
            return
        if not await self._admit_address(exchange, CORS):
            return
        if self._signatures is None:
            await refuse(exchange, EchoError.API_AUTH_NOT_CONFIGURED, CORS)
            return
        project_id = exchange.path.removeprefix(UPLOAD).partition("/")[0]
        path, content_type = _path(exchange, _BEFORE_UPLOAD) or "", exchange.header(b"content-type") or ""
        query: bytes = exchange.scope["query_string"]
        grant = self._signatures.grant(project_id, path, content_type, query, self._now_ms())
        if grant is None:
            await refuse(exchange, EchoError.SIGNATURE_MISMATCH, CORS)
            return

        def still_good() -> EchoError | None:
            return EchoError.SIGNATURE_MISMATCH if grant.is_over(self._now_ms()) else None

        await self._take(exchange, project_id, path, grant.bytes_max, still_good)

    async def _take(
        self,
        exchange: Exchange,
        project_id: str,
        path: str,
        bytes_max: int,
        still_good: StillGood = lambda: None,
    ) -> None:
        if exchange.header(b"content-encoding") not in (None, "identity"):
            # Nobody would say so to whoever reads it: the bytes are served as they are.
            await refuse(exchange, EchoError.UNSUPPORTED_MEDIA_TYPE, CORS)
            return
        if exchange.header(b"content-range") is not None:  # a part of a file, which would become the whole of it
            await refuse(exchange, EchoError.INVALID_PAYLOAD, CORS)
            return
        if exchange.announced_bytes() > min(bytes_max, self._settings.object_bytes_max):
            raise BodyTooLarge  # before a byte of it is asked for
        exchange.pace_body(self._pace)
        content_type, address = exchange.header(b"content-type") or "", address_of(exchange)
        put = await self._service.put(
            project_id, path, content_type, exchange.next_chunk, address, bytes_max, still_good
        )
        if isinstance(put, Put):
            await exchange.json(put.document, 201 if put.is_new else 200, HEADERS)
        else:
            await refuse(exchange, put, CORS, SHARE_AGAIN_MS if put is EchoError.RATE_LIMITED else None)


def _path(exchange: Exchange, slashes_before: int) -> str | None:
    """What follows the route, decoded once; None: no file can have it."""
    raw_path: bytes = exchange.scope.get("raw_path") or quote(exchange.path).encode()
    # A slash in disguise is nowhere in it, so they count as many as in the path that the route was found by.
    return None if exchange.has_encoded_slash else decoded_path(raw_path.split(b"/", slashes_before)[-1])
