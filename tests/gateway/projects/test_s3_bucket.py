"""The client of a bucket against a server that checks what it signs; and servers that answer as none should."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from gateway.main.clock import now
from gateway.main.settings import SettingsError, load
from gateway.projects.s3_bucket import S3Bucket, Unseen, opened_bucket
from gateway.projects.s3_settings import S3Settings
from schemas.echo.errors import EchoError
from tests.certificates import tls_contexts
from tests.gateway.projects.s3_server import (
    ACCESS_KEY,
    BUCKET,
    REGION,
    SECRET_KEY,
    Asked,
    S3Server,
    Stored,
    put,
    s3_server,
)

KEY = "01jd0000000000000000000000/01jd0000000000000000000001"
TYPE = "text/html; charset=utf-8"


def settings_of(server: S3Server, **changes: Any) -> S3Settings:
    given: dict[str, Any] = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "region": REGION, "bucket": BUCKET}
    return S3Settings(**{**given, "endpoint": server.endpoint, **changes})


@asynccontextmanager
async def bucket_and_server(**changes: Any) -> AsyncIterator[tuple[S3Bucket, S3Server]]:
    with trio.fail_after(20):
        async with s3_server() as server, opened_bucket(settings_of(server, **changes), now) as bucket:
            assert bucket is not None
            yield bucket, server


class Taken:
    def __init__(self, fault_after: int = 10**9) -> None:
        self.content = b""
        self.fault_after = fault_after

    async def __call__(self, piece: bytes) -> EchoError | None:
        await trio.lowlevel.checkpoint()
        self.content += piece
        return EchoError.PAYLOAD_TOO_LARGE if len(self.content) > self.fault_after else None


async def test_object_is_seen_read_and_removed() -> None:
    async with bucket_and_server() as (bucket, server):
        assert await bucket.is_ready()
        assert await bucket.size(KEY) is Unseen.MISSING
        content = bytes(range(256)) * 4000
        server.objects[KEY] = Stored(content, TYPE)
        assert await bucket.size(KEY) == len(content)
        taken = Taken()
        assert await bucket.fetch(KEY, taken) is True
        assert taken.content == content
        assert await bucket.remove(KEY)
        assert await bucket.remove(KEY)
        assert server.objects == {}
        assert [status for *_, status in server.asked] == [200, 404, 200, 200, 204, 204]
        assert server.connections == 1  # one after the other, on one connection


async def test_connection_that_was_closed_meanwhile_is_made_anew() -> None:
    async with bucket_and_server() as (bucket, server):
        server.hangs_up = True
        server.objects[KEY] = Stored(b"content", TYPE)
        for _ in range(3):
            assert await bucket.size(KEY) == 7
        taken = Taken()
        assert await bucket.fetch(KEY, taken) is True
        assert taken.content == b"content"
        assert [status for *_, status in server.asked] == [200] * 4


async def test_hint_before_an_answer_is_passed_over_and_hints_without_end_are_none() -> None:
    async with bucket_and_server() as (bucket, server):
        hint, answer = b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
        server.answer_instead = lambda _: hint + answer
        assert await bucket.size(KEY) == 5
        server.answer_instead = lambda _: hint * 1000 + answer
        assert await bucket.size(KEY) is Unseen.UNKNOWN


async def test_content_that_is_not_wanted_after_all_is_read_no_further() -> None:
    async with bucket_and_server() as (bucket, server):
        server.objects[KEY] = Stored(bytes(10_000_000), TYPE)
        taken = Taken(fault_after=100_000)
        assert await bucket.fetch(KEY, taken) is EchoError.PAYLOAD_TOO_LARGE
        assert len(taken.content) < 1_000_000


async def test_wrong_secret_is_not_ready_and_nothing_is_removed() -> None:
    async with bucket_and_server(secret_key="another") as (bucket, server):
        server.objects[KEY] = Stored(b"x", TYPE)
        with capture_logs() as logs:
            assert not await bucket.is_ready()
            assert await bucket.size(KEY) is Unseen.MISSING  # as S3 answers who may not look
            assert not await bucket.remove(KEY)
            assert await bucket.fetch(KEY, Taken()) is False
        assert logs == [{"event": "bucket_unreachable", "status": 403, "answers": 1, "log_level": "warning"}]
        assert KEY in server.objects


async def test_whether_it_is_ready_is_asked_now_and_then_and_by_one_at_a_time() -> None:
    async with bucket_and_server() as (bucket, server):
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(bucket.is_ready)
        assert server.asked == [("HEAD", "", 200)]


def _redirect(asked: Asked) -> bytes:
    return b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/elsewhere\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        _redirect(Asked("", "", {}, b"")),
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000,
        b"",
    ],
)
async def test_answer_that_is_none_is_an_outcome(answer: bytes) -> None:
    async with bucket_and_server() as (bucket, server):
        server.objects[KEY] = Stored(b"x", TYPE)
        server.answer_instead = lambda _: answer
        with capture_logs() as logs:
            size = await bucket.size(KEY)
            assert size is Unseen.UNKNOWN or (isinstance(size, int) and size > 10**100)
            fetched = await bucket.fetch(KEY, Taken())
            assert fetched is False or answer.startswith(b"HTTP/1.1 200 OK\r\nTransfer")
            assert not await bucket.remove(KEY) or answer.startswith(b"HTTP/1.1 200")
        assert {entry["event"] for entry in logs} == {"bucket_unreachable"}
        server.answer_instead = lambda _: None
        assert await bucket.size(KEY) == 1


async def test_content_that_breaks_off_is_not_whole() -> None:
    async with bucket_and_server() as (bucket, server):
        for head in (b"Content-Length: 10", b"Transfer-Encoding: chunked"):
            server.answer_instead = lambda _, head=head: b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n4\r\nab"  # type: ignore[misc]
            assert await bucket.fetch(KEY, Taken()) is False


async def test_bucket_that_does_not_answer_has_a_deadline() -> None:
    async with bucket_and_server() as (_, server):
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")  # which nobody accepts from
        port = listeners[0].socket.getsockname()[1]
        silent = settings_of(server, endpoint=f"http://127.0.0.1:{port}", answer_s_max=0.05, fetch_s_max=0.05)
        async with opened_bucket(silent, now) as nobody:
            assert nobody is not None
            assert not await nobody.is_ready()
            assert await nobody.size(KEY) is Unseen.UNKNOWN
            assert await nobody.fetch(KEY, Taken()) is False
            assert not await nobody.remove(KEY)
        await listeners[0].aclose()
        closed = settings_of(server, endpoint=f"http://127.0.0.1:{port}")
        async with opened_bucket(closed, now) as nobody:
            assert nobody is not None
            assert not await nobody.is_ready()


async def test_certificate_is_verified(tmp_path: Path) -> None:
    tls, _ = tls_contexts(tmp_path)
    with trio.fail_after(20):
        async with s3_server(tls) as server:
            trusting = settings_of(server, ca_file=str(tmp_path / "server.pem"))
            async with opened_bucket(trusting, now) as bucket, opened_bucket(settings_of(server), now) as other:
                assert bucket is not None
                assert other is not None
                assert await bucket.is_ready()
                assert not await other.is_ready()


async def test_file_of_certificates_that_is_none_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("none")
    for name in ("none.pem", "missing.pem"):
        with pytest.raises(SettingsError, match=r"echo\.s3\.ca_file"):
            async with opened_bucket(settings_of(S3Server(), ca_file=str(tmp_path / name)), now):
                pass


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with bucket_and_server() as (bucket, _):
        assert await bucket.is_ready()


# ---- upload URLs -----------------------------------------------------------------------------------------------------


async def test_upload_url_takes_what_was_signed_and_nothing_else() -> None:
    async with bucket_and_server() as (bucket, server):
        now_s = now().wall_ms // 1000
        url = bucket.presigned_put(KEY, TYPE, 5, now_s, 900)
        for body, headers in (
            (b"hello", {"content_type": "text/html"}),
            (b"hello", {"content_type": "application/x-www-form-urlencoded"}),
            (b"hello", {}),
            (b"hello!", {"content_type": TYPE}),
            (b"hell", {"content_type": TYPE}),
            (b"", {"content_type": TYPE}),
        ):
            answer = await put(url, body, **headers)
            assert (answer.status, b"SignatureDoesNotMatch" in answer.body) == (403, True), (body, headers)
        for altered in (
            url.replace("Expires=900", "Expires=901"),
            url.replace(KEY[-4:], "zzzz"),
            url[:-1] + ("0" if url[-1] != "0" else "1"),
            url.replace("content-length%3B", ""),
        ):
            assert (await put(altered, b"hello", content_type=TYPE)).status == 403
        assert server.objects == {}
        assert (await put(url, b"hello", content_type=TYPE)).status == 200
        assert server.objects == {KEY: Stored(b"hello", TYPE)}


async def test_upload_url_ends() -> None:
    async with bucket_and_server() as (bucket, server):
        now_s = now().wall_ms // 1000
        url = bucket.presigned_put(KEY, TYPE, 5, now_s, 900)
        for late_s, status in ((900, 403), (-10, 403), (899, 200)):
            at = datetime.fromtimestamp(now_s, UTC) + timedelta(seconds=late_s)
            server.now = lambda at=at: at  # type: ignore[misc]
            assert (await put(url, b"hello", content_type=TYPE)).status == status


# ---- settings --------------------------------------------------------------------------------------------------------

GOOD = {"endpoint": "https://s3.example", "bucket": "a-bucket", "access_key": "AK", "secret_key": "SECRET"}


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"endpoint": "s3.example"}, "echo.s3.endpoint"), ({"endpoint": "https://s3.example/"}, "echo.s3.endpoint"),
        ({"endpoint": "https://user@s3.example"}, "endpoint"), ({"endpoint": "ftp://s3.example"}, "endpoint"),
        ({"endpoint": "https://S3.example"}, "echo.s3.endpoint"), ({"bucket": "a/b"}, "echo.s3.bucket"),
        ({"bucket": "ab"}, "bucket"), ({"bucket": "A-Bucket"}, "bucket"), ({"region": "eu central"}, "region"),
        ({"secret_key": ""}, "secret_key"), ({"access_key": "a b"}, "access_key"), ({"looks_max": 0}, "limits"),
        ({"look_s": 0.0}, "limits"), ({"addressing": "dns"}, "addressing"), ({"surprise": 1}, "echo.s3.surprise"),
    ],
)  # fmt: skip
def test_mistake_in_the_settings_is_named_and_no_secret_with_it(tmp_path: Path, changes: Any, hint: str) -> None:
    lines = "".join(f"{name} = {value!r}\n" for name, value in {**GOOD, **changes}.items())
    (tmp_path / "settings.toml").write_text(f"[echo.s3]\n{lines}")
    with pytest.raises(SettingsError, match=hint) as told:
        load(tmp_path / "settings.toml", {}, {})
    assert "SECRET" not in str(told.value)


@pytest.mark.parametrize("missing", GOOD)
def test_bucket_needs_an_endpoint_a_name_and_keys(tmp_path: Path, missing: str) -> None:
    lines = "".join(f"{name} = {value!r}\n" for name, value in GOOD.items() if name != missing)
    (tmp_path / "settings.toml").write_text(f"[echo.s3]\n{lines}")
    with pytest.raises(SettingsError, match=missing):
        load(tmp_path / "settings.toml", {}, {})


def test_bucket_may_be_set_by_variables_alone_and_is_in_no_dump() -> None:
    variables = {f"HELIOGRAPH_ECHO_S3_{name.upper()}": value for name, value in GOOD.items()}
    settings = load(None, {**variables, "HELIOGRAPH_ECHO_S3_LOOKS_MAX": "3"}, {})
    assert settings.echo.s3 == S3Settings(**GOOD, looks_max=3)  # type: ignore[arg-type]
    assert "SECRET" not in repr(settings)
    assert load(None, {}, {}).echo.s3 is None


def test_settings_of_the_how_to_can_be_loaded(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "bring-your-own-bucket.md").read_text()
    (toml,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "settings.toml").write_text(toml)
    variables = dict(re.findall(r"^export (HELIOGRAPH_\w+)=(\S+)$", page, re.MULTILINE))
    assert set(variables) == {"HELIOGRAPH_ECHO_S3_ACCESS_KEY", "HELIOGRAPH_ECHO_S3_SECRET_KEY"}
    settings = load(tmp_path / "settings.toml", dict.fromkeys(variables, "key"), {})
    assert settings.echo.s3 is not None
    assert (settings.echo.s3.bucket, settings.echo.s3.addressing) == ("my-uploads", "virtual")
    for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL):
        json.loads(block)
