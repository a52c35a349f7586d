"""Published files over HTTP: put, presigned, listed, deleted; what is refused leaves nothing."""

import hashlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
import trio
import trio.testing

from actors.project.projects import Published
from gateway.projects.settings import ProjectsSettings
from schemas.echo.errors import EchoError
from tests.gateway.projects.static_site import BASE, StaticSite, static_site
from tests.gateway.spaces.site import Answer


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[StaticSite]:
    with trio.fail_after(30):
        async with static_site(tmp_path) as site:
            yield site


async def test_file_is_put_listed_replaced_and_deleted(here: StaticSite) -> None:
    new = await here.put("a/index.html", b"hello", content_type="text/html")
    sha256 = hashlib.sha256(b"hello").hexdigest()
    site = here.process.projects.get(here.project_id)
    assert site is not None
    assert (new.status, new.json) == (
        201,
        {
            "path": "a/index.html",
            "size": 5,
            "content_type": "text/html",
            "etag": f'"{sha256}"',
            "sha256": sha256,
            "updated_at": "2026-09-21T14:13:20.000Z",
            "url": f"http://{site.record.label}.localhost:8420/a/index.html",
        },
    )
    assert new.headers["access-control-allow-origin"] == "*"
    assert new.headers["cache-control"] == "no-store"
    assert (await here.ask("GET", here.static, **here.auth)).json == {"objects": [new.json], "next_cursor": None}
    again = await here.put("a/index.html", [b"hel", b"lo!"])
    assert (again.status, again.json["size"]) == (200, 6)
    assert again.json["content_type"] == "text/html; charset=utf-8"  # none was sent: that of the table
    assert here.read("a/index.html") == b"hello!"
    gone = await here.ask("DELETE", f"{here.static}/a/index.html", **here.auth)
    assert (gone.status, gone.body) == (204, b"")
    assert gone.headers["access-control-allow-origin"] == "*"
    assert (await here.ask("DELETE", f"{here.static}/a/index.html", **here.auth)).error == (404, "object_not_found")
    assert here.is_empty()


async def test_name_that_has_to_be_escaped_has_a_url_that_leads_to_it(here: StaticSite) -> None:
    path = "été/a b?#%25.txt"
    answer = await here.put(quote(path))
    assert (answer.status, answer.json["path"]) == (201, path)
    assert answer.json["url"].endswith("/%C3%A9t%C3%A9/a%20b%3F%23%2525.txt")
    assert (await here.ask("DELETE", f"{here.static}/{quote(path)}", **here.auth)).status == 204


async def test_file_may_be_called_as_a_route_is(here: StaticSite) -> None:
    assert (await here.put("presign")).status == 201
    assert here.read("presign") == b"x"


@pytest.mark.parametrize(
    "raw",
    [
        "..", "a/../b", "%2e%2e/b", "a%2Fb", "a%2fb", "..%2f..%2fecho.key", "a//b", "a/", "%5cb", "a%00", ".git/config",
        "%2Egit/config", "e%CC%81", "%ff", "%c0%ae", "a%0d%0aX:%20y", "%zz", "%", "a%", "a" * 513, "%252f", "/a",
    ],
)  # fmt: skip
async def test_path_that_is_a_trick_is_refused_and_nothing_is_left(here: StaticSite, raw: str) -> None:
    for method in ("PUT", "DELETE"):
        answer = await here.ask(method, f"{here.static}/{raw}", b"x", **here.auth)
        assert answer.error == (400, "invalid_path")
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.json["message"] == EchoError.INVALID_PATH.message  # and nothing that was sent
    presign = json.dumps({"path": f"a/../{raw}"}).encode()
    assert (await here.ask("POST", f"{here.static}/presign", presign, **here.auth)).error == (400, "invalid_path")
    assert here.is_empty()


@pytest.mark.parametrize("content_type", ["text", "text/html, text/plain", "té/xt", "a/" + "b" * 126, "text/html;"])
async def test_content_type_that_cannot_be_sent_again_is_refused(here: StaticSite, content_type: str) -> None:
    assert (await here.put("a", content_type=content_type)).error == (400, "invalid_payload")
    assert here.is_empty()


async def test_packed_file_or_part_of_one_is_refused(here: StaticSite) -> None:
    assert (await here.put("a", content_encoding="gzip")).error == (415, "unsupported_media_type")
    assert (await here.put("a", content_range="bytes 0-0/2")).error == (400, "invalid_payload")
    presigned = await here.presign(path="a", content_type="text/html")
    assert (await here.upload(presigned, b"x", content_encoding="br")).error == (415, "unsupported_media_type")
    assert here.is_empty()
    assert (await here.put("a", content_encoding="identity")).status == 201


