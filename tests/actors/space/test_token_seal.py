"""Tokens that are shown again: they open for their own space, under their own key, and as nothing else."""

import msgspec
import pytest

from actors.space import events
from actors.space.events import Space, SpaceOpened
from actors.space.iam_events import IamDisabled, IamEnabled
from actors.space.sealing import SpaceKey
from actors.space.token_seal import TokenSeal
from gateway.identity.oauth.registration import Client, ClientIds
from schemas.echo.frames import Encoding

KEY, TOKEN = bytes(range(32)), "es_" + "t" * 43
OPENED = SpaceOpened(1, "space", b"hash", None, Encoding.JSON, False, 9)


def test_a_sealed_token_opens_for_its_space_and_for_no_other() -> None:
    seal = TokenSeal(KEY)
    sealed = seal.seal("one", TOKEN)
    assert TOKEN.encode() not in sealed
    assert seal.open("one", sealed) == TOKEN
    assert seal.open("other", sealed) is None
    assert TokenSeal(KEY).open("one", sealed) == TOKEN  # after a restart
    assert TokenSeal(bytes(32)).open("one", sealed) is None


def test_nothing_sealed_and_what_was_altered_open_as_nothing() -> None:
    seal = TokenSeal(KEY)
    sealed = seal.seal("one", TOKEN)
    for at in range(len(sealed)):
        assert seal.open("one", sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]) is None
        assert seal.open("one", sealed[:at]) is None


def test_the_same_token_is_never_sealed_alike() -> None:
    seal = TokenSeal(KEY)
    assert seal.seal("one", TOKEN) != seal.seal("one", TOKEN)


def test_echo_key_itself_seals_nothing() -> None:
    """Its uses are apart: what one of them made is nothing to another."""
    from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as encrypt

    nonce = bytes(24)
    assert TokenSeal(KEY).open("one", nonce + encrypt(TOKEN.encode(), b"one", nonce, KEY)) is None
    client_id = ClientIds(KEY).seal(Client(["http://localhost/"]))
    assert TokenSeal(KEY).open("dcr_", client_id.encode()) is None
    assert TokenSeal(KEY).open("one", SpaceKey("one", KEY).seal_event(TOKEN.encode())) is None


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"echo\.key has 32 bytes"):
        TokenSeal(b"")


# ---- in the log ------------------------------------------------------------------------------------------------------


def folded(*said: events.Event) -> Space:
    space = None
    for event in said:
        space = events.evolve(space, events.decode(events.encode(event)))
    assert space is not None
    return space


def test_a_project_room_has_its_token_from_the_beginning_and_keeps_it_without_iam() -> None:
    opened = msgspec.structs.replace(OPENED, project_id="p", sealed_token=b"sealed")
    assert folded(opened).sealed_token == b"sealed"
    assert folded(opened, IamEnabled(2)).sealed_token == b"sealed"
    assert folded(opened, IamEnabled(2), IamDisabled(3)).sealed_token == b"sealed"


def test_another_room_has_its_token_while_iam_is_on() -> None:
    assert folded(OPENED).sealed_token == b""
    assert folded(OPENED, IamEnabled(2, b"sealed")).sealed_token == b"sealed"
    assert folded(OPENED, IamEnabled(2, b"sealed"), IamDisabled(3)).sealed_token == b""


def test_events_that_were_recorded_without_it_are_read() -> None:
    for recorded in (OPENED, IamEnabled(2)):
        before = msgspec.json.decode(events.encode(recorded))
        del before["sealed_token"]
        assert events.decode(msgspec.json.encode(before)) == recorded
