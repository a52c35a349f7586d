"""The envelope: sealed here, opened by the book (RFC 7516), and refused when any part of its shape is off."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from schemas.echo.envelope import WS_KID, is_kid, kv_kid, read_envelope, room_key, seal, shown_key, unseal

TOKEN, SPACE = "es_" + "A" * 43, "01hzx9k3m4p7q8r9s0t1v2w3xy"
KEY, IV = room_key(TOKEN, SPACE), bytes(12)
GOOD = {"alg": "dir", "enc": "A256GCM", "kid": WS_KID}


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def compact(header: object, iv: str = b64(IV), text: str = "YWJj", tag: str = b64(bytes(16)), second: str = "") -> str:
    first = header if isinstance(header, str) else b64(json.dumps(header).encode())
    return f"{first}.{second}.{iv}.{text}.{tag}"


def test_room_key_is_hkdf_of_the_token_with_the_space_as_salt() -> None:
    by_the_book = HKDF(SHA256(), 32, salt=SPACE.encode(), info=b"echo room key v1").derive(TOKEN.encode())
    assert by_the_book == KEY
    assert shown_key(KEY) == b64(KEY)
    assert room_key(TOKEN, SPACE[:-1] + "z") != KEY


@given(st.binary(max_size=200), st.binary(min_size=12, max_size=12))
def test_sealed_text_opens_by_the_book(plaintext: bytes, iv: bytes) -> None:
    header, second, part_iv, ciphertext, tag = seal(KEY, kv_kid("a"), plaintext, iv).split(".")
    pad = "=="
    assert json.loads(base64.urlsafe_b64decode(header + pad)) == {"alg": "dir", "enc": "A256GCM", "kid": "room#kv/a"}
    assert second == ""
    assert base64.urlsafe_b64decode(part_iv + pad) == iv
    sealed = base64.urlsafe_b64decode(ciphertext + pad) + base64.urlsafe_b64decode(tag + pad)
    assert AESGCM(KEY).decrypt(iv, sealed, header.encode()) == plaintext


@given(st.binary(max_size=100))
def test_envelope_opens_for_its_place_and_key_alone(plaintext: bytes) -> None:
    envelope = read_envelope(seal(KEY, WS_KID, plaintext, IV))
    assert envelope is not None
    assert not envelope.is_clients_own
    assert unseal(KEY, WS_KID, envelope) == plaintext
    assert unseal(KEY, kv_kid("a"), envelope) is None
    assert unseal(bytes(32), WS_KID, envelope) is None


def test_every_altered_character_is_noticed() -> None:
    text = seal(KEY, WS_KID, b"a marked value", IV)
    for place, char in enumerate(text):
        other = text[:place] + ("B" if char != "B" else "C") + text[place + 1 :]
        envelope = read_envelope(other)
        assert envelope is None or unseal(KEY, WS_KID, envelope) is None


@pytest.mark.parametrize("kid", [WS_KID, "room#kv/a", "x:mine", "x:" + "k" * 254])
def test_documented_kids_are_taken(kid: str) -> None:
    envelope = read_envelope(compact(GOOD | {"kid": kid}))
    assert envelope is not None
    assert envelope.is_clients_own == kid.startswith("x:")


@pytest.mark.parametrize("kid", ["", "x:", "room#", "room#kv/", "room#kv/..", "room#kv/a/b", "y", "x:" + "k" * 255, 1])
def test_other_kids_are_no_envelope(kid: object) -> None:
    assert read_envelope(compact(GOOD | {"kid": kid})) is None
    assert not isinstance(kid, str) or not is_kid(kid)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain text",
        compact(GOOD, second="a"),
        compact(GOOD) + ".a",
        compact(GOOD).rpartition(".")[0],
        compact(GOOD) + "\n",
        compact(GOOD, iv=b64(bytes(11))),
        compact(GOOD, iv=b64(bytes(16))),
        compact(GOOD, tag=b64(bytes(15))),
        compact(GOOD, tag="A" * 21 + "B"),
        compact(GOOD, text="YWJ="),
        compact(GOOD, text="YWJjZ"),
        compact(GOOD, text="YWJ"[:2] + "x"),
        compact(GOOD | {"alg": "A256KW"}),
        compact(GOOD | {"enc": "A128GCM"}),
        compact(GOOD | {"zip": "DEF"}),
        compact({"alg": "dir", "enc": "A256GCM"}),
        compact("not base64!"),
        compact(b64(b"[]")),
        compact(b64(b"not json")),
        compact(b64(b'{"alg":"dir","alg":"dir","enc":"A256GCM","kid":"room#ws"}')),
        compact(b64(json.dumps(GOOD).encode() + b" " * 3000)),
        compact(b64(b"[" * 900)),
    ],
)
def test_other_shapes_are_no_envelope(text: str) -> None:
    assert read_envelope(text) is None


@given(st.text(max_size=100))
def test_any_text_is_judged_without_an_exception(text: str) -> None:
    read_envelope(text)
    read_envelope(compact(text))


def test_seal_insists_on_a_whole_iv_and_a_known_kid() -> None:
    for kid, iv in ((WS_KID, b"short"), ("other", IV)):
        with pytest.raises(ValueError, match="96 random bits"):
            seal(KEY, kid, b"", iv)
