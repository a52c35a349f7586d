"""Sending to a push service of our own: what arrives, where it goes, how long it may take, what an answer means."""

import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.push.subscription_rules import Outcome
from gateway.main.settings import SettingsError
from gateway.push.network import Internet, tls_contexts
from gateway.push.response_rules import outcome_of
from gateway.push.sender import HEAD_BYTES_MAX, Sender
from gateway.push.settings import PushSettings
from gateway.push.vapid import VapidTokens, read_keys
from tests.gateway.push.test_vapid import NOW_S, SET
from tests.gateway.push.vendor import PUBLIC, Browser, Vendor, at_once, in_memory, on_a_socket

MESSAGE = json.dumps({"title": "Frost", "body": "Minus four by the door."}).encode()
HOSTS = ("fcm.googleapis.com", "updates.push.services.mozilla.com", "push.lan", "127.0.0.1")
WITH_OWN_HOST = replace(SET, hosts=(*SET.hosts, "push.lan", "127.0.0.1", "[::1]"))


class Post:
    """A sender between a test and its push service."""

    def __init__(self, settings: PushSettings, vendor: Vendor, reach: Any) -> None:
        self.vendor = vendor
        self.reach = reach
        trusting = ssl.create_default_context(cafile=str(vendor.ca))
        keys = read_keys(settings)
        assert keys is not None
        tokens, random = VapidTokens(keys), iter(range(1, 1_000_000))
        self.sender = Sender(
            settings, tokens, reach, (trusting, trusting), lambda n: next(random).to_bytes(n), lambda: NOW_S
        )

    async def send(self, *browsers: Browser) -> list[Outcome]:
        outcomes = await self.sender.send(MESSAGE, [browser.subscriber() for browser in browsers])
        return list(outcomes.values())

    @property
    def reached(self) -> int:
        return sum(self.vendor.asked.values())


@asynccontextmanager
async def post(folder: Path, settings: PushSettings = WITH_OWN_HOST) -> AsyncIterator[Post]:
    async with trio.open_nursery() as nursery:
        vendor = Vendor(folder, *HOSTS)
        yield Post(settings, vendor, in_memory(vendor, nursery))
        nursery.cancel_scope.cancel()


# ---- what arrives ----------------------------------------------------------------------------------------------------


async def test_browser_opens_what_its_push_service_got(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with post(tmp_path) as here:
        ada, bob = Browser("/1"), Browser("/2?token=a%3d", "updates.push.services.mozilla.com")
        assert await here.send(ada, bob) == [Outcome.SENT, Outcome.SENT]
        assert ada.got(here.vendor) == bob.got(here.vendor) == [json.loads(MESSAGE)]
        assert here.vendor.bodies["/1"] != here.vendor.bodies["/2?token=a%3d"]
        assert sorted(map(str, here.vendor.names)) == ["fcm.googleapis.com", "updates.push.services.mozilla.com"]


async def test_one_token_is_signed_for_all_browsers_of_a_service(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with post(tmp_path) as here:
        await here.send(*(Browser(f"/{number}") for number in range(5)))
        assert len(here.vendor.tokens) == 5
        assert len(set(here.vendor.tokens)) == 1


async def test_over_real_sockets_and_an_address_that_the_operator_listed(tmp_path: Path) -> None:
    vendor = Vendor(tmp_path, *HOSTS)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            reach = await on_a_socket(vendor, nursery)
            reach.addresses_of = lambda name: {"push.lan": ["10.0.0.7"]}.get(name, [name])
            here = Post(WITH_OWN_HOST, vendor, reach)
            browsers = [Browser(f"/{number}", host) for number, host in enumerate(["push.lan", "127.0.0.1"] * 20)]
            assert await here.send(*browsers) == [Outcome.SENT] * 40
            assert all(browser.got(vendor) == [json.loads(MESSAGE)] for browser in browsers)
            assert vendor.most_under_way <= 32
            nursery.cancel_scope.cancel()


async def test_names_are_looked_up_as_the_system_does() -> None:
    internet = Internet()
    with trio.fail_after(20):
        assert "127.0.0.1" in await internet.addresses("127.0.0.1")
        assert set(await internet.addresses("localhost")) & {"127.0.0.1", "::1"}


# ---- what an answer means --------------------------------------------------------------------------------------------


def test_status_tells_sent_removed_and_failed() -> None:
    assert {status: outcome_of(status) for status in range(100, 600)} == {
        **dict.fromkeys(range(100, 600), Outcome.FAILED),
        **dict.fromkeys(range(200, 300), Outcome.SENT),
        404: Outcome.REMOVED,
        410: Outcome.REMOVED,
    }


async def test_outcomes_are_by_status_and_nothing_is_tried_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    statuses = [201, 200, 202, 404, 410, 429, 500, 503, 400, 403, 413, 301, 302, 307, 308]
    async with post(tmp_path) as here:
        here.vendor.answers = {f"/{status}": status for status in statuses}
        here.vendor.headers = [("Location", "https://fcm.googleapis.com/elsewhere"), ("Retry-After", "1")]
        outcomes = await here.send(*(Browser(f"/{status}") for status in statuses))
        assert outcomes == [outcome_of(status) for status in statuses]
        assert here.vendor.asked == {f"/{status}": 1 for status in statuses}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00" * 100,
        b"HTTP/1.1 2",
        b"HTTP/1.1 999999 x\r\n\r\n",
        b"HTTP/1.1 201 Created\r\n" + b"x: y\r\n" * HEAD_BYTES_MAX,
        b"HTTP/1.1 103 Early\r\n\r\n" * 10_000 + b"HTTP/1.1 201 Created\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
    ],
)
async def test_what_is_no_answer_has_failed(tmp_path: Path, autojump_clock: MockClock, raw: bytes) -> None:
    async with post(tmp_path) as here:
        here.vendor.raw = raw
        assert await here.send(Browser()) == [Outcome.FAILED]


