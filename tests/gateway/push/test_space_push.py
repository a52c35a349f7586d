"""`/api/s/:token/push/…` over stores in memory, with a push service of our own: forms, scopes, routing, counts."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from actors.push.counts import PushCounts
from actors.push.subscription_rules import Outcome
from actors.space.iam import SpaceIam
from actors.space.spaces import EchoSpaces
from gateway.push.endpoint_rules import PushHosts
from gateway.push.notify_shares import NotifyShares
from gateway.push.opening import push_of_spaces
from gateway.push.push_service import PushTools
from gateway.push.settings import PushSettings
from gateway.push.space_push import SpacePush
from gateway.push.vapid import read_keys
from gateway.spaces.admission import SpaceAdmission
from schemas.echo.scopes import FULL
from tests.gateway.push.test_sender import HOSTS, WITH_OWN_HOST, Post
from tests.gateway.push.test_vapid import PUBLIC
from tests.gateway.push.vendor import Browser, Vendor, in_memory
from tests.gateway.spaces.site import PLENTY, Answer, Site, site
from tests.gateway.spaces.test_iam import Members

FROST = {"title": "Frost", "body": "Minus four by the door."}
NOT_CONFIGURED = (503, "push_not_configured")


class Desk:
    """A space, asked for push; `vendor` is where its notifications go."""

    def __init__(self, here: Site, post: Post, counts: PushCounts) -> None:
        self.site = here
        self.post = post
        self.vendor = post.vendor
        self.counts = counts
        self.made: Any = None

    async def ask(self, what: str, body: object = None, bearer: str | None = None, method: str = "POST") -> Answer:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
        return await self.site.ask(method, f"/api/s/{self.made['token']}/push/{what}", data, **headers)

    async def subscribe(self, browser: Browser, bearer: str | None = None, **more: object) -> Answer:
        return await self.ask("subscribe", {"subscription": browser.subscription, **more}, bearer)

    async def notify(self, bearer: str | None = None, **more: object) -> tuple[int, int, int, int]:
        answer = await self.ask("notify", {**FROST, **more}, bearer)
        assert answer.status == 200, answer
        assert list(answer.json) == ["attempted", "sent", "removed", "failed"]
        attempted, sent, removed, failed = answer.json.values()
        return attempted, sent, removed, failed


@asynccontextmanager
async def desk(folder: Path, settings: PushSettings = WITH_OWN_HOST) -> AsyncIterator[Desk]:
    async with trio.open_nursery() as nursery:
        vendor = Vendor(folder, *HOSTS)
        post, counts, keys = Post(settings, vendor, in_memory(vendor, nursery)), PushCounts(), read_keys(settings)
        assert keys is not None
        tools = PushTools(keys, PushHosts(settings.hosts), post.sender, NotifyShares(settings), counts)

        def push(spaces: EchoSpaces, iam: SpaceIam, admission: SpaceAdmission) -> SpacePush:
            return SpacePush(push_of_spaces(spaces, tools, settings), iam, admission.access)

        async with site(PLENTY, push=push) as here:
            one = Desk(here, post, counts)
            one.made = await here.make()
            yield one
        nursery.cancel_scope.cancel()


# ---- what is there ---------------------------------------------------------------------------------------------------


async def test_key_is_for_every_page(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        answer = await here.ask("vapid-public", method="GET")
        assert (answer.status, answer.json) == (
            200,
            {"vapid_public_key": PUBLIC, "subject": "mailto:ops@example.org"},
        )
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["cache-control"] == "no-store"
        assert (await here.ask("vapid-public", method="HEAD")).body == b""


async def test_browser_subscribes_and_gets_what_is_sent(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        ada = Browser("/ada")
        first, again = await here.subscribe(ada), await here.ask("subscribe", {**ada.subscription, "uid": "ada"})
        assert [(answer.status, answer.json) for answer in (first, again)] == [
            (201, {"subscribed": True}),
            (200, {"subscribed": True}),
        ]
        assert await here.notify(data={"url": "/s/x"}) == (1, 1, 0, 0)
        assert ada.got(here.vendor) == [{**FROST, "data": {"url": "/s/x"}}]
        gone = [await here.ask("unsubscribe", {"endpoint": ada.endpoint}) for _ in range(2)]
        assert [(answer.status, answer.json) for answer in gone] == [
            (200, {"removed": True}),
            (200, {"removed": False}),
        ]
        assert await here.notify() == (0, 0, 0, 0)


async def test_without_keys_every_route_says_so_once_the_token_is_right() -> None:
    async with site() as here:
        made = await here.make()
        for token, error in ((made["token"], NOT_CONFIGURED), ("es_" + "A" * 43, (404, "space_not_found"))):
            for method, what in (
                ("GET", "vapid-public"),
                ("POST", "subscribe"),
                ("POST", "unsubscribe"),
                ("POST", "notify"),
            ):
                answer = await here.ask(method, f"/api/s/{token}/push/{what}", b"{}")
                assert answer.error == error
                assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    ("method", "what", "error"),
    [
        ("POST", "vapid-public", (405, "method_not_allowed")),
        ("GET", "subscribe", (405, "method_not_allowed")),
        ("DELETE", "unsubscribe", (405, "method_not_allowed")),
        ("GET", "notify", (405, "method_not_allowed")),
        ("POST", "", (404, "not_found")),
        ("POST", "notify/x", (404, "not_found")),
        ("POST", "notify/", (404, "not_found")),
        ("POST", "notify%2f", (404, "not_found")),
        ("POST", "other", (404, "not_found")),
    ],
)
async def test_other_methods_and_paths_are_refused(
    tmp_path: Path, autojump_clock: MockClock, method: str, what: str, error: tuple[int, str]
) -> None:
    async with desk(tmp_path) as here:
        assert (await here.ask(what, FROST, method=method)).error == error
        preflight = await here.ask("notify", method="OPTIONS")
        assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, "*")


# ---- what is refused -------------------------------------------------------------------------------------------------

GOOD = Browser().subscription


@pytest.mark.parametrize(
    "subscription",
    [
        {},
        {**GOOD, "endpoint": "https://evil.example/x"},
        {**GOOD, "endpoint": "http://fcm.googleapis.com/x"},
        {**GOOD, "endpoint": "https://fcm.googleapis.com:8443/x"},
        {**GOOD, "endpoint": "https://10.0.0.1/x"},
        {**GOOD, "endpoint": "https://[::1%25eth0]/x"},
        {**GOOD, "endpoint": 7},
        {**GOOD, "endpoint": "https://fcm.googleapis.com/" + "x" * 2048},
        {**GOOD, "keys": None},
        {**GOOD, "keys": []},
        {**GOOD, "keys": {"p256dh": GOOD["keys"]["p256dh"]}},
        {**GOOD, "keys": {"auth": GOOD["keys"]["auth"]}},
        {**GOOD, "keys": {**GOOD["keys"], "p256dh": 1}},
        {**GOOD, "keys": {**GOOD["keys"], "p256dh": GOOD["keys"]["p256dh"][:-4]}},
        {**GOOD, "keys": {**GOOD["keys"], "p256dh": "B" + "A" * 86}},
        {**GOOD, "keys": {**GOOD["keys"], "p256dh": GOOD["keys"]["p256dh"] + " "}},
        {**GOOD, "keys": {**GOOD["keys"], "p256dh": "A" * 100_00}},
        {**GOOD, "keys": {**GOOD["keys"], "auth": "A" * 20}},
        {**GOOD, "keys": {**GOOD["keys"], "auth": "A" * 24}},
        {**GOOD, "keys": {**GOOD["keys"], "auth": "+" * 22}},
        {**GOOD, "expirationTime": "tomorrow"},
        {**GOOD, "expirationTime": True},
    ],
)
async def test_subscription_that_cannot_be_sent_to_is_refused(
    tmp_path: Path, autojump_clock: MockClock, subscription: dict[str, Any]
) -> None:
    async with desk(tmp_path) as here:
        assert (await here.ask("subscribe", {"subscription": subscription})).error == (400, "invalid_subscription")
        assert await here.notify() == (0, 0, 0, 0)


async def test_what_browsers_add_and_padding_do_no_harm(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        padded = {name: key + "=" * (-len(key) % 4) for name, key in GOOD["keys"].items()}
        more = {**GOOD, "expirationTime": 1.8e12, "keys": {**padded, "future": "x"}, "options": {"a": 1}}
        assert (await here.ask("subscribe", {"subscription": more})).status == 201


@pytest.mark.parametrize("what", ["subscribe", "unsubscribe", "notify"])
async def test_body_that_is_none_is_refused(tmp_path: Path, autojump_clock: MockClock, what: str) -> None:
    async with desk(tmp_path) as here:
        for body in (b"", b"{", b"[]", b"null", b'"x"', b'{"title":"a","title":"b"}', b"\xff", b"{}"):
            assert (await here.ask(what, body)).error == (400, "invalid_payload")
        path = f"/api/s/{here.made['token']}/push/{what}"
        form = await here.site.ask("POST", path, b"{}", content_type="text/plain")
        assert form.error == (415, "unsupported_media_type")
        assert (await here.site.ask("POST", path, b" " * 65_537)).error == (413, "payload_too_large")


async def test_message_is_1_to_3993_bytes_of_json(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        ada = Browser("/ada")
        await here.subscribe(ada)
        around = len('{"title":"","body":"","data":""}')
        assert await here.notify(title="", body="", data="x" * (3993 - around)) == (1, 1, 0, 0)
        assert len(here.vendor.bodies["/ada"][0]) == 4096
        too_long = await here.ask("notify", {"title": "", "body": "", "data": "x" * (3994 - around)})
        assert too_long.error == (413, "payload_too_large")


# ---- routing and counts ----------------------------------------------------------------------------------------------


async def test_notification_is_routed_as_a_message_of_the_room(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        some = {name: Browser(f"/{name}") for name in ("ada-lobby", "ada", "bob-lobby", "nobody")}
        await here.subscribe(some["ada-lobby"], uid="ada", subs=["lobby", "garden"])
        await here.subscribe(some["ada"], uid="ada")
        await here.subscribe(some["bob-lobby"], uid="bob", subs=["lobby"])
        await here.subscribe(some["nobody"])
        for address, expected in (
            ({}, {"ada-lobby", "ada", "bob-lobby", "nobody"}),
            ({"sub": "lobby"}, {"ada-lobby", "bob-lobby"}),
            ({"tuid": "ada"}, {"ada-lobby", "ada"}),
            ({"tuid": "ada", "sub": "lobby"}, {"ada-lobby"}),
            ({"tuid": "ada", "sub": "hall"}, set()),
            ({"tuid": "carl"}, set()),
        ):
            here.vendor.asked.clear()
            assert await here.notify(**address) == (len(expected), len(expected), 0, 0)
            assert set(here.vendor.asked) == {f"/{name}" for name in expected}


async def test_counts_are_true_and_those_that_are_gone_are_removed(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        here.vendor.answers = {"/404": 404, "/410": 410, "/429": 429, "/500": 500}
        for path in ("/201", "/404", "/410", "/429", "/500"):
            await here.subscribe(Browser(path))
        with capture_logs() as lines:
            assert await here.notify() == (5, 1, 2, 2)
            assert await here.notify() == (3, 1, 0, 2)
        assert here.vendor.asked == {"/201": 2, "/404": 1, "/410": 1, "/429": 2, "/500": 2}
        told = [line for line in lines if line["event"] == "push_notified"]
        assert [{**line, "space_id": ""} for line in told] == [
            {"event": "push_notified", "log_level": "info", "space_id": "", "attempted": n, **counts}
            for n, counts in ((5, {"sent": 1, "removed": 2, "failed": 2}), (3, {"sent": 1, "removed": 0, "failed": 2}))
        ]
        assert (here.counts.notifications, here.counts.subscriptions) == (2, 5)
        assert here.counts.deliveries == {
            Outcome.SENT: 2,
            Outcome.REMOVED: 2,
            Outcome.FAILED: 4,
            Outcome.LEFT_OVER: 0,
        }


async def test_those_for_whom_there_was_no_time_count_as_failed_and_come_first_the_next_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with desk(tmp_path, replace(WITH_OWN_HOST, sends_max=2, notify_s_max=7.0)) as here:

        async def dawdle(_: str) -> None:
            await trio.sleep(3.0)

        here.vendor.meet = dawdle
        for number in range(6):
            await here.subscribe(Browser(f"/{number}"))
        assert await here.notify() == (6, 4, 0, 2)
        assert here.counts.deliveries[Outcome.LEFT_OVER] == 2
        here.vendor.asked.clear()
        assert await here.notify() == (6, 4, 0, 2)
        asked = list(here.vendor.asked)
        # Two at a time; of the last two nobody heard back.
        assert [set(asked[at : at + 2]) for at in (0, 2, 4)] == [{"/4", "/5"}, {"/0", "/1"}, {"/2", "/3"}]


async def test_full_table_replaces_the_one_that_has_failed_for_longest(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with desk(tmp_path, replace(WITH_OWN_HOST, subscriptions_per_space_max=3)) as here:
        for number in range(3):
            await here.subscribe(Browser(f"/{number}"))
        assert (await here.subscribe(Browser("/3"))).error == (413, "space_full")
        here.vendor.answers = {"/1": 500}
        await here.notify()
        here.site.world.now_ms += 1_000
        here.vendor.answers = {"/0": 500, "/1": 500}
        await here.notify()
        assert (await here.subscribe(Browser("/3"))).status == 201
        here.vendor.answers.clear()
        here.vendor.asked.clear()
        assert await here.notify() == (3, 3, 0, 0)
        assert set(here.vendor.asked) == {"/0", "/2", "/3"}
        assert (await here.subscribe(Browser("/4"))).error == (413, "space_full")  # the other one has recovered


async def test_so_many_notifications_at_a_time_of_one_space_and_of_all(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with desk(tmp_path, replace(WITH_OWN_HOST, notifies_max=3)) as here:

        async def dawdle(_: str) -> None:
            await trio.sleep(3.0)

        here.vendor.meet = dawdle
        first, second = here.made, await here.site.make()
        answers: dict[str, list[Answer]] = {"first": [], "second": []}

        async def notify(which: str) -> None:
            here.made = first if which == "first" else second
            answers[which].append(await here.ask("notify", FROST))

        for here.made in (first, second):
            await here.subscribe(Browser())
        async with trio.open_nursery() as nursery:
            for which in ("first", "first", "first", "second", "second"):
                nursery.start_soon(notify, which)
                await trio.testing.wait_all_tasks_blocked()
        assert sorted(answer.status for answer in answers["first"]) == [200, 200, 429]
        assert sorted(answer.status for answer in answers["second"]) == [200, 503]
        limited, full = (
            next(answer for answer in answers[which] if answer.status != 200) for which in ("first", "second")
        )
        assert (limited.error, limited.json["retry_after_ms"]) == ((429, "rate_limited"), 1_000)
        assert (limited.headers["retry-after"], full.error) == ("1", (503, "overloaded"))
        here.made = first
        assert await here.notify() == (1, 1, 0, 0)  # every place was given back


async def test_subscription_ends_with_its_space(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        await here.subscribe(Browser())
        here.site.world.now_ms += 1000 * 604_800
        for what, body in (
            ("subscribe", {"subscription": GOOD}),
            ("notify", FROST),
            ("unsubscribe", {"endpoint": "x"}),
        ):
            assert (await here.ask(what, body)).error == (404, "space_not_found")


# ---- IAM -------------------------------------------------------------------------------------------------------------


async def protected(here: Desk) -> Members:
    """The space, with its creator as the first member."""
    some = Members(here.site)
    some.made = here.made
    some.owner = await some.claim(here.made)
    return some


async def test_scopes_by_route(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        some = await protected(here)
        for what, body, scope in (
            ("subscribe", {"subscription": GOOD}, "kv_write"),
            ("unsubscribe", {"endpoint": "https://x"}, "kv_write"),
            ("notify", FROST, "ws_write"),
        ):
            for bearer in (None, here.made["token"], "ea_" + "A" * 43):
                assert (await here.ask(what, body, bearer)).error == (401, "unauthorized")
            others = {"kv_read", "kv_write", "file_read", "file_write", "ws_read", "ws_write"} - {scope}
            assert (await here.ask(what, body, await some.member(*others))).error == (403, "insufficient_scope")
            for allowed in (scope, FULL):
                assert (await here.ask(what, body, await some.member(allowed))).status in (200, 201)
        assert (await here.ask("vapid-public", method="GET")).status == 200


async def test_uid_is_of_the_member_who_used_it_first(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        some = await protected(here)
        ada, bob = await some.member("kv_write"), await some.member("kv_write")
        assert (await here.subscribe(Browser("/ada"), ada, uid="ada")).status == 201
        assert (await here.subscribe(Browser("/bob"), bob, uid="ada")).error == (403, "insufficient_scope")
        assert (await here.subscribe(Browser("/ada-2"), ada, uid="ada")).status == 201
        assert (await here.subscribe(Browser("/bob"), bob)).status == 201  # without a name
        assert await here.notify(some.owner.access_token, tuid="ada") == (2, 2, 0, 0)
        access = here.site.iam.find(ada)
        assert access is not None
        # In the room it is theirs too.
        assert here.site.iam.uid_owner(here.made["space_id"], "ada") == access.member_id


async def test_name_is_not_taken_by_a_subscription_that_is_refused(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path, replace(WITH_OWN_HOST, subscriptions_per_space_max=1)) as here:
        some = await protected(here)
        ada = await some.member("kv_write")
        wrong = {"subscription": {**GOOD, "keys": {}}, "uid": "ada"}
        assert (await here.ask("subscribe", wrong, ada)).error == (400, "invalid_subscription")
        await here.subscribe(Browser("/1"), ada)
        assert (await here.subscribe(Browser("/2"), ada, uid="ada")).error == (413, "space_full")
        assert here.site.iam.uid_owner(here.made["space_id"], "ada") is None


async def test_what_the_bare_token_subscribed_is_over_once_there_are_members(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with desk(tmp_path, replace(WITH_OWN_HOST, subscriptions_per_space_max=2)) as here:
        for path in ("/1", "/2"):
            await here.subscribe(Browser(path), uid="ada")
        some = await protected(here)
        ada = await some.member("kv_write")
        assert (await here.subscribe(Browser("/ada"), ada, uid="ada")).status == 201  # though the table was full
        assert await here.notify(some.owner.access_token, tuid="ada") == (1, 1, 0, 0)
        assert set(here.vendor.asked) == {"/ada"}
        assert (await here.subscribe(Browser("/ada-2"), ada)).status == 201
        assert (await here.subscribe(Browser("/ada-3"), ada)).error == (413, "space_full")


async def test_member_who_was_removed_is_sent_to_no_more(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with desk(tmp_path) as here:
        some = await protected(here)
        ada = await some.member("kv_write")
        await here.subscribe(Browser("/ada"), ada)
        access = here.site.iam.find(ada)
        owner = here.site.iam.find(some.owner.access_token)
        assert access is not None
        assert owner is not None
        await here.site.iam.remove_member(owner, access.member_id)
        assert await here.notify(some.owner.access_token) == (0, 0, 0, 0)
        assert here.vendor.asked == {}
