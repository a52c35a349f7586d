"""The error envelope and the tables that go with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.closes import NodeClose, Return, StreamClose
from schemas.contract import contract
from schemas.errors import CODE_OF_STATUS, TEXT_CHARS_MAX, Code, Word, envelope, http_status, unauthenticated
from schemas.registry import REGISTRY
from tests.schemas.examples import CMD_ID, ERROR_DETAILS

ENVELOPE = contract("error@1.1.0")
DETAILED = contract("error@1.2.0")


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_a_valid_envelope_that_says_what_to_do(code: Code) -> None:
    error = envelope(code)
    assert ENVELOPE.explain(error) == []
    assert error["code"] == code.value
    assert error["suggested_fix"] != error["message"]
    assert contract("error@1.0.0").is_valid(error) is (code is not Code.BAD_REQUEST)


@given(code=st.sampled_from(list(Code)), text=st.text(), fix=st.text(min_size=600), wait=st.integers())
def test_whatever_goes_in_fits_the_schema(code: Code, text: str, fix: str, wait: int) -> None:
    error = envelope(code, text, fix, retry_after_ms=wait, correlation_id=CMD_ID)
    assert ENVELOPE.is_valid(error)
    assert len(error["suggested_fix"]) == TEXT_CHARS_MAX
    assert error["retry_after_ms"] == max(0, wait)
    assert error["correlation_id"] == CMD_ID


def test_bound_of_the_texts_is_that_of_the_schema() -> None:
    for name in ("message", "suggested_fix"):
        assert REGISTRY["error@1.1.0"].document["properties"][name]["maxLength"] == TEXT_CHARS_MAX


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
DETAIL_NAMES = list(REGISTRY["error@1.2.0"].document["properties"]["details"]["properties"])


@given(details=st.dictionaries(st.sampled_from(DETAIL_NAMES) | st.text(), JSON_VALUES))
def test_whatever_details_go_in_fit_the_schema(details: dict[str, object]) -> None:
    error = envelope(Code.RATE_LIMITED, details=details)
    assert DETAILED.is_valid(error)
    assert DETAILED.explain(error) == []
    assert error.get("details") != {}


@pytest.mark.parametrize("details", ERROR_DETAILS)
def test_details_that_fit_are_all_there(details: dict[str, object]) -> None:
    assert envelope(Code.SAFETY_DENIED, details=details)["details"] == details


def test_detail_that_does_not_fit_is_left_out_and_the_others_stay() -> None:
    details = {"code": "RATE_LIMITED", "cap": "10", "kinds": ["e-mail of Ada"], "per_s": 0, "more": 1, "used": 3}
    assert envelope(Code.RATE_LIMITED, details=details)["details"] == {"code": "RATE_LIMITED", "used": 3}
    assert "details" not in envelope(Code.RATE_LIMITED, details={"code": "WHATEVER"})


def test_words_are_those_of_the_schema() -> None:
    details = REGISTRY["error@1.2.0"].document["properties"]["details"]["properties"]
    assert [word.value for word in Word] == details["code"]["enum"]


def test_strings_of_the_details_are_bounded_and_printable() -> None:
    for name, schema in REGISTRY["error@1.2.0"].document["properties"]["details"]["properties"].items():
        text = schema.get("items", schema)
        if "string" in text["type"]:
            assert "pattern" in text or "enum" in text, name
            assert not contract("error@1.2.0").is_valid(envelope(Code.INTERNAL) | {"details": {name: "\u00e9" * 9}})


def test_what_is_not_given_is_left_out() -> None:
    assert set(envelope(Code.INTERNAL)) == {"code", "message", "suggested_fix"}


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (Code.SAFETY_DENIED, 403),
        (Code.MANIFEST_NOT_FOUND, 404),
        (Code.MANIFEST_INVALID, 400),
        (Code.KIND_UNSUPPORTED, 400),
        (Code.VERB_UNSUPPORTED, 400),
        (Code.BAD_REQUEST, 400),
        (Code.ATTESTATION_FAILED, 403),
        (Code.RATE_LIMITED, 429),
        (Code.NODE_OFFLINE, 503),
        (Code.DEADLINE_EXCEEDED, 504),
        (Code.INTERNAL, 500),
    ],
)
def test_status_of_each_code(code: Code, status: int) -> None:
    assert http_status(code) == status


def test_denial_is_401_until_somebody_is_authenticated() -> None:
    assert http_status(Code.SAFETY_DENIED, authenticated=False) == 401
    assert http_status(Code.NODE_OFFLINE, authenticated=False) == 503
    assert ENVELOPE.is_valid(unauthenticated(CMD_ID))
    assert unauthenticated()["code"] == "E_SAFETY_DENIED"
    assert unauthenticated(CMD_ID)["correlation_id"] == CMD_ID


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, Code.MANIFEST_INVALID),
        (401, Code.SAFETY_DENIED),
        (403, Code.SAFETY_DENIED),
        (500, Code.INTERNAL),
        (404, Code.MANIFEST_NOT_FOUND),
        (405, Code.VERB_UNSUPPORTED),
        (408, Code.DEADLINE_EXCEEDED),
        (413, Code.MANIFEST_INVALID),
        (431, Code.MANIFEST_INVALID),
        (503, Code.RATE_LIMITED),
    ],
)
def test_what_has_no_code_of_its_own_borrows_one(status: int, code: Code) -> None:
    assert CODE_OF_STATUS[status] is code


def test_streams_close_by_the_five_codes_of_rfc_0009() -> None:
    rows = {close.value.code: (close.value.reason, close.value.come_back) for close in StreamClose}
    assert rows == {
        1000: ("normal", Return.AS_IT_LIKES),
        4408: ("idle_timeout", Return.WITH_BACKOFF),
        4413: ("backpressure", Return.WITH_LONGER_INTERVAL),
        4429: ("rate_limited", Return.WITH_BACKOFF),
        4503: ("device_offline", Return.WITH_BACKOFF),
    }


def test_close_event_of_a_stream_fits_its_schema_and_no_other_pair_does() -> None:
    schema = contract("system.metrics.subscribe.close@1.0.0")
    for one in StreamClose:
        for other in StreamClose:
            assert schema.is_valid({"code": one.value.code, "reason": other.value.reason}) is (one is other)


def test_nodes_close_by_the_eleven_codes_of_the_device_wire() -> None:
    rows = {close.value.code: (close.value.reason, close.value.come_back) for close in NodeClose}
    assert rows == {
        1000: ("normal", Return.AS_IT_LIKES),
        1011: ("internal", Return.WITH_BACKOFF),
        1012: ("service_restart", Return.WITH_JITTER),
        4400: ("bad_frame", Return.WITH_BACKOFF),
        4401: ("unauthorized", Return.WITH_NEW_TOKEN),
        4403: ("forbidden", Return.NO),
        4408: ("timeout", Return.WITH_BACKOFF),
        4409: ("superseded", Return.AFTER_30_S),
        4413: ("too_large", Return.WITH_BACKOFF),
        4422: ("manifest_rejected", Return.NO),
        4429: ("rate_limited", Return.WITH_BACKOFF),
    }


def test_subscribe_without_a_stream_is_told_of_the_header_and_of_snapshot() -> None:
    fix = envelope(Code.BAD_REQUEST)["suggested_fix"]
    assert "Accept: text/event-stream" in fix
    assert "snapshot" in fix