async def test_everything_of_the_api_needs_the_bearer_and_nothing_of_an_upload_url_does(here: StaticSite) -> None:
    for method, target in (("GET", ""), ("POST", "/presign"), ("PUT", "/a"), ("DELETE", "/a")):
        for headers in ({}, {"authorization": "Bearer " + "c" * 40}):
            answer = await here.ask(method, here.static + target, **headers)
            assert answer.error == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
    presigned = await here.presign(path="a")
    assert (await here.upload(presigned, b"x")).status == 201


async def test_without_a_bearer_there_is_no_api_and_no_upload(tmp_path: Path) -> None:
    async with static_site(tmp_path, bearer=None) as here:
        assert (await here.put("a")).error == (503, "api_auth_not_configured")
        target = f"/upload/{here.project_id}/a?e=9999999999&n=1&s={'A' * 43}"
        assert (await here.ask("PUT", target, b"x")).error == (503, "api_auth_not_configured")


async def test_unknown_project_is_not_found(here: StaticSite) -> None:
    for project_id in ("01jd0000000000000000000000", "x", "%2e%2e", "A" * 5000):
        static = f"/api/projects/{project_id}/static"
        assert (await here.ask("GET", static, **here.auth)).error == (404, "project_not_found")
        assert (await here.ask("PUT", f"{static}/a", b"x", **here.auth)).error == (404, "project_not_found")
        assert (await here.ask("DELETE", f"{static}/a", **here.auth)).error == (404, "project_not_found")
        body = b'{"path": "a"}'
        assert (await here.ask("POST", f"{static}/presign", body, **here.auth)).error == (404, "project_not_found")


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        ("POST", "", "GET, HEAD"),
        ("GET", "/presign", "POST, PUT, DELETE"),
        ("PATCH", "/a", "PUT, DELETE"),
        ("GET", "/a", "PUT, DELETE"),
    ],
)
async def test_other_methods_are_told_which_there_are(here: StaticSite, method: str, target: str, allow: str) -> None:
    answer = await here.ask(method, here.static + target, **here.auth)
    assert answer.error == (405, "method_not_allowed")
    assert answer.headers["allow"] == allow


async def test_pages_of_any_origin_may_ask(here: StaticSite) -> None:
    for target in (here.static, f"{here.static}/a", f"{here.static}/presign", f"/upload/{here.project_id}/a?x"):
        answer = await here.ask("OPTIONS", target)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "*")
        assert "PUT" in answer.headers["access-control-allow-methods"]
    answer = await here.ask("GET", f"/upload/{here.project_id}/a")
    assert answer.error == (405, "method_not_allowed")
    assert answer.headers["allow"] == "PUT"


async def test_reference_has_these_routes_and_no_others(here: StaticSite) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "projects.md").read_text()
    table = page.partition("## Published files\n")[2].partition("\n\n")[0]
    rows = set(re.findall(r"^\| `([A-Z]+)` \| `([^`?]+)", table, re.MULTILINE))
    api = {(method, f"/api/projects/:id/{path}") for path, methods in here.table.items() for method in methods}
    served = {(method, path.replace("*", "*path")) for method, path in api} | {("PUT", "/upload/:id/*path")}
    assert rows == served


# ---- lists -----------------------------------------------------------------------------------------------------------


async def test_list_is_in_order_by_prefix_and_in_pages(tmp_path: Path) -> None:
    async with static_site(tmp_path, ProjectsSettings(list_objects_max=3)) as here:
        for path in ("b", "a/2", "a/1", "a", "ab", "c"):
            assert (await here.put(path)).status == 201

        async def paths(query: str) -> tuple[list[str], str | None]:
            page = (await here.ask("GET", f"{here.static}?{query}", **here.auth)).json
            return [one["path"] for one in page["objects"]], page["next_cursor"]

        assert await paths("") == (["a", "a/1", "a/2"], "a/2")
        assert await paths("cursor=a/2") == (["ab", "b", "c"], None)
        assert await paths("limit=100") == (["a", "a/1", "a/2"], "a/2")
        assert await paths("prefix=a/&limit=1") == (["a/1"], "a/1")
        assert await paths("prefix=a%2F&cursor=a/1") == (["a/2"], None)
        assert await paths("prefix=z") == ([], None)
        assert await paths("cursor=z") == ([], None)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("limit=0", "invalid_payload"), ("limit=-1", "invalid_payload"), ("limit=x", "invalid_payload"),
        ("limit=1000000000", "invalid_payload"), ("cursor=..", "invalid_payload"),
        ("limit=1&limit=2", "invalid_payload"), ("prefix=%00", "invalid_path"),
        ("prefix=%ff", "invalid_payload"), ("prefix=a%5C", "invalid_path"),
    ],
)  # fmt: skip
async def test_list_that_nobody_can_mean_is_refused(tmp_path: Path, query: str, word: str) -> None:
    async with static_site(tmp_path) as here:
        answer = await here.ask("GET", f"{here.static}?{query}", **here.auth)
        assert answer.status == 400
        assert answer.json.get("error", "invalid_payload") == word


