"""`/api/projects/:project_id/push/…` over stores in memory: no credential but for notifying, a rate for subscribing."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.push.counts import PushCounts
from actors.push.project_owners import ProjectOwners
from actors.space.memory_space_store import MemorySpaceDisk, MemorySpaceStore
from gateway.net.exchange import Exchange
from gateway.projects.feature import ProjectsFeature
from gateway.projects.settings import ProjectsSettings
from gateway.push.endpoint_rules import PushHosts
from gateway.push.notify_shares import NotifyShares
from gateway.push.opening import push_of_projects
from gateway.push.project_push import ProjectPush
from gateway.push.push_service import PushTools
from gateway.push.settings import PushSettings
from gateway.push.vapid import read_keys
from tests.gateway.projects.bureau import BEARER, SETTINGS, Bureau, bureau
from tests.gateway.push.test_sender import HOSTS, WITH_OWN_HOST, Post
from tests.gateway.push.test_space_push import FROST
from tests.gateway.push.test_vapid import PUBLIC
from tests.gateway.push.vendor import Browser, Vendor, in_memory
from tests.gateway.spaces.site import Answer

ROUTES = [("GET", "vapid-public"), ("POST", "subscribe"), ("POST", "unsubscribe"), ("POST", "notify")]
NOBODY = "01jd0000000000000000000000"


class Desk:
    def __init__(self, site: Bureau, vendor: Vendor, store: MemorySpaceStore, owners: ProjectOwners) -> None:
        self.site = site
        self.vendor = vendor
        self.store = store
        self.owners = owners
        self.project_id = ""

    async def ask(
        self,
        what: str,
        body: object = None,
        method: str = "POST",
        *,
        bearer: str | None = None,
        client: str = "192.0.2.1",
        project_id: str | None = None,
    ) -> Answer:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
        path = f"/api/projects/{project_id or self.project_id}/push/{what}"
        return await self.site.ask(method, path, data, client, **headers)

    async def subscribe(self, browser: Browser, client: str = "192.0.2.1", **more: object) -> Answer:
        return await self.ask("subscribe", {"subscription": browser.subscription, **more}, client=client)

    async def notify(self, **more: object) -> tuple[Any, ...]:
        answer = await self.ask("notify", {**FROST, **more}, bearer=BEARER)
        assert answer.status == 200, answer
        return tuple(answer.json.values())


@asynccontextmanager
async def desk(
    folder: Path,
    settings: PushSettings = WITH_OWN_HOST,
    projects: ProjectsSettings = SETTINGS,
    *,
    is_configured: bool = True,
) -> AsyncIterator[Desk]:
    async with trio.open_nursery() as nursery, MemorySpaceStore(MemorySpaceDisk()) as store:
        await store.load()
        vendor, made = Vendor(folder, *HOSTS), list[ProjectOwners]()
        post, keys = Post(settings, vendor, in_memory(vendor, nursery)), read_keys(settings)
        assert keys is not None
        tools = PushTools(keys, PushHosts(settings.hosts), post.sender, NotifyShares(settings), PushCounts())

        def extend(feature: ProjectsFeature) -> None:
            def is_there(project_id: str) -> bool:
                return feature.service.projects.get(project_id) is not None

            async def admit(_exchange: Exchange, _headers: object) -> bool:
                await trio.lowlevel.checkpoint()
                return True

            owners = ProjectOwners(store, is_there, lambda _: None, lambda: 1)
            feature.service.projects.on_delete.append(owners.forget)
            made.append(owners)
            service = push_of_projects(owners, tools, settings) if is_configured else None
            push = ProjectPush(service, is_there, feature.bearer.fault, admit, settings, trio.current_time)
            feature.more.update(push.routes)

        async with bureau(projects, extend=extend) as here:
            one = Desk(here, vendor, store, made[0])
            if projects.api_bearer_token is not None:
                one.project_id = (await here.create())["project_id"]
            yield one
        nursery.cancel_scope.cancel()


async def test_browsers_of_a_project_get_what_its_operator_sends(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        key = await here.ask("vapid-public", method="GET")
        assert key.json == {"vapid_public_key": PUBLIC, "subject": "mailto:ops@example.org"}
        ada, bob = Browser("/ada"), Browser("/bob")
        assert [(await here.subscribe(ada, uid="ada", subs=["lobby"])).status for _ in range(2)] == [201, 200]
        assert (await here.ask("subscribe", bob.subscription)).json == {"subscribed": True}
        assert await here.notify(data=1) == (2, 2, 0, 0)
        assert ada.got(here.vendor) == bob.got(here.vendor) == [{**FROST, "data": 1}]
        assert await here.notify(tuid="ada") == await here.notify(sub="lobby") == (1, 1, 0, 0)
        here.vendor.answers = {"/bob": 410}
        assert await here.notify() == (2, 1, 1, 0)
        gone = [(await here.ask("unsubscribe", {"endpoint": ada.endpoint})).json for _ in range(2)]
        assert gone == [{"removed": True}, {"removed": False}]


async def test_only_notifying_takes_the_bearer(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        for bearer in (None, "", "x" * 40, "es_" + "A" * 43):
            answer = await here.ask("notify", FROST, bearer=bearer)
            assert (answer.error, answer.headers["www-authenticate"]) == ((401, "unauthorized"), "Bearer")
            assert (await here.ask("notify", FROST, bearer=bearer, project_id=NOBODY)).error == (401, "unauthorized")
        assert here.vendor.asked == {}


async def test_instance_without_a_bearer_notifies_nobody(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path, projects=ProjectsSettings()) as here:
        answer = await here.ask("notify", FROST, bearer=BEARER, project_id=NOBODY)
        assert answer.error == (503, "api_auth_not_configured")


@pytest.mark.parametrize("project_id", [NOBODY, NOBODY.upper(), "x", "%2e%2e", "é"])
async def test_project_that_there_is_not_is_unknown_everywhere(
    tmp_path: Path, autojump_clock: MockClock, project_id: str
) -> None:
    async with desk(tmp_path) as here:
        for method, what in ROUTES:
            answer = await here.ask(what, FROST, method, bearer=BEARER, project_id=project_id)
            assert answer.error == (404, "project_not_found")
            assert answer.headers["access-control-allow-origin"] == "*"
        assert here.store.space_ids() == ()


async def test_without_keys_every_route_says_so_of_a_project_that_there_is(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with desk(tmp_path, is_configured=False) as here:
        for method, what in ROUTES:
            assert (await here.ask(what, {}, method, bearer=BEARER)).error == (503, "push_not_configured")
            unknown = await here.ask(what, {}, method, bearer=BEARER, project_id=NOBODY)
            assert unknown.error == (404, "project_not_found")


async def test_address_subscribes_ten_times_and_ten_times_a_minute(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        statuses = [(await here.subscribe(Browser(f"/{number}"))).status for number in range(10)]
        assert statuses == [201] * 10
        refused = await here.subscribe(Browser("/x"))
        assert (refused.error, refused.json["retry_after_ms"]) == ((429, "rate_limited"), 6_000)
        assert (await here.subscribe(Browser("/y"), "192.0.2.2")).status == 201
        assert (await here.ask("unsubscribe", {"endpoint": "x"})).status == 200
        await trio.sleep(6)
        assert [(await here.subscribe(Browser(f"/z{n}"))).status for n in range(2)] == [201, 429]


async def test_table_of_a_project_has_its_own_number(tmp_path: Path, autojump_clock: MockClock) -> None:
    limits = replace(WITH_OWN_HOST, subscriptions_per_project_max=3, subscriptions_per_space_max=1)
    async with desk(tmp_path, limits) as here:
        statuses = [(await here.subscribe(Browser(f"/{number}"))).status for number in range(4)]
        assert statuses == [201, 201, 201, 413]


async def test_deleted_project_takes_its_subscriptions_along(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        await here.subscribe(Browser())
        assert here.store.space_ids() == (here.project_id,)
        assert (await here.site.call("DELETE", f"/{here.project_id}")).status == 204
        assert (await here.ask("notify", FROST, bearer=BEARER)).error == (404, "project_not_found")
        await here.owners.erase()
        assert here.store.space_ids() == ()


@pytest.mark.parametrize(
    ("method", "what", "error"),
    [
        ("POST", "vapid-public", (405, "method_not_allowed")),
        ("GET", "subscribe", (405, "method_not_allowed")),
        ("PUT", "notify", (405, "method_not_allowed")),
        ("POST", "notify/x", (404, "not_found")),
        ("POST", "notify/", (404, "not_found")),
        ("POST", "other", (404, "not_found")),
        ("POST", "x%2f..%2fnotify", (404, "not_found")),
        ("POST", "", (404, "not_found")),
    ],
)
async def test_other_methods_and_paths_are_refused(
    tmp_path: Path, autojump_clock: MockClock, method: str, what: str, error: tuple[int, str]
) -> None:
    async with desk(tmp_path) as here:
        assert (await here.ask(what, FROST, method, bearer=BEARER)).error == error


async def test_encoded_slash_separates_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        path = f"/api/projects/{here.project_id}/push%2Fnotify"
        answer = await here.site.ask("POST", path, b"{}", authorization=f"Bearer {BEARER}")
        assert answer.error == (404, "not_found")


async def test_every_origin_may_ask(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        for _, what in ROUTES:
            preflight = await here.ask(what, method="OPTIONS")
            assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, "*")
        assert (await here.ask("vapid-public", method="HEAD")).status == 200
