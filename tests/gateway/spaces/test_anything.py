"""Whatever is sent to the routes of spaces: never a crash, but a documented success or an error of the closed set."""

import json
import re
from typing import Any

import structlog
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.echo import echo_pb2 as pb
from schemas.echo.errors import EchoError
from tests.gateway.spaces.site import PLENTY, Answer, Site, site

MANY = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STATUS_OF = {error.word: error.status for error in EchoError}
TOKEN, CLAIM, FILE = "TOKEN", "CLAIM", "FILE"  # stand for what is not known until there is a space

PRINTABLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="?#"), max_size=12)
ESCAPED = st.sampled_from(["%2F", "%2f", "%00", "%0d%0a", "%C3%A9", "..", ".", "~", "%25", "//", "%E2%80%AE"])
PATHS = st.sampled_from(
    ["/spaces", f"/api/s/{TOKEN}", f"/api/s/{TOKEN}/kv", f"/api/s/{TOKEN}/kv/k", f"/api/s/{TOKEN}/files",
     f"/api/s/{TOKEN}/files/{FILE}", f"/s/{TOKEN}/prompt", "/service/description", "/api/s/",
     "/", f"/s/{TOKEN}", "/assets/room.js"]
)  # fmt: skip
QUERIES = st.dictionaries(st.sampled_from(["limit", "prefix", "cursor", "x"]), PRINTABLE | ESCAPED, max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WRITES = st.fixed_dictionaries(
    {}, optional={"value": st.text(max_size=20) | JSON, "ttl_seconds": JSON, "expires_at": JSON, "encrypt": JSON}
)
FORMS = st.dictionaries(
    st.sampled_from(["password", "encryption", "protocol", "ttl_seconds", "csrf", "x"]), PRINTABLE, max_size=3
).map(lambda fields: "&".join(f"{name}={value}" for name, value in fields.items()).encode())
PARTS = st.tuples(PRINTABLE, st.binary(max_size=60)).map(
    lambda part: (
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="%b"\r\n\r\n%b\r\n--B--\r\n'
        % (part[0].encode(), part[1])
    )
)
BODIES = st.one_of(
    WRITES.map(lambda value: json.dumps(value).encode()),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=100).map(lambda value: bytes(pb.KvWrite(value=value, ttl_seconds=5).SerializeToString())),
    FORMS,
    PARTS,
    st.binary(max_size=200),
)
TYPES = st.sampled_from(
    ["application/json", "application/x-protobuf", "multipart/form-data; boundary=B", "multipart/form-data",
     "application/x-www-form-urlencoded", "text/plain", ""]
)  # fmt: skip
LATIN = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=30)
OTHERS = st.dictionaries(
    st.sampled_from(["accept", "if_match", "if_none_match", "range", "if_range", "origin", "sec_fetch_site", "cookie"]),
    LATIN
    | st.sampled_from(["*", '"1"', "*/*", "application/json", "bytes=0-0", "bytes=-5", "same-origin", "text/html"]),
    max_size=3,
)
BEARERS = st.sampled_from([None, f"Bearer {CLAIM}", f"Bearer {TOKEN}", "Bearer", "Basic x"])
METHODS = st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"])


@st.composite
def targets(draw: st.DrawFn) -> str:
    path = draw(PATHS)
    if draw(st.booleans()):
        at = draw(st.integers(1, len(path)))
        path = path[:at] + draw(PRINTABLE | ESCAPED) + path[at + draw(st.integers(0, 3)) :]
    query = "&".join(f"{name}={value}" for name, value in draw(QUERIES).items())
    return f"{path}?{query}" if query else path


def flaw(answer: Answer, method: str) -> str | None:
    """What is not as documented; None when all is."""
    if answer.status in (200, 201, 204, 206, 303, 304):
        return None if "x-correlation-id" not in answer.headers else "a success with the id of a failure"
    if method == "HEAD":
        return None if answer.status < 500 else f"status {answer.status}"
    if answer.headers["content-type"].startswith("text/html"):  # for a client that accepts it
        return None if answer.status < 500 and "x-correlation-id" in answer.headers else f"page with {answer.status}"
    error = answer.json
    if "code" in error:  # no route of spaces
        return None if answer.status in (404, 405) else f"another envelope with {answer.status}"
    if set(error) - {"retry_after_ms"} != {"error", "message", "correlation_id"}:
        return f"not the object: {error}"
    if not re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", error["correlation_id"]):
        return "no correlation id"
    if answer.status == 416:
        return None
    if STATUS_OF[error["error"]] != answer.status or answer.status == 500:
        return f"{error['error']} with {answer.status}"
    needed = {401: "www-authenticate", 405: "allow", 429: "retry-after"}.get(answer.status)
    return None if needed is None or needed in answer.headers else f"no {needed}"


async def throw(
    here: Site, known: dict[str, str], method: str, target: str, body: bytes, fields: dict[str, str]
) -> None:
    def filled(text: str) -> str:
        for name, value in known.items():
            text = text.replace(name, value)
        return text

    with structlog.testing.capture_logs() as logged:
        answer = await here.ask(method, filled(target), body, **{name: filled(value) for name, value in fields.items()})
    assert flaw(answer, method) is None
    assert not [line for line in logged if line["log_level"] == "error"]
    assert not any(secret in repr(logged) for secret in known.values())


async def one_space(here: Site) -> dict[str, str]:
    made: Any = await here.make()
    form = b'--B\r\nContent-Disposition: form-data; name="file"\r\n\r\ncontent\r\n--B--\r\n'
    path = f"/api/s/{made['token']}/files"
    stored = await here.ask("POST", path, form, content_type="multipart/form-data; boundary=B")
    return {TOKEN: made["token"], CLAIM: made["claim"], FILE: stored.json["file_id"]}


@MANY
@given(METHODS, targets(), TYPES, BODIES, OTHERS, BEARERS)
def test_every_request_to_a_space_has_a_documented_answer(
    method: str, target: str, content_type: str, body: bytes, others: dict[str, str], bearer: str | None
) -> None:
    async def run() -> None:
        async with site(PLENTY) as here:
            fields = {**others, **({"content_type": content_type} if content_type else {})}
            if bearer is not None:
                fields["authorization"] = bearer
            await throw(here, await one_space(here), method, target, body, fields)

    trio.run(run)


@MANY
@given(st.lists(st.tuples(st.sampled_from(["kv/k", "kv/j", "files"]), TYPES, BODIES), max_size=6))
def test_writes_one_after_another_have_documented_answers_and_reads_go_on(
    writes: list[tuple[str, str, bytes]],
) -> None:
    async def run() -> None:
        async with site(PLENTY) as here:
            known = await one_space(here)
            for what, content_type, body in writes:
                fields = {"content_type": content_type} if content_type else {}
                await throw(here, known, "POST", f"/api/s/{TOKEN}/{what}", body, fields)
            for what in ("kv", "files"):
                assert (await here.ask("GET", f"/api/s/{known[TOKEN]}/{what}")).status == 200

    trio.run(run)