# ---- presigned -------------------------------------------------------------------------------------------------------


async def test_upload_url_takes_one_file_of_its_type_until_it_ends(here: StaticSite) -> None:
    presigned = await here.presign(path="a b.html", content_type="text/html; charset=utf-8", size=5)
    assert presigned == {
        "method": "PUT",
        "url": presigned["url"],
        "headers": {"Content-Type": "text/html; charset=utf-8"},
        "path": "a b.html",
        "expires_at": "2026-09-21T14:28:20.000Z",
    }
    assert presigned["url"].startswith(f"{BASE}/upload/{here.project_id}/a%20b.html?e=1790000900&n=5&s=")
    answer = await here.upload(presigned, b"hello")
    assert (answer.status, answer.json["content_type"]) == (201, "text/html; charset=utf-8")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert (await here.upload(presigned, b"again")).status == 200
    assert (await here.upload(presigned, b"longer")).status == 413
    assert here.read("a b.html") == b"again"
    here.depot.estate.now_ms = 1_790_000_900_000
    assert (await here.upload(presigned, b"x")).error == (403, "signature_mismatch")


async def test_without_type_and_size_they_are_those_of_the_table_and_of_the_limit(here: StaticSite) -> None:
    presigned = await here.presign(path="app.js")
    assert presigned["headers"] == {"Content-Type": "text/javascript; charset=utf-8"}
    assert f"&n={25 * 1024 * 1024}&" in presigned["url"]
    assert (await here.upload(presigned, b"1")).status == 201
    assert (await here.presign(path="x"))["headers"] == {"Content-Type": "application/octet-stream"}


@pytest.mark.parametrize(
    "content_type", ["text/plain", "TEXT/HTML", "text/html;charset=utf-8", "text/html, text/html", "", "text/html "]
)
async def test_other_content_type_does_not_match(here: StaticSite, content_type: str) -> None:
    presigned = await here.presign(path="a", content_type="text/html")
    answer = await here.upload(presigned, b"x", content_type=content_type)
    assert answer.error == (403, "signature_mismatch")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert here.is_empty()


async def test_altered_url_does_not_match(here: StaticSite) -> None:
    presigned = await here.presign(path="a/b", content_type="text/html", size=5)
    url = presigned["url"]
    other_project = await here.process.project("Other")
    for altered in (
        url.replace("/a/b?", "/a/c?"), url.replace("/a/b?", "/a/b/?"), url.replace("/a/b?", "/a%2Fb?"),
        url.replace("/a/b?", "/a//b?"), url.replace("/a/b?", "?"), url.replace("n=5", "n=6"), url + "&x=1", url[:-1],
        url.replace(here.project_id, other_project), url.replace(here.project_id, here.project_id.upper()),
        url.replace("e=1790000900", "e=1790000901"), url.partition("?")[0], url[:-1] + ("A" if url[-1] != "A" else "B"),
        url.replace(f"{here.project_id}/a/b", ""), url.replace("/a/b?", "/%61/b%00?"),
    ):  # fmt: skip
        answer = await here.upload({**presigned, "url": altered}, b"x")
        assert answer.error == (403, "signature_mismatch"), altered
    assert (await here.upload({**presigned, "url": url.replace("/a/b?", "/%61/b?")}, b"x")).status == 201  # the same


async def test_upload_that_ends_after_its_url_does_is_not_published(here: StaticSite) -> None:
    presigned = await here.presign(path="a", content_type="text/html")
    last = trio.Event()
    async with trio.open_nursery() as nursery:
        answers: list[Answer] = []

        async def upload() -> None:
            answers.append(await here.upload(presigned, [b"x", last, b"y"]))

        nursery.start_soon(upload)
        await trio.testing.wait_all_tasks_blocked()
        here.depot.estate.now_ms = 1_790_000_900_000
        last.set()
    assert answers[0].error == (403, "signature_mismatch")
    assert here.is_empty()


