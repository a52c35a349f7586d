"""`/api/s/:token/kv` and `/api/s/:token/kv/:key`: values in JSON and protobuf. What is admitted, `SpaceValues` says."""

from actors.space.events import Space
from actors.space.kv_rules import list_wish, precondition
from actors.space.space_values import SpaceValues
from gateway.net.cors import CORS
from gateway.net.exchange import Exchange
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.answers import CONTENT_TYPES, NO_STORE, accepted_encoding, encoding_of_body, refuse
from gateway.spaces.settings import EchoSettings
from schemas.echo.errors import EchoError
from schemas.echo.kv import decode_write, encode_entry
from schemas.echo.times import rfc3339

_LIMIT_DIGITS_MAX = 9


class KvRoutes:
    def __init__(self, values: SpaceValues, settings: EchoSettings, admission: SpaceAdmission) -> None:
        self._values = values
        self._settings = settings
        self._admission = admission

    async def read(self, exchange: Exchange, space: Space, _: str, key: str) -> None:
        encoding = accepted_encoding(exchange.header(b"accept"), space.protocol)
        if isinstance(encoding, EchoError):
            await refuse(exchange, encoding, CORS)
            return
        entry = await self._values.get(space, key)
        if isinstance(entry, EchoError):
            await refuse(exchange, entry, CORS)
            return
        headers = {**NO_STORE, **CORS, b"etag": b'"%d"' % entry.version}
        await exchange.answer(200, encode_entry(entry, encoding), CONTENT_TYPES[encoding].encode(), headers)

    async def write(self, exchange: Exchange, space: Space, token: str, key: str) -> None:
        encoding = encoding_of_body(exchange.header(b"content-type"), space.protocol)
        if isinstance(encoding, EchoError):
            await refuse(exchange, encoding, CORS)
            return
        condition = precondition(exchange.header(b"if-match"), exchange.header(b"if-none-match"))
        if isinstance(condition, EchoError):
            await refuse(exchange, condition, CORS)
            return
        fault_now = self._admission.fault_later(exchange, space, token)
        write = decode_write(await exchange.body(self._settings.body_bytes_max), encoding)
        write = fault_now() or write
        put = write if isinstance(write, EchoError) else await self._values.put(space, token, key, write, condition)
        if isinstance(put, EchoError):
            await refuse(exchange, put, CORS)
            return
        headers = {**NO_STORE, **CORS, b"etag": b'"%d"' % put.entry.version}
        body = encode_entry(put.entry, encoding)
        await exchange.answer(201 if put.is_new else 200, body, CONTENT_TYPES[encoding].encode(), headers)

    async def delete(self, exchange: Exchange, space: Space, _: str, key: str) -> None:
        condition = precondition(exchange.header(b"if-match"), exchange.header(b"if-none-match"))
        if isinstance(condition, EchoError):
            await refuse(exchange, condition, CORS)
            return
        fault = await self._values.delete(space, key, condition)
        if fault is not None:
            await refuse(exchange, fault, CORS)
            return
        await exchange.no_content(CORS)

    async def list(self, exchange: Exchange, space: Space) -> None:
        limit = exchange.only("limit")
        is_number = limit is None or (limit.isascii() and limit.isdigit() and len(limit) <= _LIMIT_DIGITS_MAX)
        wish = (
            list_wish(
                exchange.only("prefix") or "",
                exchange.only("cursor"),
                None if limit is None else int(limit),
                self._settings,
            )
            if is_number
            else EchoError.INVALID_PAYLOAD
        )
        page = wish if isinstance(wish, EchoError) else await self._values.list(space, wish)
        if isinstance(page, EchoError):
            await refuse(exchange, page, CORS)
            return
        keys = [
            {"key": info.key, "version": info.version, "size": info.size, "expires_at": rfc3339(info.expires_at_ms)}
            for info in page.keys
        ]
        await exchange.json({"keys": keys, "next_cursor": page.next_after}, headers={**NO_STORE, **CORS})