async def test_endless_body_of_an_answer_is_not_waited_for(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with post(tmp_path) as here:
        here.vendor.raw = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 99999999999\r\n\r\nx"
        before = trio.current_time()
        assert await here.send(Browser()) == [Outcome.SENT]
        assert trio.current_time() == before


# ---- how long, how many ----------------------------------------------------------------------------------------------


async def test_one_that_does_not_answer_has_failed_after_5_seconds(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with post(tmp_path) as here:

        async def stall(path: str) -> None:
            if path == "/slow":
                await trio.sleep_forever()

        here.vendor.meet = stall
        before = trio.current_time()
        assert await here.send(Browser("/slow"), Browser("/quick")) == [Outcome.FAILED, Outcome.SENT]
        assert trio.current_time() - before == 5.0


@pytest.mark.parametrize("where", ["addresses", "connect", "handshake"])
async def test_5_seconds_hold_wherever_it_hangs(tmp_path: Path, autojump_clock: MockClock, where: str) -> None:
    async with post(tmp_path) as here:

        async def hang(*_: object) -> Any:
            await trio.sleep_forever()

        if where == "handshake":

            async def connect(_address: str) -> trio.abc.Stream:
                ours, _theirs = trio.testing.memory_stream_pair()
                held.append(_theirs)
                return ours

            held: list[trio.abc.Stream] = []
            here.reach.connect = connect
        else:
            setattr(here.reach, where, hang)
        here.reach.addresses_of = lambda _: [PUBLIC] * 4
        before = trio.current_time()
        assert await here.send(Browser()) == [Outcome.FAILED]
        assert trio.current_time() - before == 5.0


async def test_so_many_at_a_time_and_after_25_seconds_the_rest_are_left_over(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with post(tmp_path) as here:

        async def dawdle(_: str) -> None:
            await trio.sleep(4.0)

        here.vendor.meet = dawdle
        browsers = [Browser(f"/{number}") for number in range(300)]
        before = trio.current_time()
        outcomes = await here.send(*browsers)
        assert trio.current_time() - before == 25.0
        assert outcomes == [Outcome.SENT] * (6 * 32) + [Outcome.LEFT_OVER] * 108
        assert here.vendor.most_under_way == 32


async def test_address_that_never_answers_gives_way_to_the_next(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with post(tmp_path) as here:
        here.reach.addresses_of = lambda _: ["2a00:1450::1", "1.1.1.1", PUBLIC]
        here.reach.silent, here.reach.dead = {"2a00:1450::1"}, {"1.1.1.1"}
        before = trio.current_time()
        assert await here.send(Browser()) == [Outcome.SENT]
        assert trio.current_time() - before == 2.0
        assert here.reach.connected == ["2a00:1450::1", "1.1.1.1", PUBLIC]


async def test_nobody_to_send_to_is_done_at_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with post(tmp_path) as here:
        assert await here.send() == []


async def test_cancelled_sending_leaves_no_connection(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with post(tmp_path) as here:

        async def stall(_: str) -> None:
            await trio.sleep_forever()

        here.vendor.meet = stall
        with trio.move_on_after(1):
            await here.send(*(Browser(f"/{number}") for number in range(40)))
        assert len(here.reach.streams) == 32
        for stream in here.reach.streams:
            with pytest.raises(trio.ClosedResourceError):
                await stream.send_all(b"x")
        here.vendor.meet = at_once
        assert await here.send(Browser("/after")) == [Outcome.SENT]


# ---- where it must not go --------------------------------------------------------------------------------------------

INSIDE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fd00::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
]


@pytest.mark.parametrize("address", INSIDE)
async def test_vendor_whose_name_leads_inside_is_not_connected_to(
    tmp_path: Path, autojump_clock: MockClock, address: str
) -> None:
    async with post(tmp_path) as here:
        for answer in ([address], [PUBLIC, address], [address, PUBLIC]):
            here.reach.addresses_of = lambda _, answer=answer: answer
            assert await here.send(Browser()) == [Outcome.FAILED]
        assert here.reach.connected == []


async def test_name_that_changes_after_the_check_is_not_asked_a_second_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with post(tmp_path) as here:
        answers = iter([[PUBLIC], ["127.0.0.1"]])
        here.reach.addresses_of = lambda _: next(answers)
        assert await here.send(Browser("/1")) == [Outcome.SENT]
        assert (here.reach.looked_up, here.reach.connected) == (["fcm.googleapis.com"], [PUBLIC])
        # The next notification looks again, and finds that it leads inside.
        assert await here.send(Browser("/2")) == [Outcome.FAILED]
        assert here.reach.connected == [PUBLIC]


@pytest.mark.parametrize("address", ["10.1.2.3", "127.0.0.1", "fd00::1"])
async def test_host_that_the_operator_added_may_be_inside(
    tmp_path: Path, autojump_clock: MockClock, address: str
) -> None:
    async with post(tmp_path) as here:
        here.reach.addresses_of = lambda _: [address]
        assert await here.send(Browser("/1", "push.lan"), Browser("/2")) == [Outcome.SENT, Outcome.FAILED]
        assert here.reach.connected == [address]


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://evil.example/x",
        "http://fcm.googleapis.com/x",
        "https://fcm.googleapis.com:8443/x",
        "https://a@fcm.googleapis.com/x",
        "https://10.0.0.1/x",
        "https://[::ffff:127.0.0.1]/x",
        "nonsense",
    ],
)
async def test_list_of_hosts_is_asked_again_when_sending(
    tmp_path: Path, autojump_clock: MockClock, endpoint: str
) -> None:
    """What lies in the table may be of a time when the list was another."""
    async with post(tmp_path) as here:
        subscriber = Browser().subscriber(endpoint=endpoint)
        assert await here.sender.send(MESSAGE, [subscriber]) == {subscriber: Outcome.FAILED}
        assert (here.reach.looked_up, here.reach.connected) == ([], [])


async def test_certificate_of_another_gets_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with post(tmp_path, replace(WITH_OWN_HOST, hosts=("*.push.apple.com",))) as here:
        assert await here.send(Browser("/x", "web.push.apple.com")) == [Outcome.FAILED]
        assert here.reach.connected == [PUBLIC]
        assert here.reached == 0


async def test_unknown_authority_gets_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    (other := tmp_path / "other").mkdir()
    async with post(tmp_path) as here:
        stranger = Post(WITH_OWN_HOST, Vendor(other, *HOSTS), here.reach)
        assert await stranger.send(Browser()) == [Outcome.FAILED]
        assert here.reached == 0


async def test_lookup_that_fails_or_finds_nothing_has_failed(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with post(tmp_path) as here:

        def fail(_: str) -> Sequence[str]:
            raise OSError

        def find_none(_: str) -> Sequence[str]:
            return []

        for found in (fail, find_none):
            here.reach.addresses_of = found
            assert await here.send(Browser()) == [Outcome.FAILED]
        assert here.reach.connected == []


# ---- the authorities of the operator's own hosts ---------------------------------------------------------------------


def test_own_authorities_hold_for_own_hosts_and_not_for_vendors(tmp_path: Path) -> None:
    vendor = Vendor(tmp_path, "push.lan")
    of_vendors, of_operator = tls_contexts(str(vendor.ca))
    names = [str(one["subject"]) for one in of_operator.get_ca_certs()]
    assert [name for name in names if "test authority" in name] != []
    assert [one for one in of_vendors.get_ca_certs() if "test authority" in str(one["subject"])] == []
    for context in (of_vendors, of_operator):
        assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_file_of_authorities_that_is_none_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("nothing")
    for path in (tmp_path / "absent.pem", tmp_path / "no.pem"):
        with pytest.raises(SettingsError, match=r"push\.ca_certificates"):
            tls_contexts(str(path))