@pytest.mark.parametrize("by_url", [False, True])
async def test_project_that_is_deleted_during_an_upload_is_not_found(here: StaticSite, *, by_url: bool) -> None:
    presigned = await here.presign(path="a", content_type="text/html")
    last = trio.Event()
    answers: list[Answer] = []

    async def upload() -> None:
        body: list[bytes | trio.Event] = [b"x" * 300_000, last, b"y"]
        answers.append(await (here.upload(presigned, body) if by_url else here.put("a", body)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(upload)
        await trio.testing.wait_all_tasks_blocked()
        assert await here.process.projects.delete(here.project_id) is None
        last.set()
    assert answers[0].error == (404, "project_not_found")
    assert here.is_empty()
    assert (await here.upload(presigned, b"x")).error == (404, "project_not_found")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", (400, "invalid_payload")), (b"{", (400, "invalid_payload")), (b"[]", (400, "invalid_payload")),
        (b'{"path": "a", "x": 1}', (400, "invalid_payload")),
        (b'{"path": "a", "size": 26214401}', (413, "payload_too_large")),
        (b"[" * 8000, (400, "invalid_payload")), (b'{"path": "\\ud800"}', (400, "invalid_payload")),
    ],
)  # fmt: skip
async def test_presigning_takes_a_closed_object(here: StaticSite, body: bytes, error: tuple[int, str]) -> None:
    answer = await here.ask("POST", f"{here.static}/presign", body, **here.auth, content_type="application/json")
    assert answer.error == error


# ---- limits ----------------------------------------------------------------------------------------------------------


async def test_upload_that_breaks_off_leaves_nothing(here: StaticSite) -> None:
    assert (await here.put("a", [b"x" * 300_000, b"gone"])).status == 0
    assert here.is_empty()


@pytest.mark.parametrize("announced", [False, True])
async def test_file_that_is_too_large_is_refused_and_leaves_nothing(tmp_path: Path, *, announced: bool) -> None:
    async with static_site(tmp_path, ProjectsSettings(object_bytes_max=400_000, upload_buffer_bytes_max=1000)) as here:
        length = {"content_length": "400001"} if announced else {}
        # What says so is the router, in the words of the device API here: the gateway knows the form by the path.
        assert (await here.put("a", [b"x" * 1000] * 400 + [b"x"], **length)).status == 413
        assert here.is_empty()
        assert (await here.put("a", [b"x" * 1000] * 400)).status == 201


async def test_site_has_room_for_so_many_files_and_bytes(tmp_path: Path) -> None:
    async with static_site(tmp_path, ProjectsSettings(objects_max=2, site_bytes_max=10)) as here:
        assert (await here.put("a", b"12345")).status == 201
        assert (await here.put("b", b"123456")).error == (413, "space_full")
        assert (await here.put("b", b"12345")).status == 201
        assert (await here.put("c", b"")).error == (413, "space_full")
        assert (await here.put("a", b"54321")).status == 200
        assert (await here.ask("DELETE", f"{here.static}/a", **here.auth)).status == 204
        assert (await here.put("c", b"12345")).status == 201


@pytest.mark.parametrize(
    ("settings", "is_by_address"),
    [(ProjectsSettings(uploads_per_address_max=2), True), (ProjectsSettings(uploads_per_project_max=2), False)],
)
async def test_uploads_under_way_have_a_share_of_the_places(
    tmp_path: Path, settings: ProjectsSettings, *, is_by_address: bool
) -> None:
    async with static_site(tmp_path, settings) as here:
        other = f"/api/projects/{await here.process.project('Other')}/static/a"
        last = trio.Event()
        slow: list[bytes | trio.Event] = [b"x", last, b"y"]

        async def try_with(target: str, client: str) -> Answer:
            return await here.ask("PUT", target, b"x", client, **here.auth)

        async with trio.open_nursery() as nursery:
            for path in "ab":
                nursery.start_soon(here.put, path, slow)
            await trio.testing.wait_all_tasks_blocked()
            answer = await try_with(f"{here.static}/c", "192.0.2.1")
            assert answer.error == (429, "rate_limited")
            assert (answer.headers["retry-after"], answer.json["retry_after_ms"]) == ("1", 1000)
            assert (await try_with(f"{here.static}/c", "192.0.2.2")).status == (201 if is_by_address else 429)
            assert (await try_with(other, "192.0.2.1")).status == (429 if is_by_address else 201)
            last.set()
        assert (await try_with(f"{here.static}/d", "192.0.2.1")).status == 201


async def test_full_disk_is_not_ready(here: StaticSite) -> None:
    here.depot.disk_fault = EchoError.STORAGE_NOT_READY
    assert (await here.put("a")).error == (503, "storage_not_ready")
    here.depot.disk_fault = None
    here.depot.estate.disk.is_full = True
    assert (await here.put("a")).error == (503, "storage_not_ready")
    assert here.is_empty()
    here.depot.estate.disk.is_full = False
    assert isinstance(await here.process.put(here.project_id, "a", b"x"), Published)
