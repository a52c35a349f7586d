"""The forms in which spaces lie in logs, once unsealed: what was written once is read until the space has ended."""

import msgspec
import pytest

from actors.space.events import Ending, Space, decode, encode, evolve
from actors.space.iam_rules import Iam
from actors.space.operator_iam_rules import tokens
from schemas.echo.frames import Encoding

PASSKEY = b'{"credential_id":"cA==","public_key":"aw==","sign_count":3}'
OPENED = (
    b'{"event":"SpaceOpened@1","at_ms":1,"space_id":"s","token_hash":"dA==","claim_hash":"Yw==","protocol":"json",'
    b'"is_encrypted":false,"ends_at_ms":900}'
)
OF_PROJECT = (
    b'{"event":"SpaceOpened@1","at_ms":1,"space_id":"s","token_hash":"dA==","claim_hash":null,"protocol":"protobuf",'
    b'"is_encrypted":true,"ends_at_ms":900,"project_id":"p","sealed_token":"c2VhbGVk"}'
)
MEMBERS = (
    b'{"event":"IamEnabled@1","at_ms":2,"sealed_token":""}',
    b'{"event":"MemberAdded@1","at_ms":2,"member_id":"m","user_handle":"aA==","label":"Ada","scopes":["echo.full"],'
    b'"passkey":' + PASSKEY + b',"invite_hash":null}',
    b'{"event":"PasskeyAdded@1","at_ms":2,"member_id":"m","passkey":' + PASSKEY.replace(b"cA==", b"cQ==") + b"}",
    b'{"event":"PasskeyUsed@1","at_ms":3,"credential_id":"cA==","sign_count":4}',
    b'{"event":"InviteIssued@1","at_ms":3,"invite_hash":"aQ==","by":"","scopes":["kv_read"],"ends_ms":800}',
    b'{"event":"UidTaken@1","at_ms":3,"uid":"ada","member_id":"m"}',
    b'{"event":"GrantIssued@1","at_ms":4,"grant_id":"g","member_id":"g","scopes":["kv_read"],"access_hash":"YQ==",'
    b'"access_ends_ms":500,"refresh_hash":null,"refresh_ends_ms":0,"ends_ms":900,"client":"bot"}',
)
ENDS = (
    b'{"event":"MemberRemoved@1","at_ms":5,"member_id":"m"}',
    b'{"event":"IamDisabled@1","at_ms":6}',
    b'{"event":"SpaceEndMoved@1","at_ms":6,"ends_at_ms":950}',
    b'{"event":"SpaceClosed@1","at_ms":7,"ending":"booked"}',
)


def test_space_is_read_as_it_was_opened() -> None:
    space = evolve(None, decode(OPENED))
    assert space == Space("s", b"t", b"c", Encoding.JSON, False, 1, 900)


def test_room_of_a_project_is_read_with_its_members_and_its_end() -> None:
    space, iam = evolve(None, decode(OF_PROJECT)), Iam("s")
    for data in MEMBERS:
        space = evolve(space, decode(data))
        iam.apply(decode(data))
    assert space == Space("s", b"t", None, Encoding.PROTOBUF, True, 1, 900, "p", None, True, b"sealed")
    assert [(one.credential_id, one.sign_count) for one in iam.members["m"].passkeys] == [(b"q", 3), (b"p", 4)]
    assert (list(iam.invites), iam.uids.owner("ada")) == ([b"i"], "m")
    assert [token.client for token in tokens(iam, 4)] == ["bot"]
    for data in ENDS:
        space = evolve(space, decode(data))
        iam.apply(decode(data))
    assert space == Space("s", b"t", None, Encoding.PROTOBUF, True, 1, 950, "p", Ending.BOOKED, False, b"sealed")
    assert (iam.members, iam.is_enabled) == ({}, False)


@pytest.mark.parametrize("data", [OPENED, OF_PROJECT, *MEMBERS, *ENDS])
def test_every_event_is_written_as_it_is_read(data: bytes) -> None:
    assert decode(encode(decode(data))) == decode(data)


@pytest.mark.parametrize("data", [b"{}", b'{"event":"Other@1","at_ms":1}', OPENED[:-1] + b',"more":1}'])
def test_what_is_not_one_of_these_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(data)
