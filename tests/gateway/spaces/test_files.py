"""Files over HTTP: streamed in and out, counted while they come, and never a page of ours."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from gateway.spaces.file_content_rules import disposition, file_name, served_type, stored_type
from gateway.spaces.file_routes import READ_BYTES
from gateway.spaces.settings import EchoSettings
from tests.gateway.spaces.site import PLENTY, Answer, Site, site

FORM = "multipart/form-data; boundary=B"


def form(content: bytes, filename: str = "a.txt", kind: str = "text/plain", name: str = "file") -> bytes:
    head = (
        f'--B\r\nContent-Disposition: form-data; name="{name}"; filename="{filename}"\r\nContent-Type: {kind}\r\n\r\n'
    )
    return head.encode() + content + b"\r\n--B--\r\n"


async def upload(here: Site, token: str, body: bytes | list[bytes], content_type: str = FORM) -> Answer:
    return await here.ask("POST", f"/api/s/{token}/files", body, content_type=content_type)


async def uploaded(here: Site, token: str, content: bytes, kind: str = "text/plain") -> Any:
    answer = await upload(here, token, form(content, kind=kind))
    assert answer.status == 201, answer
    return answer.json


async def test_a_file_is_uploaded_listed_read_and_deleted() -> None:
    async with site() as here:
        made = await here.make()
        path = f"/api/s/{made['token']}/files"
        document = await uploaded(here, made["token"], b"hello")
        assert document == {
            "file_id": document["file_id"],
            "name": "a.txt",
            "content_type": "text/plain",
            "size": 5,
            "sha256": hashlib.sha256(b"hello").hexdigest(),
            "created_at": "2023-11-14T22:13:20.000Z",
            "expires_at": made["expires_at"],
            "url": f"http://localhost:8420{path}/{document['file_id']}",
        }
        assert (await here.ask("GET", path)).json == {"files": [document]}
        answer = await here.ask("GET", f"{path}/{document['file_id']}")
        assert (answer.status, answer.body) == (200, b"hello")
        assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''a.txt"
        assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "private, no-store"
        head = await here.ask("HEAD", f"{path}/{document['file_id']}")
        assert (head.status, head.body, head.headers) == (200, b"", answer.headers)
        assert (await here.ask("DELETE", f"{path}/{document['file_id']}")).status == 204
        for method in ("GET", "DELETE"):
            assert (await here.ask(method, f"{path}/{document['file_id']}")).error == (404, "file_not_found")


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_body_in_pieces_of_any_size_is_the_same_file(size: int) -> None:
    async with site() as here:
        token = (await here.make())["token"]
        content = b"--B\r\n--B-" * 20 + b"\r\n"
        body = form(content.replace(b"--B", b"--C"))
        answer = await upload(here, token, [body[at : at + size] for at in range(0, len(body), size)])
        assert answer.json["sha256"] == hashlib.sha256(content.replace(b"--B", b"--C")).hexdigest()


async def test_a_range_is_answered_with_that_part_alone() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        content = bytes(range(256)) * 1024
        document = await uploaded(here, token, content)
        path = f"/api/s/{token}/files/{document['file_id']}"
        answer = await here.ask("GET", path, range="bytes=70000-200000")
        assert (answer.status, answer.body) == (206, content[70_000:200_001])
        assert answer.headers["content-range"] == "bytes 70000-200000/262144"
        answer = await here.ask("GET", path, range="bytes=1-2", if_range=f'"{document["sha256"]}"')
        assert answer.body == content[1:3]
        assert (await here.ask("GET", path, range="bytes=1-2", if_range='"other"')).status == 200
        answer = await here.ask("GET", path, range="bytes=262144-")
        assert (answer.status, answer.headers["content-range"]) == (416, "bytes */262144")


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize(
    "preamble", [b"\r\n", b"This is a multi-part message.\r\n", b"--\r\n-\r\n--b\r\n\r\n\r\n", b"x" * 60_000 + b"\r\n"]
)
async def test_what_stands_before_the_first_boundary_and_behind_the_last_is_no_part_of_the_file(
    preamble: bytes, size: int
) -> None:
    async with site() as here:
        token = (await here.make())["token"]
        body = preamble + form(b"\r\n--content") + b"epilogue\r\n"
        answer = await upload(here, token, [body[at : at + size] for at in range(0, len(body), size)])
        assert answer.status == 201
        path = f"/api/s/{token}/files/{answer.json['file_id']}"
        assert (await here.ask("GET", path)).body == b"\r\n--content"


async def test_an_empty_file_is_a_file() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        document = await uploaded(here, token, b"")
        answer = await here.ask("GET", f"/api/s/{token}/files/{document['file_id']}")
        assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"x", b"--B--\r\n", form(b"x")[:-10], form(b"x", name="other"), form(b"x").replace(b"form-data", b"x"),
        form(b"x")[:-8] + b"\r\n" + form(b"y"), b"--B\r\n" + b"a: b\r\n" * 20 + b"\r\nx\r\n--B--\r\n",
        b"--B\r\nContent-Disposition: " + b"x" * 10_000 + b"\r\n\r\nx\r\n--B--\r\n", b"--B\r\n\xff\x00: x\r\n\r\n",
        b"x" + form(b"x"), b"x" * (64 * 1024 + 1) + b"\r\n" + form(b"x"), b"--Bx\r\n" + form(b"x"),
    ],
)  # fmt: skip
async def test_a_body_that_is_no_form_with_one_file_leaves_nothing(body: bytes) -> None:
    async with site() as here:
        token = (await here.make())["token"]
        assert (await upload(here, token, body)).error == (400, "invalid_payload")
        assert (await here.ask("GET", f"/api/s/{token}/files")).json == {"files": []}


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        (b'filename="a.txt"', "a.txt"),
        (b"filename=a.txt", "a.txt"),
        (b'filename="' + b"x" * 5000 + b'"', "x" * 200),
        (b'filename="' + "é".encode() * 5000 + b'"', "é" * 200),
        (b"filename*=UTF-8''na%C3%AFve%20file.txt", "naïve file.txt"),
        (b"FileName* = utf-8'en'%E2%82%AC.txt", "€.txt"),
        (b"filename*=UTF-8''" + b"%E2%82%AC" * 2000, "€" * 200),
        (b"filename*=UTF-8''%2e%2e%2f..%5cx.txt", "x.txt"),
        (b"filename*=UTF-8''%00%0d%0a", "file"),
        (b"filename*=UTF-8''%ff", "\ufffd"),
        (b"filename*=koi8-r''a.txt", "file"),
        (b"filename*=UTF-8", "file"),
        (b"filename=\"plain\"; filename*=UTF-8''extended", "plain"),
        (b"x=\"; filename*=UTF-8''hidden\"", "file"),
        (b'filename=""', "file"),
        (b'filename=".."', "file"),
        (b'filename="..."', "file"),
        (b'filename="../../x"', "x"),
        (b'filename="C:\\dir\\x.exe"', "x.exe"),
        (b'filename="a\0b"', "ab"),
        ('filename="\u202egpj.exe"'.encode(), "gpj.exe"),
        (b'filename="\xed\xa0\x80x"', "\ufffd\ufffd\ufffdx"),
        (b'filename="say \\"hi\\".txt"', 'say "hi".txt'),
        (b'filename="%0D%0ASet-Cookie: x"', "%0D%0ASet-Cookie: x"),
    ],
)
async def test_whatever_name_a_file_is_sent_with_it_has_one_that_can_be_shown(parameters: bytes, name: str) -> None:
    async with site() as here:
        token = (await here.make())["token"]
        body = b'--B\r\nContent-Disposition: form-data; name="file"; ' + parameters + b"\r\n\r\nx\r\n--B--\r\n"
        answer = await upload(here, token, body)
        assert (answer.status, answer.json["name"]) == (201, name)
        served = await here.ask("GET", f"/api/s/{token}/files/{answer.json['file_id']}")
        assert served.headers["content-disposition"] == disposition(name)


async def test_a_header_of_a_part_without_end_is_refused() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        for line in (b'--B\r\nContent-Disposition: form-data; name="file"; filename="', b"--B\r\n", b"--B\r\nX: "):
            assert (await upload(here, token, [line, *[b"x" * 1000] * 100])).error == (400, "invalid_payload")
        assert (await upload(here, token, [b"--B\r\n", *[b"x: y\r\n"] * 1000])).error == (400, "invalid_payload")


@pytest.mark.parametrize(
    ("settings", "is_by_address"),
    [(replace(PLENTY, uploads_per_address_max=2), True), (replace(PLENTY, uploads_per_space_max=2), False)],
)
async def test_uploads_under_way_have_a_share_of_the_places(settings: EchoSettings, *, is_by_address: bool) -> None:
    async with site(settings) as here:
        one, other = (await here.make())["token"], (await here.make())["token"]
        go_on = trio.Event()
        body = form(b"x" * 100)
        answers: list[Answer] = []

        async def slowly(client: str) -> None:
            pieces: list[bytes | trio.Event] = [body[:-20], go_on, body[-20:]]
            answers.append(await here.ask("POST", f"/api/s/{one}/files", pieces, client, content_type=FORM))

        async def try_with(token: str, client: str) -> Answer:
            return await here.ask("POST", f"/api/s/{token}/files", body, client, content_type=FORM)

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(slowly, "192.0.2.1")
            await trio.testing.wait_all_tasks_blocked()
            answer = await try_with(one, "192.0.2.1")
            assert answer.error == (429, "rate_limited")
            assert (answer.headers["retry-after"], answer.json["retry_after_ms"]) == ("1", 1000)
            assert answer.headers["access-control-allow-origin"] == "*"
            assert (await try_with(one, "192.0.2.2")).status == (201 if is_by_address else 429)
            assert (await try_with(other, "192.0.2.1")).status == (429 if is_by_address else 201)
            assert (await try_with(other, "192.0.2.2")).status == 201
            go_on.set()
        assert [answer.status for answer in answers] == [201, 201]
        assert (await try_with(one, "192.0.2.1")).status == 201


async def test_a_body_that_says_it_is_too_large_is_refused_before_any_of_it_is_asked_for() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        never = trio.Event()
        for path in ("files", "kv/k"):
            fields = {"content_type": FORM if path == "files" else "application/json", "content_length": "20000000"}
            answer = await here.ask("POST", f"/api/s/{token}/{path}", [never, b"x"], **fields)
            assert answer.error == (413, "payload_too_large")
            assert answer.headers["access-control-allow-origin"] == "*"
        answer = await here.ask("POST", "/spaces", [never, b"x"], content_length="16385")
        assert answer.error == (413, "payload_too_large")


@pytest.mark.parametrize(
    ("content_type", "error"),
    [
        ("application/json", (415, "unsupported_media_type")),
        ("", (415, "unsupported_media_type")),
        ("multipart/form-data", (400, "invalid_payload")),
        ("multipart/form-data; boundary=", (400, "invalid_payload")),
        (f"multipart/form-data; boundary={'x' * 71}", (400, "invalid_payload")),
    ],
)
async def test_a_body_of_another_type_is_refused(content_type: str, error: tuple[int, str]) -> None:
    async with site() as here:
        token = (await here.make())["token"]
        assert (await upload(here, token, form(b"x"), content_type)).error == error


async def test_half_an_upload_leaves_nothing_and_counts_nothing() -> None:
    async with site(replace(PLENTY, files_bytes_max=100)) as here:
        token = (await here.make())["token"]
        for _ in range(3):
            assert (await upload(here, token, [form(b"x" * 90)[:-8], b"gone"])).status == 0
        await uploaded(here, token, b"x" * 100)


async def test_files_meet_their_limits() -> None:
    async with site(replace(PLENTY, file_bytes_max=100, files_bytes_max=150, files_max=2)) as here:
        token = (await here.make())["token"]
        assert (await upload(here, token, form(b"x" * 101))).error == (413, "payload_too_large")
        assert (await upload(here, token, [b"x" * 50_000] * 2)).error[0] in (400, 413)
        await uploaded(here, token, b"x" * 100)
        assert (await upload(here, token, form(b"x" * 51))).error == (413, "space_full")
        await uploaded(here, token, b"x" * 50)
        assert (await upload(here, token, form(b""))).error == (413, "space_full")


async def test_a_download_breaks_off_when_its_space_ends() -> None:
    async with site() as here:
        made = await here.make(ttl_seconds="60")
        document = await uploaded(here, made["token"], b"x" * 300_000)

        def pass_time() -> None:
            here.world.now_ms += 25_000

        here.on_piece = pass_time  # its head, two pieces, and then it is over
        path = f"/api/s/{made['token']}/files/{document['file_id']}"
        answer = await here.ask("GET", path)
        assert (answer.status, answer.headers["content-length"]) == (200, "300000")
        assert len(answer.body) == 2 * READ_BYTES
        assert (await here.ask("GET", path)).error == (404, "space_not_found")


# ---- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claimed", "name"),
    [
        ("a.txt", "a.txt"), ("../../etc/passwd", "passwd"), ("C:\\x\\y.exe", "y.exe"), ("", "file"), ("..", "file"),
        (".", "file"), ("...", "file"), ("a\u2028b\u2029", "ab"), ("\ud800a", "a"), ("é" * 300, "é" * 200),
        ("\U0001f600" * 201, "\U0001f600" * 200),
        ("a/", "file"), ("a\r\nb\0c", "abc"), ("\u202egpj.exe", "gpj.exe"), ("x" * 300, "x" * 200), ("  a  ", "a"),
        ("é ü.txt", "é ü.txt"), ("\ufffd", "\ufffd"),
    ],
)  # fmt: skip
def test_a_name_is_its_last_segment_without_what_cannot_be_seen(claimed: str, name: str) -> None:
    assert file_name(claimed) == name
    assert file_name(name) == name
    assert disposition(name).isascii()
    assert "\n" not in disposition(name)


@pytest.mark.parametrize(
    ("claimed", "stored", "served"),
    [
        ("image/png", "image/png", "image/png"),
        ("IMAGE/PNG; x=y", "image/png", "image/png"),
        ("image/svg+xml", "image/svg+xml", "application/octet-stream"),
        ("text/html", "text/html", "application/octet-stream"),
        ("text/plain; charset=x", "text/plain", "text/plain"),
        ("application/xhtml+xml", "application/xhtml+xml", "application/octet-stream"),
        ("video/mp4", "video/mp4", "video/mp4"),
        ("application/pdf", "application/pdf", "application/pdf"),
        ("image/\r\nx: y", "application/octet-stream", "application/octet-stream"),
        ("image/", "application/octet-stream", "application/octet-stream"),
        (None, "application/octet-stream", "application/octet-stream"),
    ],
)
def test_only_types_that_run_nothing_are_repeated(claimed: str | None, stored: str, served: str) -> None:
    assert stored_type(claimed) == stored
    assert served_type(stored) == served
