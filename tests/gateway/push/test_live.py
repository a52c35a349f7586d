"""Web Push of a whole gateway: over its door, on a disk, as tools, to a push service on a real socket."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from structlog.testing import capture_logs

from gateway.main.server import Running, running
from gateway.main.settings import Settings, SettingsError, load
from schemas.contract import Contract
from schemas.echo.room_tools import ROOM_TOOLS
from tests.actors.space.shelves import SqliteShelf
from tests.gateway.api.live import Answer
from tests.gateway.mcp.site import Client
from tests.gateway.mcp.space_site import call, failure
from tests.gateway.projects.test_live import BEARER
from tests.gateway.push.test_vapid import PRIVATE, PUBLIC
from tests.gateway.push.vendor import Browser, Reach, Vendor, on_a_socket
from tests.gateway.spaces.test_live import ON, ask, make, request

PATIENCE_S = 30
HOST = "push.canary.lan"
KEYS = {"VAPID_PUBLIC_KEY": PUBLIC, "VAPID_PRIVATE_KEY": PRIVATE, "VAPID_SUBJECT": "mailto:ops@example.org"}
CANARIES = (b"canary", PRIVATE.encode())
FROST = {"title": "title-canary", "body": "body-canary", "data": {"x": "data-canary"}}


def settings(folder: Path, ca: Path | None = None, **more: object) -> Settings:
    flags = {"push.hosts": [HOST], "push.ca_certificates": None if ca is None else str(ca), "http.metrics_open": True}
    environment = {**KEYS, "API_BEARER_TOKEN": BEARER}
    return load(None, environment, {"data": str(folder / "data"), **ON, **flags, **more})


@asynccontextmanager
async def vendor_at(folder: Path) -> AsyncIterator[tuple[Vendor, Reach]]:
    """The operator's own, on an address of this machine."""
    async with trio.open_nursery() as nursery:
        vendor = Vendor(folder, HOST)
        reach = await on_a_socket(vendor, nursery)
        reach.addresses_of = lambda _: ["127.0.0.1"]
        yield vendor, reach
        nursery.cancel_scope.cancel()


async def post(gateway: Running, path: str, body: object, *headers: str) -> Answer:
    return await ask(gateway, request("POST", path, json.dumps(body).encode(), *headers))


