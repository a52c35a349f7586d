"""The forms in which members lie in logs: what was written once is read for good."""

import msgspec
import pytest

from actors.grants.grant_events import GrantIssued
from actors.member.member_events import Invite, MemberInvited, Passkey, decode, decode_snapshot, encode
from actors.member.member_rules import MemberState

INVITED = (
    b'{"event":"MemberInvited@1","at_ms":1,"by":"ops","member_id":"m","tenant":"acme","agent_id":"agent_1","label":"Ada",'
    b'"scopes":["tools:call:read_only"],"user_handle":"aGFuZGxl","invite":{"invite_hash":"aGFzaA==","ends_ms":9}}'
)
PASSKEY = b'{"credential_id":"cA==","public_key":"aw==","sign_count":0}'
HISTORY = (
    INVITED,
    b'{"event":"MemberJoined@1","at_ms":2,"passkey":' + PASSKEY + b"}",
    b'{"event":"PasskeyAdded@1","at_ms":3,"passkey":' + PASSKEY.replace(b"cA==", b"cQ==") + b"}",
    b'{"event":"PasskeyUsed@1","at_ms":4,"credential_id":"cA==","sign_count":5}',
    b'{"event":"GrantIssued@1","at_ms":5,"grant_id":"g","member_id":"m","scopes":["tools:call:read_only"],'
    b'"access_hash":null,"access_ends_ms":605,"refresh_hash":"cg==","refresh_ends_ms":700,"ends_ms":900}',
    b'{"event":"GrantRevoked@1","at_ms":6,"grant_id":"g"}',
    b'{"event":"MemberRevoked@1","at_ms":7,"by":"ops"}',
)


def test_every_event_is_read_as_it_was_written() -> None:
    state = MemberState("m")
    for data in HISTORY[:5]:
        state.apply(decode(data))
    assert state.member is not None
    assert (state.member.agent_id, state.member.joined_at_ms, state.member.invite) == ("agent_1", 2, None)
    assert state.member.passkeys == (Passkey(b"p", b"k", 5), Passkey(b"q", b"k", 0))
    assert [grant.grant_id for grant in state.grants] == ["g"]
    assert state.apply(decode(HISTORY[5])) == ["g"]
    state.apply(decode(HISTORY[6]))
    assert state.member is None


def test_grant_from_before_resources_has_none() -> None:
    issued = decode(HISTORY[4])
    assert isinstance(issued, GrantIssued)
    assert issued.resource == ""


def test_snapshot_says_what_the_events_say() -> None:
    state = MemberState("m")
    for data in HISTORY[:5]:
        state.apply(decode(data))
    again = MemberState("m")
    again.restore(decode_snapshot(encode(state.snapshot())))
    assert (again.member, again.grants.kept(), again.grants.seen_ms) == (state.member, state.grants.kept(), 5)
    assert again.grants.of_refresh_token(b"r") == state.grants.of_refresh_token(b"r")


def test_invitation_is_written_with_its_hash() -> None:
    event = decode(INVITED)
    assert isinstance(event, MemberInvited)
    assert (event.invite, event.keeps_passkeys) == (Invite(b"hash", 9), False)
    assert decode(encode(event)) == event


@pytest.mark.parametrize("data", [b"{}", b"[]", b'{"event":"Other@1","at_ms":1}', INVITED[:-1] + b',"more":1}'])
def test_what_is_not_one_of_these_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(data)
