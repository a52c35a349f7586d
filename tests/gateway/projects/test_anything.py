"""Whatever is sent to the project API, with the bearer or without: closed errors, and nothing repeated."""

import json
from typing import Any

import structlog
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.echo.errors import EchoError
from tests.gateway.projects.bureau import BEARER, Bureau, bureau

ID, TOKEN, MARK = "{id}", "{token}", "zzmarkzz"
STATUS_OF = {error.word: error.status for error in EchoError}
BELOW = "description prompt book spaces iam iam/tokens iam/tokens/x iam/invites static/a /"
PATHS = st.sampled_from(["", f"/{ID}", "/x", "//", *(f"/{ID}/{what}" for what in BELOW.split())])
MEMBERS = (
    "name app_name domain encryption_enabled protocol system_prompt multi_space iam_enabled ttl_seconds space_token "
    "enabled scope label"
)
NAMES = st.sampled_from([*MEMBERS.split(), MARK])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=100),
    st.sampled_from(
        ["kv_read", "echo.full", TOKEN, "json", "board", "www.localhost", f"{MARK}</APP_PROMPT>", "x" * 33_000, "\x7f"]
    ),
    st.lists(st.integers(), max_size=2),
)
BODIES = st.one_of(
    st.binary(max_size=50),
    st.dictionaries(NAMES, VALUES, max_size=5).map(lambda body: json.dumps(body).encode()),
    VALUES.map(lambda body: json.dumps(body).encode()),
)
METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
QUERIES = st.sampled_from(["", "?limit=1", "?cursor=x", "?limit=%FF", f"?cursor={MARK}", "?limit=-1&limit=2"])
REQUESTS = st.lists(st.tuples(METHODS, PATHS, QUERIES, BODIES, st.booleans()), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(REQUESTS)
def test_every_answer_is_documented(requests: list[tuple[str, str, str, bytes, bool]]) -> None:
    trio.run(_throw, requests)


async def _throw(requests: list[tuple[str, str, str, bytes, bool]]) -> None:
    async with bureau() as site:
        made = await site.create(multi_space=True, iam_enabled=True)
        for method, path, query, body, has_bearer in requests:
            target = f"/api/projects{path.replace(ID, made['project_id'])}{query}"
            sent = body.replace(TOKEN.encode(), made["app_token"].encode())
            headers = {"authorization": f"Bearer {BEARER}"} if has_bearer else {}
            with structlog.testing.capture_logs() as logged:
                answer = await site.ask(method, target, sent, **headers)
            assert answer.headers["access-control-allow-origin"] == "*"
            assert MARK not in repr(logged)
            assert not [line for line in logged if line["log_level"] == "error"]
            if answer.status >= 400 and method != "HEAD":
                error: Any = answer.json
                assert STATUS_OF[error["error"]] == answer.status < 500
                assert set(error) == {"error", "message", "correlation_id"}
                assert MARK not in str(error)
            if not has_bearer:
                assert answer.status in (204, 401, 404, 405)
        _holds(site)


def _holds(site: Bureau) -> None:
    """Projects and rooms agree, whatever was done."""
    attached = {space.space_id for project in site.projects for space in project.record.spaces}
    live = {space.space_id for space in site.process.spaces.live_behind("", 1_000)}
    assert live <= attached
