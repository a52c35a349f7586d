"""Making a space, and ending it again with its claim."""

from dataclasses import replace

import pytest
import structlog
import trio

from tests.actors.space.shelves import NOW_MS
from tests.gateway.spaces.site import BASE, PLENTY, site

FORM = "application/x-www-form-urlencoded"


async def test_a_form_is_redirected_to_the_page_with_the_claim_in_the_fragment() -> None:
    async with site() as here:
        answer = await here.ask("POST", "/spaces", b"encryption=&protocol=json&ttl_seconds=", content_type=FORM)
        assert answer.status == 303
        path, _, fragment = answer.headers["location"].partition("#")
        assert path.startswith("/s/es_")
        assert fragment.startswith("claim=ei_")
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers


async def test_a_script_gets_the_document_of_the_space() -> None:
    async with site() as here:
        made = await here.make(ttl_seconds="60", encryption="on", protocol="protobuf")
        token = made["token"]
        assert made["claim"].startswith("ei_")
        assert len(made["encryption_key"]) == 43
        assert made["expires_at"] == "2023-11-14T22:14:20.000Z"
        assert made["websocket_url"] == f"ws://localhost:8420/ws/s/{token}"
        assert made["rest"]["kv"] == f"{BASE}/api/s/{token}/kv"
        assert (made["encryption_enabled"], made["iam_enabled"], made["protocol"]) == (True, False, "protobuf")
        assert NOW_MS == 1_700_000_000_000


@pytest.mark.parametrize(
    "body",
    [
        b"ttl_seconds=59", b"ttl_seconds=604801", b"ttl_seconds=x", b"ttl_seconds=-60", b"ttl_seconds=" + b"9" * 5000,
        b"encryption=off", b"protocol=xml", b"unknown=1", b"ttl_seconds=60&ttl_seconds=60", b"\xff", b"password=%ff",
        b"{}", b"&" * 100 + b"a=b",
    ],
)  # fmt: skip
async def test_a_form_that_is_not_as_documented_is_invalid(body: bytes) -> None:
    async with site() as here:
        assert (await here.ask("POST", "/spaces", body)).error == (400, "invalid_payload")


async def test_a_form_of_another_type_or_too_large_is_refused() -> None:
    async with site() as here:
        assert (await here.ask("POST", "/spaces", b"{}", content_type="application/json")).status == 415
        assert (await here.ask("POST", "/spaces", b"x" * 20_000)).error == (413, "payload_too_large")
        answer = await here.ask("GET", "/spaces")
        assert (answer.error, answer.headers["allow"]) == ((405, "method_not_allowed"), "POST")


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec_fetch_site": "cross-site"},
     {"sec_fetch_site": "same-site"}, {"origin": "http://evil.example", "host": "evil.example"}],
)  # fmt: skip
async def test_a_page_of_another_origin_makes_no_space(headers: dict[str, str]) -> None:
    async with site() as here:
        assert (await here.ask("POST", "/spaces", b"", **headers)).error == (403, "csrf_failed")


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": BASE, "sec_fetch_site": "same-origin"}, {"origin": "http://127.0.0.1:9", "host": "127.0.0.1:9"}],
)
async def test_our_own_page_and_scripts_make_spaces(headers: dict[str, str]) -> None:
    async with site() as here:
        assert (await here.ask("POST", "/spaces", b"", **headers)).status == 303


async def test_strict_csrf_wants_the_cookies_value_in_the_form() -> None:
    async with site(replace(PLENTY, csrf="strict")) as here:
        for body, cookie in ((b"", ""), (b"csrf=a", ""), (b"csrf=", "__Host-echo_csrf="), (b"csrf=b", "x=1")):
            assert (await here.ask("POST", "/spaces", body, cookie=cookie)).error == (403, "csrf_failed")
        answer = await here.ask("POST", "/spaces", b"csrf=abc", cookie="x=1; __Host-echo_csrf=abc")
        assert answer.status == 303


async def test_a_wrong_password_is_401_and_too_many_make_the_right_one_wait() -> None:
    async with site(replace(PLENTY, create_password="open sesame", passwords_burst=2)) as here:
        assert (await here.ask("POST", "/spaces", b"password=open+sesame")).status == 303
        for body in (b"", b"password=wrong"):
            answer = await here.ask("POST", "/spaces", body)
            assert answer.error == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
        answer = await here.ask("POST", "/spaces", b"password=open+sesame")
        assert answer.error == (429, "rate_limited")
        assert answer.json["retry_after_ms"] == 6_000
        assert answer.headers["retry-after"] == "6"
        assert (await here.ask("POST", "/spaces", b"password=open+sesame", "192.0.2.2")).status == 303


async def test_one_address_makes_ten_spaces_and_then_one_in_six_minutes() -> None:
    async with site(replace(PLENTY, creations_burst=10)) as here:
        for _ in range(10):
            assert (await here.ask("POST", "/spaces", b"", "2001:db8::1")).status == 303
        assert (await here.ask("POST", "/spaces", b"", "2001:db8::2")).error == (429, "rate_limited")
        assert (await here.ask("POST", "/spaces", b"", "2001:db8:0:1::1")).status == 303
        here.world.now_ms += 360_000
        assert (await here.ask("POST", "/spaces", b"", "2001:db8::2")).status == 303


