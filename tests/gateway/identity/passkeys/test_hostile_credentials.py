"""Anything at all in place of a credential: a fault of the closed set, never an exception, never a login."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.identity.passkeys.ceremony_rules import Ceremony
from gateway.identity.passkeys.faults import PasskeyFault
from gateway.identity.passkeys.verification import NewCredential, register
from tests.gateway.identity.passkeys.authenticator import SoftwareAuthenticator, base64url, from_base64url
from tests.gateway.identity.passkeys.ceremonies import (
    BASE,
    PARTY,
    Member,
    begin_login,
    begin_registration,
    logged_in,
)

ADA = Member()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PARTS = ("clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle")


def is_closed(outcome: object) -> bool:
    return isinstance(outcome, PasskeyFault)


def pair() -> tuple[Ceremony, dict[str, Any], Ceremony, dict[str, Any]]:
    registration, options = begin_registration()
    login, request = begin_login()
    made = SoftwareAuthenticator(BASE).register(options)
    return registration, made, login, ADA.authenticator.sign_in(request)


@settings(deadline=None)
@given(JSON)
def test_any_json_yields_a_fault(sent: object) -> None:
    registration, _, login, _ = pair()
    assert is_closed(register(PARTY, registration, sent))
    assert is_closed(logged_in(login, sent, ADA.known))


@settings(deadline=None)
@given(st.sampled_from(("id", "rawId", "type", "response", *PARTS)), JSON)
def test_any_member_replaced_by_any_json_yields_a_fault_or_was_not_needed(name: str, value: object) -> None:
    registration, made, login, signed = pair()
    for sent in (made, signed):
        (sent["response"] if name in PARTS else sent)[name] = value
    assert is_closed(register(PARTY, registration, made)) or name in ("authenticatorData", "signature", "userHandle")
    assert is_closed(logged_in(login, signed, ADA.known)) or name == "attestationObject"


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(PARTS), st.integers(0, 400), st.integers(0, 9), st.binary(max_size=9))
def test_bytes_altered_inserted_or_cut_never_raise_and_never_log_in(name: str, at: int, cut: int, put: bytes) -> None:
    registration, made, login, signed = pair()
    before = signed["response"].get(name)
    for sent in (made, signed):
        whole = from_base64url(sent["response"].get(name, ""))
        start = at % (len(whole) + 1)
        sent["response"][name] = base64url(whole[:start] + put + whole[start + cut :])
    assert isinstance(register(PARTY, registration, made), PasskeyFault | NewCredential)
    assert is_closed(logged_in(login, signed, ADA.known)) or before in (None, signed["response"][name])
