"""The project API itself, as handlers of `project_routes`: bodies in, documents out. What they mean, services say."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from gateway.net.cors import CORS
from gateway.net.echo_answers import refuse
from gateway.net.exchange import Exchange
from gateway.projects.answers import HEADERS, answer, answer_done, read_json
from gateway.projects.iam_service import IamService
from gateway.projects.project_routes import Handle, Methods
from gateway.projects.project_service import ProjectService
from schemas.echo.errors import EchoError
from schemas.echo.names import is_ulid

_LIMIT_DIGITS_MAX = 9
_MARKDOWN = b"text/markdown; charset=utf-8"

Serve: TypeAlias = Callable[[str, object], Awaitable[Mapping[str, Any] | EchoError]]  # of a project's id and a body


class OperatorRoutes:
    def __init__(self, service: ProjectService, iam: IamService, body_bytes_max: int, list_max: int) -> None:
        self._service = service
        self._iam = iam
        self._body_bytes_max = body_bytes_max
        self._list_max = list_max
        self.of_all: Methods = {"GET": self._list, "POST": self._create}
        self.table: Mapping[str, Methods] = {
            "": {"GET": self._get, "DELETE": self._delete},
            "description": {"GET": self._description},
            "prompt": {"PUT": self._taking(service.set_prompt)},
            "book": {"POST": self._taking(service.book)},
            "spaces": {"POST": self._taking(service.add_space, 201)},
            "iam": {"POST": self._taking(iam.switch)},
            "iam/tokens": {"GET": self._tokens, "POST": self._taking(iam.give_token, 201)},
            "iam/tokens/{}": {"DELETE": self._end_token},
            "iam/invites": {"POST": self._taking(iam.invite, 201)},
        }

    def _taking(self, serve: Serve, status: int = 200) -> Handle:
        """What takes a body and answers with a document."""

        async def handle(exchange: Exchange, project_id: str, _name: str) -> None:
            body = await read_json(exchange, self._body_bytes_max)
            await answer(exchange, body if isinstance(body, EchoError) else await serve(project_id, body), status)

        return handle

    async def _create(self, exchange: Exchange, _project_id: str, _name: str) -> None:
        body = await read_json(exchange, self._body_bytes_max)
        await answer(exchange, body if isinstance(body, EchoError) else await self._service.create(body), 201)

    async def _list(self, exchange: Exchange, _project_id: str, _name: str) -> None:
        cursor, limit = exchange.only("cursor"), exchange.only("limit")
        is_number = limit is None or (limit.isascii() and limit.isdigit() and len(limit) <= _LIMIT_DIGITS_MAX)
        wanted = int(limit) if is_number and limit is not None else self._list_max
        if not is_number or wanted == 0 or (cursor is not None and not is_ulid(cursor)):
            await refuse(exchange, EchoError.INVALID_PAYLOAD, CORS)
            return
        await answer(exchange, self._service.page(cursor, min(wanted, self._list_max)))

    async def _get(self, exchange: Exchange, project_id: str, _name: str) -> None:
        await answer(exchange, self._service.get(project_id))

    async def _delete(self, exchange: Exchange, project_id: str, _name: str) -> None:
        await answer_done(exchange, await self._service.delete(project_id))

    async def _description(self, exchange: Exchange, project_id: str, _name: str) -> None:
        text = self._service.description(project_id)
        if isinstance(text, EchoError):
            await refuse(exchange, text, CORS)
        else:
            await exchange.answer(200, text.encode(), _MARKDOWN, HEADERS)

    async def _tokens(self, exchange: Exchange, project_id: str, _name: str) -> None:
        await answer(exchange, self._iam.tokens(project_id))

    async def _end_token(self, exchange: Exchange, project_id: str, name: str) -> None:
        await answer_done(exchange, await self._iam.end_token(project_id, name))
