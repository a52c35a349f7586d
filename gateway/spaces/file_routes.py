"""`/api/s/:token/files` and `/api/s/:token/files/:file_id`: uploads as they come, downloads in pieces, never whole."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from actors.space.events import Space
from actors.space.space_files import FileComing, SpaceFiles
from actors.space.store import StoredFile
from gateway.net.body_pace_rules import BodyPace
from gateway.net.byte_range_rules import ByteRange, Unsatisfiable, byte_range
from gateway.net.cors import CORS
from gateway.net.exchange import CORRELATION_ID, BodyTooLarge, Exchange, Receive, Send
from gateway.spaces.admission import SpaceAdmission, address_of
from gateway.spaces.answers import NO_STORE, media_type, refuse
from gateway.spaces.documents import Documents
from gateway.spaces.file_content_rules import disposition, file_name, served_type, stored_type
from gateway.spaces.multipart import OVERHEAD_BYTES_MAX, MultipartFile, boundary_of
from gateway.spaces.settings import EchoSettings
from gateway.spaces.upload_shares import SHARE_AGAIN_MS, UploadShares
from schemas.echo.errors import EchoError, error_object

READ_BYTES = 64 * 1024  # of a download at once
_SANDBOX: Mapping[bytes, bytes] = {
    **CORS,
    b"cache-control": b"private, no-store",
    b"x-content-type-options": b"nosniff",
    b"content-security-policy": b"sandbox; default-src 'none'",
    b"accept-ranges": b"bytes",
}


class FileRoutes:
    def __init__(
        self,
        files: SpaceFiles,
        settings: EchoSettings,
        documents: Documents,
        shares: UploadShares,
        admission: SpaceAdmission,
    ) -> None:
        self._files = files
        self._settings = settings
        self._documents = documents
        self._shares = shares
        self._admission = admission
        self._pace = BodyPace(
            settings.upload_free_s, settings.upload_bytes_per_s_min, idle_s_max=settings.upload_idle_s_max
        )

    async def list(self, exchange: Exchange, space: Space, token: str, _: str) -> None:
        files = await self._files.list(space)
        if isinstance(files, EchoError):
            await refuse(exchange, files, CORS)
            return
        await exchange.json(self._documents.files(files, space, token), headers={**NO_STORE, **CORS})

    async def delete(self, exchange: Exchange, space: Space, _: str, file_id: str) -> None:
        fault = await self._files.delete(space, file_id)
        if fault is not None:
            await refuse(exchange, fault, CORS)
            return
        await exchange.no_content(CORS)

    # ---- in ----------------------------------------------------------------------------------------------------------

    async def upload(self, exchange: Exchange, space: Space, token: str, _: str) -> None:
        content_type = exchange.header(b"content-type") or ""
        if media_type(content_type) != "multipart/form-data":
            await refuse(exchange, EchoError.UNSUPPORTED_MEDIA_TYPE, CORS)
            return
        boundary, fault_now = boundary_of(content_type), self._admission.fault_later(exchange, space, token)
        with self._shares.take(address_of(exchange), space.space_id) as is_free:
            if not is_free:
                await refuse(exchange, EchoError.RATE_LIMITED, CORS, SHARE_AGAIN_MS)
                return
            stored: StoredFile | EchoError = EchoError.INVALID_PAYLOAD
            if boundary is not None:
                stored = await self._take(exchange, space, boundary, fault_now)
        if isinstance(stored, EchoError):
            await refuse(exchange, stored, CORS)
            return
        await exchange.json(self._documents.file(stored, space, token), 201, {**NO_STORE, **CORS})

    async def _take(
        self, exchange: Exchange, space: Space, boundary: bytes, fault_now: Callable[[], EchoError | None]
    ) -> StoredFile | EchoError:
        """Whatever ends this early leaves nothing of the file."""
        body, bytes_left = MultipartFile(boundary), self._settings.file_bytes_max + OVERHEAD_BYTES_MAX
        if exchange.announced_bytes() > bytes_left:
            raise BodyTooLarge  # before a byte of it is asked for
        exchange.pace_body(self._pace)
        coming: FileComing | None = None
        async with AsyncExitStack() as stack:
            while (chunk := await exchange.next_chunk()) is not None:
                ended = fault_now()
                if ended is not None:
                    return ended
                bytes_left -= len(chunk)
                if bytes_left < 0:
                    raise BodyTooLarge
                content = body.feed(chunk)
                if content is None:
                    return EchoError.INVALID_PAYLOAD
                if coming is None and body.head is not None:
                    name, kind = file_name(body.head.name), stored_type(body.head.content_type)
                    begun = await self._files.begin(space, name, kind)
                    if isinstance(begun, EchoError):
                        return begun
                    coming = await stack.enter_async_context(begun)
                if content and coming is not None:
                    fault = await coming.append(content)
                    if fault is not None:
                        return fault
            if coming is None or not body.is_complete:
                return EchoError.INVALID_PAYLOAD
            return fault_now() or await coming.finish()

    # ---- out ---------------------------------------------------------------------------------------------------------

    async def download(self, exchange: Exchange, space: Space, token: str, file_id: str) -> None:
        fault_now = self._admission.fault_later(exchange, space, token)
        file = await self._files.find(space, file_id)
        if isinstance(file, EchoError):
            await refuse(exchange, file, CORS)
            return
        etag, if_range = f'"{file.sha256}"', exchange.header(b"if-range")
        wanted = exchange.header(b"range") if if_range is None or if_range == etag else None
        part = byte_range(wanted, file.size) if exchange.method == "GET" else None
        if isinstance(part, Unsatisfiable):
            # Of the closed set of errors none has 416: the word is that of a parameter that cannot be.
            exchange.refused_with = EchoError.INVALID_PAYLOAD.word
            error = error_object(EchoError.INVALID_PAYLOAD, exchange.logged_id(416))
            known = {CORRELATION_ID: error["correlation_id"].encode()}
            await exchange.json(error, 416, {**CORS, **known, b"content-range": b"bytes */%d" % file.size})
            return
        headers = {**_SANDBOX, b"etag": etag.encode(), b"content-disposition": disposition(file.name).encode()}
        if part is not None:
            headers[b"content-range"] = part.content_range(file.size)
        whole = part or ByteRange(0, file.size)
        fields = [
            (b"content-type", served_type(file.content_type).encode()),
            (b"content-length", b"%d" % whole.length),
            *headers.items(),
        ]
        start: dict[str, Any] = {
            "type": "http.response.start",
            "status": 200 if part is None else 206,
            "headers": fields,
        }
        sent = 0 if exchange.method == "HEAD" else whole.length
        await exchange.hand_over(partial(self._send, start, space, file_id, ByteRange(whole.start, sent), fault_now))

    async def _send(
        self,
        start: dict[str, Any],
        space: Space,
        file_id: str,
        part: ByteRange,
        fault_now: Callable[[], EchoError | None],
        _: Receive,
        send: Send,
    ) -> None:
        """If the file, its space or the reader's grant goes in between, the answer breaks off."""
        await send(start)
        at, end = part.start, part.start + part.length
        while at < end:
            piece = await self._files.read(space, file_id, at, min(READ_BYTES, end - at))
            if piece is None or fault_now() is not None:
                return
            at += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
