"""Personal data in what an upstream answers: its shape is nobody's contract, so keys and numbers are looked at too."""

from typing import Any

import pytest
from trio.testing import MockClock

from gateway.identity.tokens import Scope
from tests.gateway.api.client import token
from tests.gateway.calls.place import PRICE, Place

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
