"""What a client may try with a request's line and headers, in memory: answers are from the closed set, never a 500."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.node.fleet import Fleet
from actors.stream.streams import Streams
from actors.supervision.supervisor import Supervisor
from tests.actors.node.harness import Gateway
from tests.gateway.api.client import Client, token
from tests.gateway.api.test_app import refused
from tests.gateway.calls.upstreams.site import AGENTS, by_http, free_port, front


@pytest.fixture
async def client(nursery: trio.Nursery) -> AsyncIterator[Client]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    fleet = Fleet(supervisor, Gateway().services)
    yield Client(fleet, Streams(supervisor, fleet))
    supervisor.request_stop()


@pytest.mark.parametrize(
    "query",
    [
        "&".join(f"x{number}=1" for number in range(21)),
        "limit=1" + "&" * 5000,
        "limit=%",
        "limit=%zz",
        "cursor=%4",
        "cursor=%ff",
        "cursor=%ED%A0%80",
        "cursor=\u00ff",
        "cursor=\u0663",
    ],
)
@pytest.mark.parametrize("path", ["/mcp/tools", "/devices"])
async def test_query_that_cannot_be_read_is_400(
    autojump_clock: MockClock, client: Client, path: str, query: str
) -> None:
    assert refused(await client.get(f"{path}?{query}", token())) == (400, "E_MANIFEST_INVALID")


async def test_query_of_20_fields_is_read(autojump_clock: MockClock, client: Client) -> None:
    query = "&".join([*(f"x{number}=%20" for number in range(19)), "limit=1"])
    assert (await client.get(f"/mcp/tools?{query}", token())).status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/mcp/tools/call", 405), ("/mcp/tools", 200), ("/schemas/", 200), ("/schemas/error@1.1.0", 200),
        ("/schemas/nope", 404), ("/devices", 200), ("/devices/x/manifest", 404), ("/devices//manifest", 404),
        ("/.well-known/jwks.json", 200), ("/healthz", 200), ("/readyz", 200), ("/nope", 404), ("", 404),
    ],
)  # fmt: skip
async def test_head_of_every_route_is_its_get_without_a_body(
    autojump_clock: MockClock, client: Client, path: str, status: int
) -> None:
    headers = {"authorization": f"Bearer {token()}"}
    head, get = await client.request("HEAD", path, headers=headers), await client.request("GET", path, headers=headers)
    assert head is not None
    assert get is not None
    assert (head.status, head.body) == (status, b"")
    if status != 405:
        assert get.status == status
        assert head.headers["content-length"] == str(len(get.body))


async def test_flood_of_headers_costs_an_answer(autojump_clock: MockClock, client: Client) -> None:
    many = {f"x-{number}": '"a",' * 100 for number in range(200)}
    known = ",".join(f'"{number}"' for number in range(3000))
    response = await client.request("GET", "/schemas/error@1.1.0", headers=many | {"if-none-match": known})
    assert response is not None
    assert response.status == 200


async def test_cursor_that_names_a_server_of_another_tenant_is_as_good_as_one_that_names_none(tmp_path: Path) -> None:
    policy = AGENTS + by_http(free_port(), "theirs", tenants=["globex"]) + by_http(free_port(), "ours")
    async with front(tmp_path, policy) as here:
        answers = [await here.http.get("/mcp/tools", params={"cursor": f"{name}.x"}) for name in ("theirs", "nobody")]
        assert [answer.status_code for answer in answers] == [400, 400]
        assert answers[0].json()["message"] == answers[1].json()["message"]
        assert (await here.http.get("/mcp/tools", params={"cursor": "ours.x"})).status_code == 200
        async with here.site.client(here.token) as client:
            for name in ("theirs", "nobody"):
                error = (await client.modern("tools/list", cursor=f"{name}.x")).json()["error"]
                assert error["data"]["code"] == "CURSOR_INVALID"
