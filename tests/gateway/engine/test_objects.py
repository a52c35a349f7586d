"""Starting against a real server: what is missing is made, what is wrong is said, and several may start at once."""

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from gateway.engine.connection import Connection
from gateway.engine.jetstream_rules import API
from gateway.engine.link import LinkState, Message
from gateway.engine.nats_kv import NatsKv
from gateway.engine.nats_runs import Names
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.objects import NotReadyError, Objects
from gateway.engine.objects_rules import LIVE, bucket_config, bucket_problems
from gateway.engine.server_run import ServerRun
from gateway.engine.settings import EngineSettings
from tests.gateway.engine.fake_jetstream import FakeJetStream

TEST_S_MAX = 30.0
_prefixes = count()


@pytest.fixture
def names() -> Names:
    return Names(f"o{next(_prefixes)}")


@pytest.fixture
async def link(nats_server: ServerRun) -> AsyncIterator[Connection]:
    settings = ConnectionSettings((nats_server.url,), token=nats_server.token)
    async with await Connection.open(settings) as connection:
        yield connection


def settings_of(**changes: Any) -> EngineSettings:
    small = EngineSettings(
        replicas=1, log_bytes_max=2**20, bucket_bytes_max=2**20, sync_is_always=True, append_patience_s=0.5
    )
    return msgspec.structs.replace(small, **changes)


async def api(link: Connection, subject: str, request: object = None) -> dict[str, Any]:
    data = b"" if request is None else msgspec.json.encode(request)
    answer = await link.request(API + subject, data, timeout_s=TEST_S_MAX)
    assert isinstance(answer, Message)
    said: dict[str, Any] = msgspec.json.decode(answer.data)
    assert "error" not in said
    return said


async def problems_of(link: Connection, names: Names, settings: EngineSettings) -> list[str]:
    with pytest.raises(NotReadyError) as raised:
        await Objects(link, names, settings).prepare()
    return [problem.what for problem in raised.value.problems]


async def test_objects_are_made_once_and_found_again(link: Connection, names: Names) -> None:
    with trio.fail_after(TEST_S_MAX):
        log_id = await Objects(link, names, settings_of()).prepare()
        assert await Objects(link, names, settings_of()).prepare() == log_id
        log = (await api(link, f"STREAM.INFO.{names.log}"))["config"]
    assert log["subjects"] == [names.log_subjects]
    assert log["metadata"]["heliograph_log_id"] == log_id


async def test_several_that_start_at_once_share_one_log(link: Connection, names: Names) -> None:
    ids: list[str] = []

    async def start() -> None:
        ids.append(await Objects(link, names, settings_of()).prepare())

    with trio.fail_after(TEST_S_MAX):
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(start)
    assert len(ids) == 8
    assert len(set(ids)) == 1


async def test_a_log_that_was_made_by_hand_is_compared(link: Connection, names: Names) -> None:
    by_hand = {"name": names.log, "subjects": [names.log_subjects], "storage": "file", "num_replicas": 1}
    with trio.fail_after(TEST_S_MAX):
        await api(link, f"STREAM.CREATE.{names.log}", by_hand)
        problems = await problems_of(link, names, settings_of())
    assert f"{names.log} has another discard" in problems
    assert f"{names.log} has another allow_atomic" in problems
    assert f"{names.log} is not a log that this version writes" in problems


async def test_a_log_that_is_gone_is_said_and_not_made_again(link: Connection, names: Names) -> None:
    with trio.fail_after(TEST_S_MAX):
        await Objects(link, names, settings_of()).prepare()
        await api(link, f"STREAM.DELETE.{names.log}")
        assert await problems_of(link, names, settings_of()) == [f"{names.log} is gone"]
        await api(link, f"STREAM.PURGE.KV_{names.bucket('CONFIG')}")
        assert await Objects(link, names, settings_of()).prepare()


async def test_a_start_that_was_interrupted_is_finished_by_the_next(link: Connection, names: Names) -> None:
    with trio.fail_after(TEST_S_MAX):
        log_id = await Objects(link, names, settings_of()).prepare()
        await api(link, f"STREAM.PURGE.KV_{names.bucket('CONFIG')}")
        assert await Objects(link, names, settings_of()).prepare() == log_id


async def test_what_a_server_cannot_make_is_said_after_a_bounded_wait(link: Connection, names: Names) -> None:
    with trio.fail_after(TEST_S_MAX):
        problems = await problems_of(link, names, settings_of(replicas=3))
    assert problems == [f"NATS does not make KV_{names.bucket('LIVE')} (code 10074)"]


async def test_nothing_is_made_on_a_server_that_is_too_old_or_not_durable(autojump_clock: MockClock) -> None:
    js = FakeJetStream()
    js.server_version = (2, 11, 0)
    with pytest.raises(NotReadyError) as raised:
        await Objects(js, Names("hg"), EngineSettings()).prepare()
    assert [problem.what for problem in raised.value.problems] == [
        "the NATS server is 2.11.0",
        "whether NATS syncs every write cannot be read",
    ]
    assert js.streams == {}


async def test_jetstream_that_does_not_answer_is_said_after_a_bounded_wait(autojump_clock: MockClock) -> None:
    js = FakeJetStream()
    js.state = LinkState.DOWN
    with pytest.raises(NotReadyError, match="does not answer"):
        await Objects(js, Names("hg"), EngineSettings(sync_is_always=True)).prepare()


async def test_a_bucket_that_was_lost_with_a_server_is_made_again(tmp_path: Path, names: Names) -> None:
    server, settings = ServerRun(tmp_path), settings_of()
    await server.start()
    try:
        with trio.fail_after(TEST_S_MAX):
            connecting = ConnectionSettings((server.url,), token=server.token, redial_s=0.01)
            async with await Connection.open(connecting) as link, trio.open_nursery() as nursery:
                objects = Objects(link, names, settings)
                await objects.prepare()
                nursery.start_soon(objects.keep_live)
                kv = NatsKv(link, names, LIVE, settings)
                for _ in range(2):
                    assert isinstance(await kv.put("a", b"1"), int)
                    server.kill()
                    await server.start()
                    while not isinstance(await kv.put("a", b"2", expected=0), int):  # noqa: ASYNC110  # as users do
                        await trio.sleep(0.05)
                found = (await api(link, f"STREAM.INFO.{bucket_config(names, settings, LIVE)['name']}"))["config"]
                assert bucket_problems(names, settings, LIVE, found) == []
                nursery.cancel_scope.cancel()
    finally:
        await server.stop()


async def test_a_bucket_that_cannot_be_made_again_yet_is_tried_again(autojump_clock: MockClock) -> None:
    js, names = FakeJetStream(), Names("hg")
    js.reads_fail = 200  # more than one attempt asks
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Objects(js, names, EngineSettings()).keep_live)
        await trio.sleep(EngineSettings().append_patience_s - 1)
        assert js.streams == {}
        await trio.sleep(120)
        assert list(js.streams) == [f"KV_{names.bucket(LIVE)}"]
        js.streams.clear()
        js.become(LinkState.DOWN)
        await trio.sleep(120)
        js.become(LinkState.UP)
        await trio.sleep(1)
        assert list(js.streams) == [f"KV_{names.bucket(LIVE)}"]
        nursery.cancel_scope.cancel()
    assert js.followers == []
