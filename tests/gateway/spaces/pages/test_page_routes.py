"""The form and the room as a browser gets them, and what it is told when it gets neither."""

import json
import logging
import re
import shlex
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
import segno
import structlog
import trio

from gateway.net.exchange import Exchange
from gateway.pages.rendering import Page, Renderer
from gateway.spaces.pages import ASSETS, TEMPLATES
from gateway.spaces.pages.page_routes import life_text
from gateway.spaces.pages.problem_texts import problem_text
from schemas.echo.errors import EchoError
from tests.gateway.markup import Markup
from tests.gateway.spaces.site import BASE, PLENTY, Answer, Site, site

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
FORM = "application/x-www-form-urlencoded"
HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-robots-tag": "noindex",
    "content-type": "text/html; charset=utf-8",
}
ROOM_IDS = {
    "countdown", "people", "messages", "send", "to", "target", "text", "my-uid", "join-subs", "keys", "key-form",
    "key-name", "key-value", "files", "file-input", "drop", "prompt", "copy-prompt", "qr", "lines", "notice",
}  # fmt: skip


async def page(here: Site, target: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
    """As a browser asks for it."""
    return await here.ask(method, target, body, **{"accept": BROWSER, **headers})


def without_length(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "content-length"}


async def ended(here: Site) -> str:
    made = await here.make()
    token: str = made["token"]
    answer = await here.ask("DELETE", f"/api/s/{token}", authorization=f"Bearer {made['claim']}")
    assert answer.status == 204
    return token


# ---- the form --------------------------------------------------------------------------------------------------------


async def test_the_form_has_what_a_space_is_made_of_and_no_more() -> None:
    async with site() as here:
        answer = await page(here, "/")
        assert (answer.status, without_length(answer)) == (200, HEADERS)
        form = Markup(answer.body)
        assert form.by_id("create").attributes["action"] == "/spaces"
        named = {one.attributes["name"] for one in form.elements if one.tag in ("input", "select")}
        assert named == {"encryption", "protocol", "ttl_seconds"}
        assert "password" not in form.ids
        for option in form.of("option"):
            fields = {"protocol" if option.attributes["value"].isalpha() else "ttl_seconds": option.attributes["value"]}
            assert (await page(here, "/spaces", "POST", urlencode(fields).encode(), content_type=FORM)).status == 303


async def test_the_form_asks_for_a_password_only_where_one_is_needed() -> None:
    async with site(replace(PLENTY, create_password="open sesame")) as here:
        answer = await page(here, "/")
        assert Markup(answer.body).by_id("password").attributes["type"] == "password"
        assert b"sesame" not in answer.body


async def test_the_form_offers_lives_as_long_as_this_gateway_allows() -> None:
    async with site(replace(PLENTY, room_ttl_s=5_400)) as here:
        options = Markup((await page(here, "/")).body).of("option")
        assert [(one.attributes["value"], one.text) for one in options][:4] == [
            ("", "90 minutes (the longest)"), ("3600", "1 hour"), ("600", "10 minutes"), ("60", "1 minute"),
        ]  # fmt: skip
    assert [life_text(life_s) for life_s in (604_800, 86_400, 61)] == ["7 days", "1 day", "61 seconds"]


async def test_the_forms_own_page_tells_where_a_post_comes_from() -> None:
    """With `no-referrer` browsers post `Origin: null`, which is no page of ours."""
    async with site() as here:
        made = await here.make()
        assert Markup((await page(here, "/")).body).of("meta", name="referrer", content="same-origin")
        assert not Markup((await page(here, f"/s/{made['token']}")).body).of("meta", name="referrer")


async def test_strict_csrf_gives_a_cookie_whose_value_the_form_posts() -> None:
    async with site(replace(PLENTY, csrf="strict")) as here:
        answer = await page(here, "/")
        value = Markup(answer.body).of("input", name="csrf")[0].attributes["value"]
        cookie = f"__Host-echo_csrf={value}"
        assert answer.headers["set-cookie"] == f"{cookie}; Secure; Path=/; HttpOnly; SameSite=Strict"
        body, own = f"csrf={value}&ttl_seconds=".encode(), {"origin": BASE, "sec_fetch_site": "same-origin"}
        assert (await page(here, "/spaces", "POST", body, cookie=cookie, **own)).status == 303
        assert (await page(here, "/spaces", "POST", body, **own)).status == 403
        again = await page(here, "/", cookie=f"x=1; {cookie}")
        assert Markup(again.body).of("input", name="csrf", value=value), "a form in another tab stays good"
        for strange in ("__Host-echo_csrf=<script>", f"{cookie}; {cookie}", "__Host-echo_csrf="):
            other = await page(here, "/", cookie=strange)
            assert value.encode() not in other.body
            assert b"<script>" not in other.body


async def test_no_page_sets_a_cookie_otherwise() -> None:
    async with site() as here:
        made = await here.make()
        for target in ("/", f"/s/{made['token']}", "/s/unknown"):
            assert "set-cookie" not in (await page(here, target)).headers


# ---- the room --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"encryption": "on", "protocol": "protobuf"}], ids=["plain", "encrypted"])
async def test_the_room_shows_what_there_is_to_know_of_its_space(fields: dict[str, str]) -> None:
    async with site() as here:
        made = await here.make(**fields)
        answer = await page(here, f"/s/{made['token']}")
        assert (answer.status, without_length(answer)) == (200, HEADERS)
        room = Markup(answer.body)
        assert len(room.ids) == len(set(room.ids))
        assert set(room.ids) >= ROOM_IDS
        root = room.of("html")[0].attributes
        assert (root["data-link"], root["data-space"]) == ("connecting", made["space_id"])
        assert (root["data-ends"], root["data-now"]) == (made["expires_at"], "2023-11-14T22:13:20.000Z")
        assert room.by_id("link").text == made["dashboard_url"]
        prompt = await here.ask("GET", f"/s/{made['token']}/prompt")
        assert room.by_id("prompt").text == prompt.body.decode()
        terms = [one.text for one in room.of("dd")]
        assert terms[1:3] == [made["protocol"], "on" if fields else "off"]
        assert made["claim"].encode() not in answer.body
        if fields:
            assert room.by_id("encryption-key").text == made["encryption_key"]
            assert "protects disks and backups, not against whoever runs the gateway" in room.of("body")[0].text
        else:
            assert "encryption-key" not in room.ids


async def test_the_qr_code_is_of_the_link_and_has_no_style_of_its_own() -> None:
    async with site() as here:
        made = await here.make()
        room = Markup((await page(here, f"/s/{made['token']}")).body)
        svg = room.by_id("qr")
        assert (svg.tag, svg.text) == ("svg", "QR code of the link")
        size = segno.make_qr(made["dashboard_url"]).symbol_size(border=4)[0]
        assert svg.attributes["viewbox"] == f"0 0 {size} {size}"


async def test_what_only_the_creator_may_do_is_not_in_the_page_but_in_a_template() -> None:
    async with site() as here:
        made = await here.make()
        body = (await page(here, f"/s/{made['token']}")).body.decode()
        before, _, inside = body.partition('<template id="owner-template">')
        assert 'id="end-space"' in inside.partition("</template>")[0]
        assert 'id="end-space"' not in before


@pytest.mark.parametrize("encryption", ["", "on"])
async def test_the_ready_lines_are_what_they_say(encryption: str) -> None:
    async with site() as here:
        made = await here.make(encryption=encryption, protocol="protobuf")
        room = Markup((await page(here, f"/s/{made['token']}")).body)
        lines = {one.attributes["data-lang"]: one.text for one in room.of("pre") if "data-lang" in one.attributes}
        assert set(lines) == {"curl", "javascript", "python"}
        for text in lines.values():
            assert made["rest"]["kv"] + "/greeting" in text
        for url in (lines["javascript"], lines["python"]):
            assert made["websocket_url"] + "?uid=" in url
        compile(lines["python"], "lines", "exec")
        write, read = (shlex.split(line) for line in lines["curl"].splitlines()[1:3])
        path = write[3].removeprefix(BASE)
        kind = write[write.index("-H") + 1].partition(": ")[2]
        assert (await here.ask("POST", path, write[write.index("-d") + 1].encode(), content_type=kind)).status == 201
        got = await here.ask("GET", path, accept=read[-1].partition(": ")[2])
        assert got.json["encrypted"] is bool(encryption)
        for data in re.findall(r"\"data\": (\{.*?\})|data: (\{.*?\}) ", lines["python"] + lines["javascript"]):
            assert not encryption, "a message in plain would be refused"
            assert json.loads(data[0] or data[1].replace("text", '"text"')) == {"text": "hello"}


# ---- every page ------------------------------------------------------------------------------------------------------


async def test_no_page_has_script_or_style_of_its_own_or_loads_anything_from_elsewhere() -> None:
    async with site(replace(PLENTY, csrf="strict", create_password="p")) as here:
        for target in ("/", "/s/unknown"):
            _assert_own(Markup((await page(here, target)).body))
    async with site() as here:
        token = (await here.make(encryption="on"))["token"]
        _assert_own(Markup((await page(here, f"/s/{token}")).body))


def _assert_own(markup: Markup) -> None:
    for one in markup.elements:
        assert one.tag not in ("style", "iframe", "object", "embed", "base")
        assert not [name for name in one.attributes if name == "style" or name.startswith("on")]
        for name in ("src", "href", "action"):
            assert one.attributes.get(name, "/").startswith("/"), one
        if one.tag == "script":
            assert one.attributes["src"].startswith("/assets/")
            assert one.text == ""
    labelled = {one.attributes["for"] for one in markup.of("label")}
    for one in markup.elements:
        if one.tag in ("input", "select", "textarea") and one.attributes.get("type") != "hidden":
            assert one.attributes["id"] in labelled
    assert len(markup.of("h1")) == 1
    assert markup.of("html", lang="en")


async def test_head_is_a_get_without_its_body() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        for target in ("/", f"/s/{token}", "/assets/echo.css"):
            whole, head = await page(here, target), await page(here, target, "HEAD")
            assert (head.status, head.headers, head.body) == (whole.status, whole.headers, b"")
            assert int(head.headers["content-length"]) == len(whole.body) > 0


async def test_pages_are_only_read_and_have_no_cors() -> None:
    async with site() as here:
        for target in ("/", "/s/unknown"):
            for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
                answer = await here.ask(method, target)
                assert (answer.error, answer.headers["allow"]) == ((405, "method_not_allowed"), "GET, HEAD")
                seen = await page(here, target, method)
                assert (seen.status, seen.headers["allow"]) == (405, "GET, HEAD")
            answer = await page(here, target, origin="https://elsewhere.example")
            assert not [name for name in answer.headers if name.startswith("access-control")]


# ---- what goes wrong -------------------------------------------------------------------------------------------------


async def test_unknown_and_ended_links_get_the_same_page() -> None:
    async with site() as here:
        over = await ended(here)
        pages = []
        for token in (over, "es_" + "A" * 43, "nonsense", "%3Cscript%3E", "%00"):
            answer = await page(here, f"/s/{token}")
            correlation_id = answer.headers["x-correlation-id"]
            assert answer.status == 404
            assert {**HEADERS, "x-correlation-id": correlation_id} == without_length(answer)
            pages.append(answer.body.replace(correlation_id.encode(), b""))
        assert len(set(pages)) == 1
        assert b"There is no such space" in pages[0]


@pytest.mark.parametrize("accept", ["application/json", "*/*", "", "text/html, application/json", "application/*"])
async def test_a_client_that_is_no_browser_gets_the_error_as_everywhere(accept: str) -> None:
    async with site() as here:
        assert (await page(here, "/s/unknown", accept=accept)).error == (404, "space_not_found")


def post(**fields: str) -> dict[str, Any]:
    return {"method": "POST", "body": urlencode(fields).encode(), "content_type": FORM}


@pytest.mark.parametrize(
    ("request_", "status", "title"),
    [
        (post(password="wrong"), 401, "Wrong password"),
        (post(), 401, "Wrong password"),
        (post(password="p", ttl_seconds="59"), 400, "The form was not understood"),
        (post(password="p", unknown="<script>"), 400, "The form was not understood"),
        ({**post(password="p"), "origin": "https://evil.example"}, 403, "The form is stale"),
        ({"method": "POST", "body": b"x" * 20_000, "content_type": FORM}, 413, "That did not work"),
        ({"method": "POST", "body": b"{}", "content_type": "application/json"}, 415, "That did not work"),
        ({"method": "GET"}, 405, "That did not work"),
    ],
)
async def test_a_refused_form_is_a_page_for_a_browser_and_an_object_for_a_script(
    request_: dict[str, Any], status: int, title: str
) -> None:
    async with site(replace(PLENTY, create_password="p")) as here:
        asked = {name: value for name, value in request_.items() if name not in ("method", "body")}
        answer = await page(here, "/spaces", request_["method"], request_.get("body", b""), **asked)
        script = await here.ask(request_["method"], "/spaces", request_.get("body", b""), **asked)
        assert answer.status == script.status == status
        assert Markup(answer.body).of("title")[0].text == title
        assert b"<script>" not in answer.body
        assert HEADERS.items() <= answer.headers.items()
        for name in ("allow", "www-authenticate", "retry-after"):
            assert answer.headers.get(name) == script.headers.get(name)
        assert script.json["error"] in STATUS_WORDS[status]


STATUS_WORDS = {
    error.status: [other.word for other in EchoError if other.status == error.status] for error in EchoError
}


async def test_pages_count_against_the_rates_of_every_route() -> None:
    tight = replace(PLENTY, rest_burst=3, rest_per_s=1.0)
    async with site(tight) as here:
        token = (await here.make())["token"]
        assert [(await page(here, target)).status for target in ("/", f"/s/{token}", "/")] == [200, 200, 429]
        answer = await page(here, "/")
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert b"Try again in 1 second." in answer.body
        assert (await here.ask("GET", f"/api/s/{token}/kv")).error == (429, "rate_limited")
        assert (await here.ask("GET", "/assets/echo.css")).status == 200, "a page is nothing without its style"
    async with site(replace(PLENTY, room_rest_burst=1)) as here:
        token = (await here.make())["token"]
        assert [(await page(here, f"/s/{token}")).status for _ in range(2)] == [200, 429]
    async with site(replace(PLENTY, unknown_tokens_burst=2)) as here:
        token = (await here.make())["token"]
        assert [(await page(here, "/s/guess")).status for _ in range(3)] == [404, 404, 429]
        assert (await page(here, f"/s/{token}")).status == 200


async def test_no_log_line_has_a_token_or_a_path_of_a_page(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with structlog.testing.capture_logs() as logged:
        async with site() as here:
            token = (await here.make())["token"]
            over = await ended(here)
            for target in (f"/s/{token}", f"/s/{over}", "/s/canary?canary=1", "/"):
                await page(here, target)
                await page(here, target, "BREW")
    for secret in (token, over, "canary", "/s/"):
        assert secret not in repr(logged) + caplog.text


async def test_a_page_that_cannot_be_made_is_the_doors_to_answer_for(caplog: pytest.LogCaptureFixture) -> None:
    async def send(_: Any) -> None:
        pytest.fail("nothing was made")

    scope = {"type": "http", "method": "GET", "path": "/s/canary", "headers": []}
    with pytest.raises(BaseExceptionGroup, match="nursery"):
        await Renderer(TEMPLATES, ASSETS).show(Exchange(scope, trio.sleep_forever, send, str), Page("absent.html", {}))
    assert "canary" not in caplog.text


async def test_whatever_a_template_is_given_is_escaped() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    evil = "<script>alert('\"&')</script>"
    values = {"title": evil, "text": evil, "wait_s": evil, "correlation_id": evil}
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    await Renderer(TEMPLATES, ASSETS).show(
        Exchange(scope, trio.sleep_forever, send, str), Page("problem.html", values, 429)
    )
    body = b"".join(part.get("body", b"") for part in sent)
    assert b"<script" not in body
    assert Markup(body).of("title")[0].text == evil


def test_every_error_has_words_for_a_person() -> None:
    for error in EchoError:
        title, text = problem_text(error)
        assert title
        assert text.endswith(".")
