"""`POST /admin/backup` of a whole gateway: who may have one, one at a time, whole or broken off."""

import http.client
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from ulid import ULID

from gateway.backup.live_backups import STAGING
from gateway.backup.restoring import check
from gateway.identity.tokens import OperatorScope, TokenClass
from gateway.main.server import Running, running
from gateway.main.settings import load
from tests.gateway.api.live import wall_ms

LISTEN = {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"}
PATIENCE_S = 60
BROKEN_OFF = (http.client.IncompleteRead, ConnectionResetError)
LARGE = "ab" * 32  # more than sockets hold, so that it is still going out when somebody looks


@asynccontextmanager
async def gateway_on(folder: Path, **more: Any) -> AsyncIterator[Running]:
    with trio.fail_after(PATIENCE_S):
        async with running(load(None, {}, {"data": str(folder / "data"), **LISTEN, **more})) as gateway:
            yield gateway


def token(gateway: Running, *scopes: OperatorScope, jti: str | None = None, life_s: int = 600) -> str:
    wanted = scopes or tuple(OperatorScope)
    return gateway.folder.mint(TokenClass.OPERATOR, "ada", "operators", wanted, life_s, jti or str(ULID()), wall_ms())


@contextmanager
def asked(gateway: Running, bearer: str | None, body: object = None) -> Iterator[http.client.HTTPResponse]:
    with closing(http.client.HTTPConnection(gateway.http, timeout=PATIENCE_S)) as connection:
        headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
        connection.request("POST", "/admin/backup", json.dumps({} if body is None else body), headers)
        yield connection.getresponse()


async def answer(gateway: Running, bearer: str | None, body: object = None) -> tuple[int, bytes]:
    def ask() -> tuple[int, bytes]:
        with asked(gateway, bearer, body) as response:
            return response.status, response.read()

    return await trio.to_thread.run_sync(ask)


def put_large(folder: Path) -> None:
    path = folder / "data" / "sites" / LARGE[:2] / LARGE
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(64 * 1024**2)


async def line_of(lines: list[Any]) -> Any:
    """The one that the backup leaves when it is over."""
    while not (found := [line for line in lines if line["event"] == "operator_action"]):  # noqa: ASYNC110
        await trio.sleep(0.01)
    (line,) = found
    return line


async def until_idle(folder: Path) -> None:
    while (folder / "data" / STAGING).exists():  # noqa: ASYNC110  # a thread removes it
        await trio.sleep(0.01)


async def test_backup_is_whole_and_leaves_one_line_and_no_copy(tmp_path: Path) -> None:
    async with gateway_on(tmp_path) as gateway:
        with capture_logs() as lines:
            status, body = await answer(gateway, token(gateway))
            line = await line_of(lines)
        assert status == 200
        (tmp_path / "backup.tar").write_bytes(body)
        manifest = check(tmp_path / "backup.tar")
        assert {"token.key", "ca.key", "ca.crt", "log.sqlite"} <= {member.name for member in manifest.members}
        assert (line["action"], line["decision"], line["sub"]) == ("backup", "answered", "ada")
        assert line["target"] == {"spaces": False, "audit": True, "bytes": len(body)}
        await until_idle(tmp_path)


@pytest.mark.parametrize("missing", list(OperatorScope))
async def test_it_takes_every_scope_that_an_operator_can_have(tmp_path: Path, missing: OperatorScope) -> None:
    async with gateway_on(tmp_path) as gateway:
        with capture_logs() as lines:
            status, body = await answer(gateway, token(gateway, *(set(OperatorScope) - {missing})))
            line = await line_of(lines)
        told = json.loads(body)
        assert (status, told["code"]) == (403, "E_SAFETY_DENIED")
        assert missing in told["suggested_fix"]
        assert (line["decision"], line["reason"], line["target"]) == ("refused", "scope", None)


async def test_nobody_else_learns_that_there_is_such_a_route(tmp_path: Path) -> None:
    async with gateway_on(tmp_path) as gateway:
        assert (await answer(gateway, None))[0] == 401
        assert (await answer(gateway, "nonsense"))[0] == 401


@pytest.mark.parametrize("body", [[], {"spaces": 1}, {"everything": True}, "x"])
async def test_malformed_wish_is_refused(tmp_path: Path, body: object) -> None:
    async with gateway_on(tmp_path) as gateway:
        status, told = await answer(gateway, token(gateway), body)
        assert (status, json.loads(told)["code"]) == (400, "E_MANIFEST_INVALID")


async def test_second_one_at_a_time_is_told_to_wait(tmp_path: Path) -> None:
    put_large(tmp_path)
    async with gateway_on(tmp_path) as gateway:

        def meanwhile() -> tuple[int, bytes]:
            with asked(gateway, token(gateway)) as first:
                assert first.status == 200
                with asked(gateway, token(gateway)) as second:
                    told = second.status, second.read()
                assert len(first.read()) > 64 * 1024**2
            return told

        status, body = await trio.to_thread.run_sync(meanwhile)
        assert (status, json.loads(body)["code"]) == (429, "E_RATE_LIMITED")
        assert (await answer(gateway, token(gateway)))[0] == 200


async def test_one_whose_token_is_revoked_meanwhile_breaks_off(tmp_path: Path) -> None:
    put_large(tmp_path)
    async with gateway_on(tmp_path) as gateway:
        jti = str(ULID())

        def fetch() -> None:
            with asked(gateway, token(gateway, jti=jti)) as response:
                assert response.status == 200
                trio.from_thread.run_sync(gateway.folder.revoke, jti)
                with pytest.raises(BROKEN_OFF):
                    response.read()

        with capture_logs() as lines:
            await trio.to_thread.run_sync(fetch)
            assert (await line_of(lines))["decision"] == "abandoned"


async def test_one_that_nobody_fetches_in_time_breaks_off(tmp_path: Path) -> None:
    put_large(tmp_path)
    async with gateway_on(tmp_path, **{"backup.download_s_max": 0.2}) as gateway:

        def fetch() -> None:
            with asked(gateway, token(gateway)) as response:
                trio.from_thread.run(until_idle, tmp_path)  # it has given up
                with pytest.raises(BROKEN_OFF):
                    response.read()

        await trio.to_thread.run_sync(fetch)


async def test_client_that_hangs_up_leaves_nothing_and_the_next_one_is_served(tmp_path: Path) -> None:
    put_large(tmp_path)
    async with gateway_on(tmp_path) as gateway:

        def hang_up() -> None:
            with asked(gateway, token(gateway)) as response:
                response.read(1000)

        await trio.to_thread.run_sync(hang_up)
        await until_idle(tmp_path)
        while (await answer(gateway, token(gateway)))[0] == 429:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_backup_that_would_take_the_room_of_calls_is_refused(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, **{"backup.room_left_bytes_min": 10**18}) as gateway:
        with capture_logs() as lines:
            status, body = await answer(gateway, token(gateway))
            line = await line_of(lines)
        told = json.loads(body)
        assert (status, told["code"]) == (500, "E_INTERNAL")
        assert "make room" in told["message"]
        assert (line["decision"], line["reason"]) == ("refused", "not_taken")
        assert not (tmp_path / "data" / STAGING).exists()


async def test_file_that_becomes_shorter_meanwhile_breaks_it_off_and_is_told(tmp_path: Path) -> None:
    put_large(tmp_path)
    async with gateway_on(tmp_path) as gateway:

        def fetch() -> None:
            with asked(gateway, token(gateway)) as response:
                assert len(response.read(2_000_000)) == 2_000_000  # it is in the middle of it
                (tmp_path / "data" / "sites" / LARGE[:2] / LARGE).write_bytes(b"")
                with pytest.raises(BROKEN_OFF):
                    response.read()

        with capture_logs() as lines:
            await trio.to_thread.run_sync(fetch)
            assert (await line_of(lines))["decision"] == "abandoned"
        assert [line["event"] for line in lines if line["log_level"] == "error"] == ["backup_broke_off"]


async def test_copies_that_a_killed_gateway_left_are_removed_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "data" / STAGING).mkdir(parents=True)
    (tmp_path / "data" / STAGING / "log.sqlite").write_bytes(b"old")
    async with gateway_on(tmp_path):
        assert not (tmp_path / "data" / STAGING).exists()
