"""Values over HTTP: both encodings, conditions, limits, rates; and an answer of the documented form to everything."""

import json
from dataclasses import replace

import pytest
from google.protobuf.message import Message

from schemas.echo import echo_pb2 as pb
from tests.gateway.spaces.site import PLENTY, Answer, site

PROTOBUF = "application/x-protobuf"


def parsed(kind: type[Message], answer: Answer) -> Message:
    assert answer.headers["content-type"] == PROTOBUF
    return kind.FromString(answer.body)


async def test_a_value_is_written_read_listed_and_deleted() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        answer = await here.put(token, "greeting", "hi")
        assert answer.status == 201
        assert answer.json == {
            "key": "greeting",
            "version": 1,
            "updated_at": "2023-11-14T22:13:20.000Z",
            "expires_at": "2023-11-21T22:13:20.000Z",
            "encrypted": False,
        }
        assert (await here.put(token, "greeting", "hello")).status == 200
        answer = await here.ask("GET", f"/api/s/{token}/kv/greeting")
        assert (answer.status, answer.json["value"], answer.headers["etag"]) == (200, "hello", '"2"')
        assert (answer.headers["cache-control"], answer.headers["access-control-allow-origin"]) == ("no-store", "*")
        head = await here.ask("HEAD", f"/api/s/{token}/kv/greeting")
        assert (head.status, head.body, head.headers) == (200, b"", answer.headers)
        listed = (await here.ask("GET", f"/api/s/{token}/kv?prefix=gre&limit=1")).json
        assert listed == {
            "keys": [{"key": "greeting", "version": 2, "size": 5, "expires_at": "2023-11-21T22:13:20.000Z"}],
            "next_cursor": None,
        }
        deleted = await here.ask("DELETE", f"/api/s/{token}/kv/greeting")
        assert (deleted.status, deleted.headers["access-control-allow-origin"]) == (204, "*")
        assert (await here.ask("GET", f"/api/s/{token}/kv/greeting")).error == (404, "key_not_found")


async def test_both_encodings_read_what_the_other_wrote() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        write = pb.KvWrite(value=b"\xff\x00", ttl_seconds=60).SerializeToString()
        answer = await here.ask("POST", f"/api/s/{token}/kv/k", write, content_type=PROTOBUF)
        assert (answer.status, parsed(pb.KvEntry, answer)) == (
            201,
            pb.KvEntry(key="k", version=1, updated_at_ms=1_700_000_000_000, expires_at_ms=1_700_000_060_000),
        )
        assert (await here.ask("GET", f"/api/s/{token}/kv/k")).json["value_base64"] == "/wA="
        await here.put(token, "j", "text")
        entry = parsed(pb.KvEntry, await here.ask("GET", f"/api/s/{token}/kv/j", accept=f"text/html, {PROTOBUF}"))
        assert entry.value == b"text"


async def test_where_the_client_is_silent_the_rooms_protocol_counts() -> None:
    async with site() as here:
        token = (await here.make(protocol="protobuf"))["token"]
        body = pb.KvWrite(value=b"v").SerializeToString()
        assert (await here.ask("POST", f"/api/s/{token}/kv/k", body)).status == 201
        assert (await here.ask("GET", f"/api/s/{token}/kv/k")).headers["content-type"] == PROTOBUF
        for accept in ("*/*", "application/*;q=0.5", ""):
            answer = await here.ask("GET", f"/api/s/{token}/kv/k", accept=accept)
            assert answer.headers["content-type"] == PROTOBUF
        for accept in ("application/json", "application/json, */*;q=0.1", "application/x-protobuf;q=0, */*"):
            answer = await here.ask("GET", f"/api/s/{token}/kv/k", accept=accept)
            assert answer.headers["content-type"] == "application/json"
        for accept in ("text/html", "application/json;q=0", "application/json;q=x", ",", ";"):
            assert (await here.ask("GET", f"/api/s/{token}/kv/k", accept=accept)).error == (406, "not_acceptable")
        answer = await here.ask("POST", f"/api/s/{token}/kv/k", b"x", content_type="text/plain")
        assert answer.error == (415, "unsupported_media_type")


async def test_conditions_hold_or_are_412() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        assert (await here.put(token, "k", if_match="*")).error == (412, "version_conflict")
        assert (await here.put(token, "k", if_none_match="*")).status == 201
        assert (await here.put(token, "k", if_none_match="*")).error == (412, "version_conflict")
        assert (await here.put(token, "k", if_match='"1"')).status == 200
        assert (await here.put(token, "k", if_match='"1"')).error == (412, "version_conflict")
        assert (await here.put(token, "k", if_match="1")).error == (400, "invalid_payload")


