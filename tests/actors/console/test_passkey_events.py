"""The forms in which operators' passkeys lie in logs: what was written once is read for good."""

import msgspec
import pytest

from actors.console.passkey_events import OperatorPasskey, Passkeys, decode, decode_snapshot, encode_snapshot, evolve

PASSKEY = (
    b'{"passkey_id":"01P","credential_id":"Yw==","public_key":"aw==","sign_count":0,"user_handle":"aA==","sub":"ada",'
    b'"tenant":"operators","scopes":["fleet:read"],"token_id":"01T","made_at_ms":1,"ends_at_ms":9}'
)
HISTORY = (
    b'{"event":"PasskeyAdded@1","at_ms":1,"passkey_id":"01P","passkey":' + PASSKEY + b"}",
    b'{"event":"PasskeyUsed@1","at_ms":5,"passkey_id":"01P","sign_count":7}',
    b'{"event":"PasskeyRemoved@1","at_ms":6,"passkey_id":"01P","by":"ops"}',
)
USED = OperatorPasskey("01P", b"c", b"k", 7, b"h", "ada", "operators", ("fleet:read",), "01T", 1, 9, used_at_ms=5)


def after(*events: bytes) -> Passkeys:
    passkeys: Passkeys = {}
    for data in events:
        passkeys = evolve(passkeys, decode(data))
    return passkeys


def test_every_event_is_read_as_it_was_written() -> None:
    assert after(*HISTORY[:2]) == {"01P": USED}
    assert after(*HISTORY) == {}


def test_snapshot_says_what_the_events_say() -> None:
    assert decode_snapshot(encode_snapshot(after(*HISTORY[:2]))) == {"01P": USED}
    assert decode_snapshot(b"[" + PASSKEY + b"]") == after(HISTORY[0])


def test_use_and_removal_of_one_that_is_gone_change_nothing() -> None:
    assert after(HISTORY[1], HISTORY[2]) == {}


@pytest.mark.parametrize("data", [b"{}", b"[]", HISTORY[1].replace(b"@1", b"@2"), HISTORY[1][:-1] + b',"x":1}'])
def test_other_forms_are_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(data)