async def test_one_space_too_many_is_overloaded() -> None:
    async with site(replace(PLENTY, spaces_max=1)) as here:
        await here.make()
        assert (await here.ask("POST", "/spaces")).error == (503, "overloaded")


@pytest.mark.parametrize("fields", [{}, {"encryption": "on", "protocol": "protobuf"}])
async def test_the_token_reads_the_document_of_its_space_without_the_claim(fields: dict[str, str]) -> None:
    async with site() as here:
        made = await here.make(**fields)
        answer = await here.ask("GET", f"/api/s/{made['token']}")
        assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
        assert {**answer.json, "claim": made["claim"]} == made
        assert (await here.ask("GET", "/api/s/es_nobody")).error == (404, "space_not_found")


# ---- the claim -------------------------------------------------------------------------------------------------------


async def test_the_claim_moves_the_end_and_deletes_and_nothing_else_does() -> None:
    async with site() as here:
        made = await here.make()
        path, claim = f"/api/s/{made['token']}", f"Bearer {made['claim']}"
        assert (await here.ask("DELETE", path)).error == (401, "unauthorized")
        for wrong in (f"Bearer {made['token']}", "Bearer x", made["claim"], "Bearer"):
            answer = await here.ask("DELETE", path, authorization=wrong)
            assert answer.error == (401, "unauthorized")
            answer = await here.ask("PATCH", path, b'{"ttl_seconds":60}', authorization=wrong)
            assert answer.error == (401, "unauthorized")
        answer = await here.ask("PATCH", path, b'{"ttl_seconds":60}', authorization=claim)
        assert (answer.status, answer.json["expires_at"]) == (200, "2023-11-14T22:14:20.000Z")
        assert "claim" not in answer.json
        answer = await here.ask("DELETE", path, authorization=claim)
        assert (answer.status, answer.body) == (204, b"")
        assert (await here.ask("DELETE", path, authorization=claim)).error == (404, "space_not_found")


async def test_an_end_that_is_moved_too_often_is_429_and_says_when_to_come_back() -> None:
    async with site() as here:
        made = await here.make()
        path, claim = f"/api/s/{made['token']}", f"Bearer {made['claim']}"
        for ttl_s in range(100, 110):
            assert (await here.ask("PATCH", path, b'{"ttl_seconds":%d}' % ttl_s, authorization=claim)).status == 200
        answer = await here.ask("PATCH", path, b'{"ttl_seconds":99}', authorization=claim)
        assert answer.error == (429, "rate_limited")
        assert (answer.json["retry_after_ms"], answer.headers["retry-after"]) == (60_000, "60")
        assert answer.headers["access-control-allow-origin"] == "*"
        here.world.now_ms += 60_000
        assert (await here.ask("PATCH", path, b'{"ttl_seconds":99}', authorization=claim)).status == 200


async def test_the_claim_is_judged_before_a_byte_of_the_body() -> None:
    async with site() as here:
        made = await here.make()
        never = trio.Event()
        for wrong in ("", f"Bearer {made['token']}"):
            answer = await here.ask("PATCH", f"/api/s/{made['token']}", [never, b"x"], authorization=wrong)
            assert answer.error == (401, "unauthorized")


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"ttl_seconds":59}', b'{"ttl_seconds":"60"}', b'{"ttl_seconds":60,"x":1}', b"[" * 10_000,
     b'{"ttl_seconds":1e400}', b'{"ttl_seconds":60,"ttl_seconds":100}', b'{"ttl_seconds":60.0}',
     b'{"ttl_seconds":true}', b'{"ttl_seconds":4294967296}', b"60", b"null"],
)  # fmt: skip
async def test_an_end_that_cannot_be_is_invalid(body: bytes) -> None:
    async with site() as here:
        made = await here.make()
        answer = await here.ask("PATCH", f"/api/s/{made['token']}", body, authorization=f"Bearer {made['claim']}")
        assert answer.error == (400, "invalid_payload")


async def test_an_end_is_moved_in_json_alone() -> None:
    async with site() as here:
        made = await here.make(protocol="protobuf")
        path, claim = f"/api/s/{made['token']}", f"Bearer {made['claim']}"
        for kind in ("text/plain", "application/x-protobuf", "application/x-www-form-urlencoded"):
            answer = await here.ask("PATCH", path, b'{"ttl_seconds":60}', authorization=claim, content_type=kind)
            assert answer.error == (415, "unsupported_media_type")
        kind = "Application/JSON; charset=utf-8"
        answer = await here.ask("PATCH", path, b'{"ttl_seconds":60}', authorization=claim, content_type=kind)
        assert answer.status == 200


async def test_no_log_line_has_a_token_a_key_or_a_path() -> None:
    with structlog.testing.capture_logs() as logged:
        async with site() as here:
            made = await here.make(ttl_seconds="60")
            for target in (f"/api/s/{made['token']}/kv/canary", f"/api/s/{made['token']}/nowhere?canary=1"):
                await here.ask("GET", target)
                await here.ask("BREW", target)
            await here.put("es_canary", "canary")
            await here.ask("DELETE", f"/api/s/{made['token']}", authorization=f"Bearer {made['claim']}")
    said = repr(logged)
    assert {line["event"] for line in logged} == {"request_refused", "space_opened", "space_ended", "space_erased"}
    for secret in (made["token"], made["claim"], "canary", "/api/"):
        assert secret not in said
