"""Files over HTTP: streamed in and out, counted while they come, and never a page of ours."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from gateway.spaces.file_content_rules import (
    ByteRange,
    Unsatisfiable,
    byte_range,
    disposition,
    file_name,
    served_type,
    stored_type,
)
from gateway.spaces.file_routes import READ_BYTES
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
    ],
)  # fmt: skip
async def test_a_body_that_is_no_form_with_one_file_leaves_nothing(body: bytes) -> None:
    async with site() as here:
        token = (await here.make())["token"]
        assert (await upload(here, token, body)).error == (400, "invalid_payload")
        assert (await here.ask("GET", f"/api/s/{token}/files")).json == {"files": []}


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


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None), ("bytes=0-0", ByteRange(0, 1)), ("bytes=2-", ByteRange(2, 8)), ("bytes=-3", ByteRange(7, 3)),
        ("bytes=-30", ByteRange(0, 10)), ("bytes=5-99", ByteRange(5, 5)), ("bytes=10-", Unsatisfiable()),
        ("bytes=-0", Unsatisfiable()), ("bytes=3-2", None), ("bytes=0-1,3-4", None), ("bytes=-", None),
        ("lines=1-2", None),
        ("bytes=" + "9" * 15 + "-", Unsatisfiable()), ("bytes=" + "9" * 99 + "-", None),
    ],
)  # fmt: skip
def test_a_range_is_taken_as_rfc_9110_has_it(header: str | None, expected: object) -> None:
    assert byte_range(header, 10) == expected