async def test_a_value_is_deleted_only_at_the_version_that_is_named() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        path = f"/api/s/{token}/kv/k"
        assert (await here.ask("DELETE", path, if_match='"1"')).error == (404, "key_not_found")
        await here.put(token, "k")
        for wrong in ({"if_match": '"99"'}, {"if_match": 'W/"1"'}, {"if_none_match": "*"}, {"if_none_match": '"1"'}):
            refused = await here.ask("DELETE", path, **wrong)
            assert refused.error == (412, "version_conflict")
            assert refused.headers["access-control-allow-origin"] == "*"
        assert (await here.ask("DELETE", path, if_match="1")).error == (400, "invalid_payload")
        assert (await here.ask("GET", path)).status == 200
        assert (await here.ask("DELETE", path, if_match='"7", "1"')).status == 204
        await here.put(token, "k")
        assert (await here.ask("DELETE", path, if_match="*")).status == 204


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"[]", b'{"value":1}', b'{"value":{}}', b'{"value":"v","x":1}', b'{"value":"v","ttl_seconds":0}',
        b'{"value":"v","ttl_seconds":1,"expires_at":2000000000}', b'{"value":"v","expires_at":1}', b"\xff",
        b'{"value":"v","expires_at":"yesterday"}', b"[" * 100_000, b'{"value":"\\ud800"}', b'{"value":"a","value":"b"}',
    ],
)  # fmt: skip
async def test_a_body_that_is_not_as_documented_is_invalid(body: bytes) -> None:
    async with site() as here:
        token = (await here.make())["token"]
        assert (await here.ask("POST", f"/api/s/{token}/kv/k", body)).error == (400, "invalid_payload")


@pytest.mark.parametrize("key", ["..", ".", "", "a%20b", "a%00", "%C3%A9", "x" * 129, "a*b", "%25", "%0A"])
async def test_a_key_with_a_trick_is_invalid(key: str) -> None:
    async with site() as here:
        token = (await here.make())["token"]
        for method in ("GET", "POST", "DELETE"):
            answer = await here.ask(method, f"/api/s/{token}/kv/{key}", b'{"value":"v"}')
            assert answer.error == (400, "invalid_key")


@pytest.mark.parametrize(
    "path", ["kv/a/b", "kv/a%2Fb", "kv/a%2fb", "kv//a", "", "/", "kv2", "kv/a/", "push/x", "%2e%2e/x"]
)
async def test_a_path_that_no_route_has_is_not_found_and_says_nothing_of_the_space(path: str) -> None:
    async with site() as here:
        token = (await here.make())["token"]
        for asked in (token, "es_nobody"):
            assert (await here.ask("GET", f"/api/s/{asked}/{path}")).error == (404, "not_found")


async def test_another_method_is_405_with_those_there_are() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        answer = await here.ask("PUT", f"/api/s/{token}/kv/k")
        assert (answer.error, answer.headers["allow"]) == ((405, "method_not_allowed"), "GET, POST, DELETE, HEAD")


async def test_preflights_are_answered_whatever_the_token() -> None:
    async with site() as here:
        for target in ("/api/s/x/kv/k", "/service/description"):
            answer = await here.ask("OPTIONS", target, origin="https://a.example")
            assert (answer.status, answer.body) == (204, b"")
            assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST, PUT, PATCH, DELETE"
            assert answer.headers["access-control-allow-headers"] == "*, Authorization"
            assert answer.headers["access-control-max-age"] == "86400"
            assert "access-control-allow-credentials" not in answer.headers


async def test_unknown_and_expired_tokens_are_answered_alike_byte_for_byte() -> None:
    async with site() as here:
        made = await here.make(ttl_seconds="60")
        await here.put(made["token"], "k")
        here.world.now_ms += 60_000
        for method, path in (("GET", "/kv/k"), ("POST", "/kv/k"), ("GET", "/kv"), ("DELETE", ""), ("GET", "/kv/..")):
            answers = []
            for token in (made["token"], "es_" + "A" * 43, "x"):
                answer = await here.ask(method, f"/api/s/{token}{path}", b"", token)
                assert answer.error == (404, "space_not_found")
                unlike = answer.json.pop("correlation_id")
                assert answer.headers["x-correlation-id"] == unlike
                answers.append((answer.body.replace(unlike.encode(), b""), answer.headers | {"x-correlation-id": ""}))
            assert answers[0] == answers[1] == answers[2]


async def test_values_meet_their_limits() -> None:
    async with site(replace(PLENTY, value_bytes_max=10, body_bytes_max=100, keys_max=1)) as here:
        token = (await here.make())["token"]
        assert (await here.put(token, "k", "x" * 11)).error == (413, "payload_too_large")
        assert (await here.put(token, "k", "x" * 200)).error == (413, "payload_too_large")
        assert (await here.put(token, "k", "x" * 10)).status == 201
        assert (await here.put(token, "j")).error == (413, "space_full")


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=00", "limit=x", "limit=-1", "prefix=%20", "cursor=..", "prefix=%ff", "x=%",
     "limit=1&limit=1", "prefix=a&prefix=b", "cursor=a&prefix=b&cursor=a",
     "limit=" + "9" * 5000, "&".join(["a=b"] * 30)],
)  # fmt: skip
async def test_a_listing_that_cannot_be_is_invalid(query: str) -> None:
    async with site() as here:
        token = (await here.make())["token"]
        assert (await here.ask("GET", f"/api/s/{token}/kv?{query}")).error == (400, "invalid_payload")


