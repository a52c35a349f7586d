"""Client ids that are registrations: only ours open, and say what was registered."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.registration import Client, ClientIds, Label, read_registration
from tests.gateway.identity.oauth.site import KEY, REDIRECT

CLIENT = Client([REDIRECT, "https://a.example/cb"], "Inspector")


def read(**metadata: Any) -> Client | OAuthError:
    return read_registration(json.dumps({"redirect_uris": [REDIRECT], **metadata}).encode(), ())


def test_a_sealed_client_opens_and_shows_nothing() -> None:
    clients = ClientIds(KEY)
    client_id = clients.seal(CLIENT)
    assert client_id.startswith("dcr_")
    assert client_id.isascii()
    assert clients.read(client_id) == CLIENT
    assert clients.seal(CLIENT) != client_id
    assert ClientIds(KEY).read(client_id) == CLIENT, "nothing is kept, so a restart forgets nobody"


def test_an_altered_or_foreign_client_id_does_not_open() -> None:
    clients = ClientIds(KEY)
    client_id = clients.seal(CLIENT)
    for at in range(len("dcr_"), len(client_id) - 1, 7):
        other = "A" if client_id[at] != "A" else "B"
        assert clients.read(client_id[:at] + other + client_id[at + 1 :]) is None
    assert ClientIds(bytes(32)).read(client_id) is None
    for strange in (
        "dcr_",
        "dcr_x",
        "dcr_é",
        "dcr_" + "A" * 4_000,
        f"{client_id}x",
        client_id + "=",
        "dcr_" + "A" * 52,
    ):
        assert clients.read(strange) is None


def test_any_other_client_id_is_a_label_if_it_can_be_shown() -> None:
    clients = ClientIds(KEY)
    for label in ("inspector", "https://client.example/metadata.json", "x" * 256, "Ada’s client", "DCR_x"):
        assert clients.read(label) == Label(label)
    for strange in ("", "x" * 257, "a\nb", "\x00", "a\u202eb", "a\u200bb", "\ud800"):
        assert clients.read(strange) is None


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"redirect_uris": []}, OAuthError.INVALID_REDIRECT_URI),
        ({"redirect_uris": None}, OAuthError.INVALID_REDIRECT_URI),
        ({"redirect_uris": REDIRECT}, OAuthError.INVALID_REDIRECT_URI),
        ({"redirect_uris": [REDIRECT] * 6}, OAuthError.INVALID_REDIRECT_URI),
        ({"redirect_uris": [REDIRECT, 1]}, OAuthError.INVALID_REDIRECT_URI),
        ({"redirect_uris": ["http://evil.example/cb"]}, OAuthError.INVALID_REDIRECT_URI),
        ({"redirect_uris": ["cursor:/cb"]}, OAuthError.INVALID_REDIRECT_URI),
        ({"client_name": 1}, OAuthError.INVALID_CLIENT_METADATA),
        ({"client_name": "x" * 257}, OAuthError.INVALID_CLIENT_METADATA),
        ({"client_name": "a\u202eb"}, OAuthError.INVALID_CLIENT_METADATA),
        (
            {"redirect_uris": [f"https://a.example/{'x' * 300}{number}" for number in range(4)]},
            OAuthError.INVALID_CLIENT_METADATA,
        ),
    ],
)
def test_what_cannot_be_registered_is_refused(metadata: dict[str, Any], error: OAuthError) -> None:
    assert read(**metadata) is error


def test_other_metadata_is_passed_over() -> None:
    assert read(grant_types=["implicit"], jwks={"keys": []}, scope="root", logo_uri="http://x") == Client([REDIRECT])
    assert read(client_name=None) == Client([REDIRECT])


@given(
    st.one_of(
        st.binary(max_size=60), st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
    )
)
def test_anything_may_come(body: bytes) -> None:
    assert read_registration(body, ()) in (OAuthError.INVALID_CLIENT_METADATA, OAuthError.INVALID_REDIRECT_URI)


@given(st.text(max_size=80))
def test_any_text_may_be_a_client_id(text: str) -> None:
    found = ClientIds(KEY).read(text)
    assert found is None or found == Label(text)
