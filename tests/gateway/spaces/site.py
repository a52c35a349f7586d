"""The routes of spaces over stores in memory, with a client that speaks ASGI and a clock that tests move."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlencode

import trio

from actors.space.iam import SpaceIam
from actors.space.spaces import EchoSpaces
from gateway.calls.audit import Audit
from gateway.net.router import Router
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.feature import spaces_feature
from gateway.spaces.iam_ceremonies import PasskeyCeremonies
from gateway.spaces.room_push import RoomPush
from gateway.spaces.settings import EchoSettings
from schemas.ulids import Mint
from tests.actors.space.driver import World

BASE = "http://localhost:8420"
PLENTY = EchoSettings(enabled=True, disk_free_min=0.0, creations_burst=1_000, rest_burst=10_000, room_rest_burst=10_000)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        return self.status, self.json["error"]


class AsgiClient:
    def __init__(self, app: Router) -> None:
        self.app = app
        self.on_piece: Callable[[], None] = lambda: None  # told of each message of an answer

    async def ask(
        self,
        method: str,
        target: str,
        body: bytes | Sequence[bytes | trio.Event] = b"",
        client: str = "192.0.2.1",
        /,
        **headers: str,
    ) -> Answer:
        """`headers` have underscores for dashes.

        A body in pieces that ends with b"gone" breaks off there, and waits at every event.
        """
        raw_path, _, query = target.partition("?")
        pieces: list[bytes | trio.Event] = [body] if isinstance(body, bytes) else list(body)
        sent: list[Any] = []

        async def receive() -> Any:
            await trio.lowlevel.checkpoint()
            if pieces and isinstance(event := pieces[0], trio.Event):
                await event.wait()
                del pieces[0]
            if not pieces:
                await trio.sleep_forever()  # the client waits for its answer
            if pieces[0] == b"gone":
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        async def send(message: Any) -> None:
            await trio.lowlevel.checkpoint()
            sent.append(message)
            self.on_piece()

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": unquote(raw_path),
            "raw_path": raw_path.encode(),
            "query_string": query.encode(),
            "headers": [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()],
            "client": (client, 1),
        }
        await self.app(scope, receive, send)
        if not sent:
            return Answer(0, {}, b"")
        start, *bodies = sent
        fields = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], fields, b"".join(part.get("body", b"") for part in bodies))


class Site(AsgiClient):
    def __init__(self, world: World, iam: SpaceIam, app: Router) -> None:
        super().__init__(app)
        self.world = world
        self.iam = iam

    async def make(self, **fields: str) -> Any:
        """A space's document, with its claim."""
        answer = await self.ask("POST", "/spaces", urlencode(fields).encode(), accept="application/json")
        assert answer.status == 201, answer
        return answer.json

    async def put(self, token: str, key: str, value: Any = "v", **headers: str) -> Answer:
        body = json.dumps({"value": value}).encode()
        return await self.ask("POST", f"/api/s/{token}/kv/{key}", body, **headers)


@asynccontextmanager
async def site(
    settings: EchoSettings = PLENTY,
    world: World | None = None,
    passkeys: Callable[[SpaceIam], PasskeyCeremonies | None] = lambda _: None,
    push: Callable[[EchoSpaces, SpaceIam, SpaceAdmission], RoomPush | None] = lambda *_: None,
) -> AsyncIterator[Site]:
    world = world or World(settings)
    mint = Mint(world.random)

    def new_id() -> str:
        return mint.mint(world.now_ms)

    iams: list[SpaceIam] = []
    world.before_load = lambda spaces: iams.append(SpaceIam(spaces, new_id))
    async with world.process() as spaces:
        iam = iams[0]
        admission = SpaceAdmission(spaces.find, spaces.now, settings, iam.find, iam.opened_until_ms)
        audit = Audit(spaces.now)
        room_push = push(spaces, iam, admission)
        feature = spaces_feature(
            spaces, iam, admission, settings, lambda: BASE, new_id, audit, passkeys(iam), room_push
        )
        yield Site(world, iam, Router(new_id, feature.routes, form_of=feature.refusal_form))