@asynccontextmanager
async def mcp(gateway: Running, token: str) -> AsyncIterator[Client]:
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    headers |= {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
        yield Client(http, f"http://{gateway.http}/mcp")


async def test_space_notifies_after_a_restart_and_nothing_is_left_of_it_anywhere(tmp_path: Path) -> None:
    ada = Browser("/canary", HOST)
    with trio.fail_after(PATIENCE_S), capture_logs() as lines:
        async with vendor_at(tmp_path) as (vendor, reach):
            config = settings(tmp_path, vendor.ca)
            async with running(config, push_network=reach) as gateway:
                made = await make(gateway)
                api = f"/api/s/{made['token']}/push"
                subscribed = await post(gateway, f"{api}/subscribe", {**ada.subscription, "uid": "canary-uid"})
                assert subscribed.status == 201
            assert SqliteShelf(tmp_path / "data").files_with(*CANARIES) == set()
            async with running(config, push_network=reach) as gateway:
                notified = await post(gateway, f"{api}/notify", {**FROST, "tuid": "canary-uid"})
                assert notified.json == {"attempted": 1, "sent": 1, "removed": 0, "failed": 0}
                assert ada.got(vendor) == [FROST]
                vendor.answers = {"/canary": 410}
                assert (await post(gateway, f"{api}/notify", FROST)).json["removed"] == 1
                assert (await post(gateway, f"{api}/notify", FROST)).json["attempted"] == 0
                metrics = (await ask(gateway, request("GET", "/metrics"))).body
            assert reach.connected == ["127.0.0.1"] * 2
    assert SqliteShelf(tmp_path / "data").files_with(*CANARIES) == set()
    assert [one for one in CANARIES if one in metrics or one in repr(lines).encode()] == []
    assert b'heliograph_push_deliveries_total{outcome="sent"} 1' in metrics
    assert b'heliograph_push_deliveries_total{outcome="removed"} 1' in metrics
    assert [line["sent"] for line in lines if line["event"] == "push_notified"] == [1, 0]


async def test_project_notifies_after_a_restart_and_takes_its_subscriptions_along(tmp_path: Path) -> None:
    ada = Browser("/canary", HOST)
    operator = f"Authorization: Bearer {BEARER}"
    with trio.fail_after(PATIENCE_S):
        async with vendor_at(tmp_path) as (vendor, reach):
            config = settings(tmp_path, vendor.ca)
            async with running(config, push_network=reach) as gateway:
                made = (await post(gateway, "/api/projects", {"name": "Board"}, operator)).json
                api = f"/api/projects/{made['project_id']}"
                prompt = (await ask(gateway, request("GET", f"/s/{made['app_token']}/prompt"))).body.decode()
                assert prompt == made["system_prompt"]
                assert f"/api/s/{made['app_token']}/push/notify\n" in prompt
                assert (await post(gateway, f"{api}/push/subscribe", ada.subscription)).status == 201
                assert (await post(gateway, f"{api}/push/notify", FROST)).status == 401
                form = b" " * 65_537
                assert (await ask(gateway, request("POST", f"{api}/push/subscribe", form))).status == 413
            shelf = SqliteShelf(tmp_path / "data")
            assert shelf.files_with(*CANARIES) == set()
            key = f"projects/spaces/keys/{made['project_id']}"
            assert key in shelf.files()
            async with running(config, push_network=reach) as gateway:
                assert (await post(gateway, f"{api}/push/notify", FROST, operator)).json["sent"] == 1
                assert ada.got(vendor) == [FROST]
                assert (await ask(gateway, request("DELETE", api, b"", operator))).status == 204
                while key in shelf.files():  # noqa: ASYNC110 a file
                    await trio.sleep(0.01)
                assert (await post(gateway, f"{api}/push/notify", FROST, operator)).status == 404


async def test_tools_are_the_routes(tmp_path: Path) -> None:
    ada = Browser("/ada", HOST)
    with trio.fail_after(PATIENCE_S):
        async with (
            vendor_at(tmp_path) as (vendor, reach),
            running(settings(tmp_path, vendor.ca), push_network=reach) as gateway,
        ):
            made = await make(gateway)
            async with mcp(gateway, made["token"]) as client:
                results = {
                    name: await call(client, name, **arguments)
                    for name, arguments in (
                        ("echo_push_vapid_public", {}),
                        ("echo_push_subscribe", {"subscription": ada.subscription, "uid": "ada", "subs": ["lobby"]}),
                        ("echo_push_notify", {**FROST, "tuid": "ada", "sub": "lobby"}),
                        ("echo_push_unsubscribe", {"endpoint": ada.endpoint}),
                    )
                }
                assert {name: result["structuredContent"] for name, result in results.items()} == {
                    "echo_push_vapid_public": {"vapid_public_key": PUBLIC, "subject": "mailto:ops@example.org"},
                    "echo_push_subscribe": {"subscribed": True},
                    "echo_push_notify": {"attempted": 1, "sent": 1, "removed": 0, "failed": 0},
                    "echo_push_unsubscribe": {"removed": True},
                }
                for name, result in results.items():
                    contract = Contract(ROOM_TOOLS[name].listed["outputSchema"])
                    assert contract.first_flaw(result["structuredContent"]) is None
                assert ada.got(vendor) == [FROST]
                refused: tuple[tuple[str, dict[str, Any], str], ...] = (
                    ("echo_push_subscribe", {"subscription": {}}, "invalid_subscription"),
                    ("echo_push_subscribe", {**ada.subscription}, "invalid_payload"),
                    ("echo_push_subscribe", {"subscription": ada.subscription, "uid": ".."}, "invalid_payload"),
                    ("echo_push_unsubscribe", {}, "invalid_payload"),
                    ("echo_push_notify", {"title": "t"}, "invalid_payload"),
                    ("echo_push_notify", {"title": "t", "body": "b", "data": "x" * 4000}, "payload_too_large"),
                    ("echo_push_notify", {"title": "half \ud800 a pair", "body": ""}, "invalid_payload"),
                )
                for name, arguments, word in refused:
                    assert (await failure(client, name, **arguments))["error"] == word, name


async def test_description_says_whether_push_is_configured(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with running(settings(tmp_path)) as gateway:
            told = (await ask(gateway, request("GET", "/service/description"))).body.decode()
            assert "This instance offers Web Push." in told
            assert "push_not_configured" not in told
            assert PUBLIC not in told
        (other := tmp_path / "other").mkdir()
        async with running(load(None, {}, {"data": str(other), **ON})) as gateway:
            told = (await ask(gateway, request("GET", "/service/description"))).body.decode()
            assert "This instance offers Web Push." not in told
            assert told.count("push_not_configured") == 2  # of the routes, of the tools
            assert "Web Push is not configured on this instance" in told
        assert not (other / "projects").exists()


async def test_wrong_keys_stop_the_start_before_there_is_anything(tmp_path: Path) -> None:
    config = load(None, {**KEYS, "VAPID_SUBJECT": "me"}, {"data": str(tmp_path / "data"), **ON})
    with pytest.raises(SettingsError, match=r"push\.vapid_subject"):
        async with running(config):
            pass
    assert not (tmp_path / "data").exists()


async def test_projects_that_are_deleted_once_push_is_off_are_erased_too(tmp_path: Path) -> None:
    operator = f"Authorization: Bearer {BEARER}"
    with trio.fail_after(PATIENCE_S):
        async with running(settings(tmp_path)) as gateway:
            made = (await post(gateway, "/api/projects", {"name": "Board"}, operator)).json
            api = f"/api/projects/{made['project_id']}"
            assert (await post(gateway, f"{api}/push/subscribe", Browser("/1", HOST).subscription)).status == 201
        shelf, key = SqliteShelf(tmp_path / "data"), f"projects/spaces/keys/{made['project_id']}"
        without = load(None, {"API_BEARER_TOKEN": BEARER}, {"data": str(tmp_path / "data"), **ON})
        async with running(without) as gateway:
            assert (await post(gateway, f"{api}/push/subscribe", {})).status == 503
            assert key in shelf.files()
            assert (await ask(gateway, request("DELETE", api, b"", operator))).status == 204
            while key in shelf.files():  # noqa: ASYNC110 a file
                await trio.sleep(0.01)
