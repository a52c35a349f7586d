"""The bodies of Web Push: closed objects, with the bounds of the tools, and one message for the browser."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.echo.errors import EchoError
from schemas.echo.frames import SUBS_MAX
from schemas.echo.push import (
    MESSAGE_BYTES_MAX,
    NotifyWish,
    SubscribeWish,
    read_notify,
    read_subscribe,
    read_unsubscribe,
)

MADE = {"endpoint": "https://push.example/1", "expirationTime": None, "keys": {"p256dh": "p", "auth": "a"}}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_subscription_comes_in_an_object_of_its_own_or_flat() -> None:
    assert read_subscribe({"subscription": MADE}) == SubscribeWish(MADE)
    assert read_subscribe(MADE) == SubscribeWish(MADE)
    named = SubscribeWish(MADE, "ada", ("lobby", "garden"))
    assert read_subscribe({"subscription": MADE, "uid": "ada", "subs": ["lobby", "garden", "lobby"]}) == named
    assert read_subscribe({**MADE, "uid": "ada", "subs": ["lobby", "garden"]}) == named


def test_what_a_browser_made_may_have_more_in_it_and_our_object_may_not() -> None:
    browsers = {**MADE, "options": {}, "futureMember": 1}
    assert read_subscribe({"subscription": browsers}) == SubscribeWish(browsers)
    assert read_subscribe(browsers) == SubscribeWish(browsers)
    assert read_subscribe({"subscription": MADE, "more": 1}) is EchoError.INVALID_PAYLOAD
    assert read_subscribe({"subscription": MADE, "endpoint": "x"}) is EchoError.INVALID_PAYLOAD


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        "x",
        {"subscription": None},
        {"subscription": "x"},
        {"subscription": MADE, "uid": ""},
        {"subscription": MADE, "uid": None},
        {"subscription": MADE, "uid": ".."},
        {"subscription": MADE, "uid": "a/b"},
        {"subscription": MADE, "uid": "a" * 65},
        {"subscription": MADE, "subs": "lobby"},
        {"subscription": MADE, "subs": ["."]},
        {"subscription": MADE, "subs": [1]},
        {"subscription": MADE, "subs": [str(number) for number in range(SUBS_MAX + 1)]},
        {**MADE, "uid": 1},
        {**MADE, "subs": None},
    ],
)
def test_any_other_form_is_refused(body: Any) -> None:
    assert read_subscribe(body) is EchoError.INVALID_PAYLOAD


def test_as_many_subspaces_as_a_connection_may_be_in() -> None:
    subs = tuple(str(number) for number in range(SUBS_MAX))
    assert read_subscribe({"subscription": MADE, "subs": list(subs)}) == SubscribeWish(MADE, None, subs)


def test_unsubscribing_names_an_endpoint() -> None:
    assert read_unsubscribe({"endpoint": "https://x"}) == "https://x"
    for body in (
        None,
        {},
        {"endpoint": 1},
        {"endpoint": "x" * 2049},
        {"endpoint": "x", "uid": "a"},
        {"endpoint": "\ud800"},
    ):
        assert read_unsubscribe(body) is EchoError.INVALID_PAYLOAD


def test_message_has_what_the_browser_is_to_show_and_nothing_of_the_address() -> None:
    body = {"title": "Frost", "body": "−4 °C", "data": {"url": "/x"}, "tuid": "ada", "sub": "lobby"}
    wish = read_notify(body)
    assert isinstance(wish, NotifyWish)
    assert (wish.tuid, wish.sub) == ("ada", "lobby")
    assert json.loads(wish.message) == {"title": "Frost", "body": "−4 °C", "data": {"url": "/x"}}
    assert read_notify({"title": "", "body": ""}) == NotifyWish(b'{"title":"","body":""}')
    assert read_notify({"title": "", "body": "", "data": None}) == NotifyWish(b'{"title":"","body":"","data":null}')


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"title": "t"},
        {"body": "b"},
        {"title": 1, "body": "b"},
        {"title": "t", "body": None},
        {"title": "t" * 121, "body": "b"},
        {"title": "t", "body": "b" * 1001},
        {"title": "t", "body": "b", "tuid": ""},
        {"title": "t", "body": "b", "tuid": "."},
        {"title": "t", "body": "b", "sub": ".."},
        {"title": "t", "body": "b", "sub": None},
        {"title": "t", "body": "b", "icon": "x"},
        {"title": "\ud800", "body": "b"},
        {"title": "t", "body": "b", "data": "\udfff"},
        {"title": "t", "body": "b", "data": {"\ud800": 1}},
        {"title": "t", "body": "b", "data": float("inf")},
    ],
)
def test_any_other_notification_is_refused(body: Any) -> None:
    assert read_notify(body) is EchoError.INVALID_PAYLOAD


def test_bounds_are_of_characters_and_the_whole_is_of_bytes() -> None:
    assert isinstance(read_notify({"title": "🔔" * 120, "body": "ü" * 1000}), NotifyWish)
    around = len(json.dumps({"title": "", "body": "", "data": ""}, separators=(",", ":")))
    longest = "x" * (MESSAGE_BYTES_MAX - around)
    wish = read_notify({"title": "", "body": "", "data": longest})
    assert isinstance(wish, NotifyWish)
    assert len(wish.message) == MESSAGE_BYTES_MAX
    assert read_notify({"title": "", "body": "", "data": f"{longest}x"}) is EchoError.PAYLOAD_TOO_LARGE
    assert read_notify({"title": "🔔" * 120, "body": "🔔" * 1000}) is EchoError.PAYLOAD_TOO_LARGE


def test_bottomless_data_is_refused() -> None:
    data: list[Any] = []
    for _ in range(100_000):
        data = [data]
    assert isinstance(read_notify({"title": "", "body": "", "data": data}), EchoError)


@given(ANYTHING)
def test_whatever_was_decoded_is_read_or_refused(body: Any) -> None:
    for read in (read_subscribe, read_unsubscribe, read_notify):
        read(body)
    assert isinstance(read_notify({"title": "t", "body": "b", "data": body}), NotifyWish | EchoError)
