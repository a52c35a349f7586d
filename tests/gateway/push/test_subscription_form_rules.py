"""Whatever a browser is said to have made is taken or refused, and what is taken can be sealed for."""

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from hypothesis import given
from hypothesis import strategies as st

from actors.push.subscription_rules import Subscriber
from gateway.push.aes128gcm import seal
from gateway.push.endpoint_rules import VENDORS, PushHosts
from gateway.push.subscription_form_rules import read_subscription
from schemas.echo.errors import EchoError
from schemas.echo.push import SubscribeWish
from tests.gateway.push.vendor import Browser

GOOD = Browser().subscription
HOSTS = PushHosts(VENDORS)
ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=100) | st.lists(st.text())
KEYS = st.fixed_dictionaries(
    {},
    optional={
        "p256dh": st.just(GOOD["keys"]["p256dh"]) | ANYTHING | st.from_regex(r"B[A-Za-z0-9_-]{86}", fullmatch=True),
        "auth": st.just(GOOD["keys"]["auth"]) | ANYTHING | st.from_regex(r"[A-Za-z0-9_-]{21,23}", fullmatch=True),
    },
)
MADE = st.fixed_dictionaries(
    {},
    optional={
        "endpoint": st.just(GOOD["endpoint"]) | ANYTHING,
        "keys": KEYS | ANYTHING,
        "expirationTime": ANYTHING,
        "more": ANYTHING,
    },
)


@given(MADE)
def test_what_is_taken_can_be_sent_to(made: dict[str, Any]) -> None:
    read = read_subscription(SubscribeWish(made), HOSTS, 1)
    if isinstance(read, Subscriber):
        seal(b"", read.p256dh, read.auth, generate_private_key(SECP256R1()), bytes(16))
    else:
        assert read is EchoError.INVALID_SUBSCRIPTION


def test_good_one_is_kept_with_whose_it_is() -> None:
    wish = SubscribeWish(GOOD, "ada", ("lobby",))
    read = read_subscription(wish, HOSTS, 7, "member")
    assert isinstance(read, Subscriber)
    assert (read.endpoint, read.since_ms, read.uid, read.subs, read.member_id) == (
        GOOD["endpoint"],
        7,
        "ada",
        ("lobby",),
        "member",
    )
    assert (len(read.p256dh), len(read.auth), read.failing_since_ms, read.is_left_over) == (65, 16, None, False)
