"""`/api/projects…`: from a path to whoever answers it, once the bearer is right. Refusals are echo's closed errors.

What follows the project's id is looked up in a table of patterns: words as they are, `{}` for one last name, `*` for
all that is left of the path.

    routes.add({"static": {"GET": list_objects}, "static/presign": {"POST": presign}, "static/*": {"PUT": put}})

adds to it, from the composition root, before the gateway listens. A handler is given the exchange, the project's id as
it stands in the path (an id that no project has is for the service to refuse), and what `{}` or `*` stood for, decoded
once. Where several patterns fit, the first one in the order words, `{}`, longest `*` that has the method answers; so
`PUT static/presign` is a file of that name. A percent-encoded slash is 404, but behind `*`: there it is the handler's
to refuse (`exchange.has_encoded_slash`).

Routes that take no bearer, as those of push, are not for this table: a feature of its own brings them as
`/api/projects/{}/push/subscribe`, which the router prefers to `/api/projects/*`. A path below `push/` that nobody
brings ends here, as 404.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeAlias

from gateway.net.cors import CORS, answer_preflight
from gateway.net.echo_answers import refuse, refuse_method
from gateway.net.exchange import Exchange
from gateway.net.router import WHOLE, Routes
from gateway.projects.bearer import ProjectBearer
from schemas.echo.errors import EchoError

PATH = "/api/projects"
_NAME = "{}"
_REST = "*"

Handle: TypeAlias = Callable[[Exchange, str, str], Awaitable[None]]  # with the project's id, and the name or the rest
Methods: TypeAlias = Mapping[str, Handle]
AdmitAddress: TypeAlias = Callable[[Exchange, Mapping[bytes, bytes]], Awaitable[bool]]


class ProjectRoutes:
    def __init__(self, bearer: ProjectBearer, admit_address: AdmitAddress, of_all: Methods) -> None:
        """`admit_address`: whether this address may ask for anything now; else the refusal is sent. `of_all` answers
        `/api/projects` itself, with an empty id."""
        self._bearer = bearer
        self._admit_address = admit_address
        self._of_all = of_all
        self._table: dict[str, Methods] = {}
        self.routes: Routes = {PATH: (WHOLE, self._handle_all), f"{PATH}/*": (WHOLE, self._handle_one)}

    def add(self, more: Mapping[str, Methods]) -> None:
        """By what follows the project's id; empty: the project itself."""
        for pattern, methods in more.items():
            if pattern in self._table:
                raise ValueError(f"two parts bring the route {pattern}")
            self._table[pattern] = methods

    @property
    def endpoints(self) -> list[tuple[str, str]]:
        """Methods and paths, as a router has paths."""
        below = [
            (method, f"{PATH}/{{}}{f'/{pattern}' if pattern else ''}")
            for pattern, methods in self._table.items()
            for method in methods
        ]
        return [*((method, PATH) for method in self._of_all), *below]

    async def _handle_all(self, exchange: Exchange) -> None:
        await self._answer(exchange, [(self._of_all, "")], "")

    async def _handle_one(self, exchange: Exchange) -> None:
        project_id, slash, rest = exchange.path.removeprefix(f"{PATH}/").partition("/")
        is_path = bool(project_id) and not (slash and not rest)
        await self._answer(exchange, list(self._fitting(rest, exchange)) if is_path else [], project_id)

    def _fitting(self, rest: str, exchange: Exchange) -> Iterator[tuple[Methods, str]]:
        """What may answer this, and the name or the rest that it is given; the first is the nearest."""
        words = rest.split("/")
        if not exchange.has_encoded_slash:
            if rest in self._table:
                yield self._table[rest], ""
            named = "/".join([*words[:-1], _NAME])
            if len(words) > 1 and words[-1] and named in self._table:
                yield self._table[named], words[-1]
        for count in range(len(words) - 1, 0, -1):
            pattern = "/".join([*words[:count], _REST])
            if pattern in self._table:
                yield self._table[pattern], "/".join(words[count:])

    async def _answer(self, exchange: Exchange, fitting: list[tuple[Methods, str]], project_id: str) -> None:
        if exchange.method == "OPTIONS":
            await answer_preflight(exchange)
            return
        if not fitting:
            await refuse(exchange, EchoError.NOT_FOUND, CORS)
            return
        method = "GET" if exchange.method == "HEAD" else exchange.method
        handle, name = next(((methods[method], name) for methods, name in fitting if method in methods), (None, ""))
        if handle is None:
            allowed = {method: None for methods, _ in fitting for method in methods}
            await refuse_method(exchange, ", ".join([*allowed, *(["HEAD"] if "GET" in allowed else [])]), CORS)
            return
        if not await self._admit_address(exchange, CORS):
            return
        fault = self._bearer.fault(exchange)
        if fault is not None:
            await refuse(exchange, fault, CORS)
            return
        await handle(exchange, project_id, name)
