"""Personal data in what an upstream answers: its shape is nobody's contract, so keys and numbers are looked at too."""

from typing import Any

import pytest
from trio.testing import MockClock

from gateway.calls.tool_calls import Answered
from gateway.identity.tokens import Scope
from tests.gateway.api.client import token
from tests.gateway.calls.place import AGENT_OF, PRICE, Place

NUMBERS = {"type": "object", "additionalProperties": {"type": "integer"}}


@pytest.mark.parametrize(
    "structured", [{"ada@example.org": 1}, {"card": 4111111111111111}, {"cards": [{"4111-1111-1111-1111": None}]}]
)
async def test_personal_data_in_keys_and_numbers_of_an_upstreams_result_is_withheld(
    autojump_clock: MockClock, place: Place, structured: dict[str, Any]
) -> None:
    place.upstream.answer = {"content": [], "structuredContent": structured}
    answer = await place.site.client.call("up.tool", {}, token(scopes=[Scope.REVERSIBLE]))
    assert (answer.status, answer.json["code"]) == (403, "E_SAFETY_DENIED")
    assert not any(word in str(answer.json) for word in ("ada", "4111"))
    assert await place.site.spent() == PRICE


@pytest.mark.parametrize(("schema", "status"), [(None, 200), ({"type": "object"}, 200), (NUMBERS, 403)])
async def test_number_is_redacted_where_that_fits_the_schema_and_blocked_where_not(
    autojump_clock: MockClock, place: Place, schema: dict[str, Any] | None, status: int
) -> None:
    place.upstream.offer(outputSchema=schema)
    place.upstream.answer = {"content": [], "structuredContent": {"card": 4111111111111111, "a@b.co": 2}}
    place.site.rule('tools = ["**"]\n[agents.pii.result]\ncard = "redact"\nemail = "redact"')
    answer = await place.site.client.call("up.tool", {}, token(scopes=[Scope.REVERSIBLE]))
    assert answer.status == status
    if status == 200:
        assert answer.json == {"card": "[card]", "[email]": 2}


@pytest.mark.parametrize(
    ("schema", "is_error", "has_structure"),
    [(NUMBERS, True, False), (None, True, True), (NUMBERS, False, True)],
)
async def test_failure_of_a_tool_with_an_output_schema_has_no_structure_that_a_client_could_hold_against_it(
    autojump_clock: MockClock, place: Place, schema: dict[str, Any] | None, is_error: bool, has_structure: bool
) -> None:
    place.upstream.offer(outputSchema=schema)
    said = [{"type": "text", "text": "disk 3 is full"}]
    place.upstream.answer = {"content": said, "structuredContent": {"disk": 3}, "isError": is_error}
    answer = await place.site.calls.call_tool(AGENT_OF, "up.tool", {})
    assert isinstance(answer, Answered)
    assert answer.as_mcp is not None
    assert (answer.as_mcp["content"], answer.as_mcp["isError"]) == (said, is_error)
    assert ("structuredContent" in answer.as_mcp) is has_structure


async def test_failure_that_is_told_only_as_structure_reaches_the_model_as_text_and_without_personal_data(
    autojump_clock: MockClock, place: Place
) -> None:
    place.upstream.offer(outputSchema=NUMBERS)
    place.upstream.answer = {"content": [], "structuredContent": {"who": "a@b.co"}, "isError": True}
    place.site.rule('tools = ["**"]\n[agents.pii.result]\nemail = "redact"')
    answer = await place.site.calls.call_tool(AGENT_OF, "up.tool", {})
    assert isinstance(answer, Answered)
    assert answer.as_mcp == {"content": [{"type": "text", "text": '{"who":"[email]"}'}], "isError": True}