async def test_a_listing_asked_for_more_keys_than_it_may_have_has_as_many_as_it_may() -> None:
    async with site(replace(PLENTY, list_keys_max=2)) as here:
        token = (await here.make())["token"]
        for key in "abc":
            await here.put(token, key)
        for query in ("", "?limit=3", "?limit=999999999"):
            page = (await here.ask("GET", f"/api/s/{token}/kv{query}")).json
            assert ([info["key"] for info in page["keys"]], page["next_cursor"]) == (["a", "b"], "b")


async def test_fields_that_a_listing_does_not_know_are_ignored() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        await here.put(token, "k")
        answer = await here.ask("GET", f"/api/s/{token}/kv?later=1&later=2&prefix=k&limit=")
        assert [info["key"] for info in answer.json["keys"]] == ["k"]


async def test_pages_of_a_listing_follow_each_other() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        for key in "cab":
            await here.put(token, key)
        seen, cursor = [], ""
        while True:
            page = (await here.ask("GET", f"/api/s/{token}/kv?limit=2&cursor={cursor}")).json
            seen += [info["key"] for info in page["keys"]]
            if page["next_cursor"] is None:
                break
            cursor = page["next_cursor"]
        assert seen == ["a", "b", "c"]


async def test_an_address_and_a_space_have_their_rates() -> None:
    async with site(replace(PLENTY, rest_burst=3, rest_per_s=1.0, room_rest_burst=4, room_rest_per_s=1.0)) as here:
        token = (await here.make())["token"]
        target = f"/api/s/{token}/kv"
        assert [(await here.ask("GET", target, b"", "a")).status for _ in range(4)] == [200, 200, 200, 429]
        assert (await here.ask("GET", target, b"", "b")).status == 200
        answer = await here.ask("GET", target, b"", "b")
        assert (answer.error, answer.headers["retry-after"]) == ((429, "rate_limited"), "1")
        here.world.now_ms += 1_000
        assert (await here.ask("GET", target, b"", "b")).status == 200


async def test_guesses_have_a_rate_and_who_holds_a_token_does_not_wait_for_them() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        statuses = [(await here.ask("GET", f"/api/s/guess{n}/kv")).status for n in range(31)]
        assert statuses == [404] * 30 + [429]
        assert (await here.ask("GET", f"/api/s/{token}/kv")).status == 200


async def test_a_full_disk_is_503_and_reads_go_on() -> None:
    async with site() as here:
        token = (await here.make())["token"]
        await here.put(token, "k")
        here.world.space_disk.is_full = True
        assert (await here.put(token, "k")).error == (503, "storage_not_ready")
        assert (await here.ask("GET", f"/api/s/{token}/kv/k")).status == 200


async def test_an_encrypted_room_answers_with_the_words_for_it() -> None:
    async with site() as here:
        token = (await here.make(encryption="on"))["token"]
        assert (await here.put(token, "k")).error == (400, "encryption_required")
        assert (await here.put(token, "k", "....")).error == (400, "invalid_encryption")
        body = json.dumps({"value": "v", "encrypt": True}).encode()
        assert (await here.ask("POST", f"/api/s/{token}/kv/k", body)).json["encrypted"] is True
        plain = (await here.make())["token"]
        assert (await here.ask("POST", f"/api/s/{plain}/kv/k", body)).error == (400, "encryption_not_enabled")


# ---- texts -----------------------------------------------------------------------------------------------------------


async def test_the_prompt_has_what_an_agent_needs_with_the_token_filled_in() -> None:
    async with site() as here:
        made = await here.make(encryption="on")
        answer = await here.ask("GET", f"/s/{made['token']}/prompt")
        text = answer.body.decode()
        assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
        assert (answer.headers["cache-control"], answer.headers["x-robots-tag"]) == ("no-store", "noindex")
        assert text.startswith('<ECHO_PROMPT version="1">\n')
        assert text.endswith("</ECHO_PROMPT>\n")
        for part in (
            made["token"],
            made["websocket_url"],
            made["encryption_key"],
            made["expires_at"],
            "262144",
            "4413",
        ):
            assert part in text
        assert made["claim"] not in text
        assert "$" not in text
        assert (await here.ask("GET", "/s/es_nobody/prompt")).error == (404, "space_not_found")
        assert (await here.ask("POST", f"/s/{made['token']}/prompt")).error == (405, "method_not_allowed")


async def test_the_description_has_this_instances_values_and_no_secret() -> None:
    async with site(replace(PLENTY, value_bytes_max=4321, create_password="open sesame")) as here:
        answer = await here.ask("GET", "/service/description")
        assert (answer.status, answer.headers["content-type"]) == (200, "text/markdown; charset=utf-8")
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "4321" in answer.body.decode()
        assert "sesame" not in answer.body.decode()
        assert "$" not in answer.body.decode()
