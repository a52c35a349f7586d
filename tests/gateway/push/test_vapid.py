"""RFC 8292: the keys of the settings, checked at the start, and tokens that a push service can verify."""

from dataclasses import replace

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey

from gateway.main.settings import SettingsError, load
from gateway.push.settings import PushSettings
from gateway.push.vapid import (
    ORIGINS_MAX,
    RENEW_S,
    TOKEN_S,
    VapidKeys,
    VapidTokens,
    base64url,
    base64url_bytes,
    new_pair,
    read_keys,
)

NOW_S = 1_800_000_000
PUBLIC, PRIVATE = new_pair()
SET = PushSettings(vapid_public_key=PUBLIC, vapid_private_key=PRIVATE, vapid_subject="mailto:ops@example.org")


def keys() -> VapidKeys:
    read = read_keys(SET)
    assert read is not None
    return read


def verified(header: str, audience: str, now_s: int) -> dict[str, object]:
    """As a push service does it."""
    scheme, _, parameters = header.partition(" ")
    given = dict(part.split("=", 1) for part in parameters.split(", "))
    assert (scheme, set(given), given["k"]) == ("vapid", {"t", "k"}, PUBLIC)
    point = base64url_bytes(given["k"])
    assert point is not None
    key = EllipticCurvePublicKey.from_encoded_point(SECP256R1(), point)
    options = {"verify_exp": False, "require": ["exp", "aud", "sub"]}
    claims: dict[str, object] = jwt.decode(given["t"], key, ["ES256"], options, audience=audience)  # type: ignore[arg-type]
    assert now_s < int(str(claims["exp"])) <= now_s + 24 * 3600
    return claims


def test_token_names_the_origin_the_subject_and_ends_within_a_day() -> None:
    header = VapidTokens(keys()).authorization("https://push.example.org", NOW_S)
    assert verified(header, "https://push.example.org", NOW_S) == {
        "aud": "https://push.example.org",
        "exp": NOW_S + TOKEN_S,
        "sub": "mailto:ops@example.org",
    }


def test_token_is_signed_once_for_an_origin_and_anew_when_it_is_old_or_the_clock_was_set_back() -> None:
    tokens = VapidTokens(keys())
    first = tokens.authorization("https://a", NOW_S)
    assert tokens.authorization("https://a", NOW_S + RENEW_S - 1) == first
    assert tokens.authorization("https://b", NOW_S) != first
    later = tokens.authorization("https://a", NOW_S + RENEW_S)
    assert later != first
    verified(later, "https://a", NOW_S + RENEW_S)
    back = tokens.authorization("https://a", NOW_S - 100_000)
    assert back != later
    verified(back, "https://a", NOW_S - 100_000)


def test_tokens_of_so_many_origins_are_kept_and_no_more() -> None:
    tokens = VapidTokens(keys())
    for number in range(ORIGINS_MAX + 3):
        tokens.authorization(f"https://{number}", NOW_S)
        tokens.authorization("https://0", NOW_S)
    assert len(tokens) == ORIGINS_MAX


def test_without_keys_there_is_no_push() -> None:
    assert read_keys(PushSettings()) is None
    assert read_keys(PushSettings(vapid_public_key="", vapid_private_key="", vapid_subject="")) is None


def test_padding_of_a_key_does_no_harm() -> None:
    read = read_keys(replace(SET, vapid_public_key=f"{PUBLIC}=", vapid_private_key=f"{PRIVATE}="))
    assert read is not None
    assert read.public_key == PUBLIC


OTHER = new_pair()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"vapid_public_key": None}, "push.vapid_public_key is not set"),
        ({"vapid_private_key": ""}, "push.vapid_private_key is not set"),
        ({"vapid_subject": None}, "push.vapid_subject is not set"),
        ({"vapid_public_key": OTHER[0]}, "are not a pair"),
        ({"vapid_private_key": OTHER[1]}, "are not a pair"),
        ({"vapid_public_key": PUBLIC[:-2]}, "push.vapid_public_key is not 65 bytes"),
        ({"vapid_public_key": "+" + PUBLIC[1:]}, "push.vapid_public_key is not 65 bytes"),
        ({"vapid_private_key": PRIVATE + "AA"}, "push.vapid_private_key is not 32 bytes"),
        ({"vapid_private_key": PRIVATE[:-1]}, "push.vapid_private_key is not 32 bytes"),
        ({"vapid_private_key": base64url(bytes(32))}, "push.vapid_private_key is not 32 bytes"),
        ({"vapid_private_key": base64url(b"\xff" * 32)}, "push.vapid_private_key is not 32 bytes"),
        ({"vapid_private_key": "ä" * 43}, "push.vapid_private_key is not 32 bytes"),
        ({"vapid_subject": "ops@example.org"}, "push.vapid_subject is mailto:"),
        ({"vapid_subject": "http://example.org"}, "push.vapid_subject is mailto:"),
        ({"vapid_subject": "mailto:nobody"}, "push.vapid_subject is mailto:"),
        ({"vapid_subject": "mailto:a@b\nx"}, "push.vapid_subject is mailto:"),
    ],
)
def test_mistake_stops_the_start_with_the_name_of_the_setting_and_without_a_key(
    changed: dict[str, str | None], words: str
) -> None:
    with pytest.raises(SettingsError, match=words) as stopped:
        read_keys(replace(SET, **changed))  # type: ignore[arg-type]  # they are of these three
    for secret in (PRIVATE, OTHER[1], PRIVATE[:-1]):
        assert secret not in str(stopped.value)


def test_keys_come_by_their_bare_names_and_are_in_no_dump() -> None:
    environment = {"VAPID_PUBLIC_KEY": PUBLIC, "VAPID_PRIVATE_KEY": PRIVATE, "VAPID_SUBJECT": "https://example.org"}
    settings = load(None, environment, {})
    assert settings.push == replace(SET, vapid_subject="https://example.org")
    read = read_keys(settings.push)
    for shown in (repr(settings), str(settings.push), repr(read)):
        assert PRIVATE not in shown
    with_prefix = {**environment, "HELIOGRAPH_PUSH_VAPID_SUBJECT": "mailto:ops@example.org"}
    assert load(None, with_prefix, {}).push == SET


def test_list_of_hosts_is_checked_when_settings_are_read() -> None:
    listed = load(None, {"HELIOGRAPH_PUSH_HOSTS": '["push.example.org", "*.example.org", "127.0.0.1", "[::1]"]'}, {})
    assert listed.push.hosts == ("push.example.org", "*.example.org", "127.0.0.1", "[::1]")
    for wrong in (
        "Push.example.org",
        "push.example.org:443",
        "https://push.example.org",
        "*",
        "*.",
        "a.*.b",
        "",
        "::1",
    ):
        with pytest.raises(SettingsError, match=r"push\.hosts"):
            load(None, {}, {"push.hosts": [wrong]})


@pytest.mark.parametrize(
    "wrong",
    [
        {"push.sends_max": 0},
        {"push.notifies_max": 0},
        {"push.notifies_per_owner_max": -1},
        {"push.subscriptions_per_space_max": 0},
        {"push.message_ttl_s": 0},
        {"push.send_s_max": 0.0},
        {"push.notify_s_max": float("nan")},
        {"push.subscribes_per_min": -1.0},
    ],
)
def test_limit_that_lets_nothing_through_stops_the_start(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match="section push"):
        load(None, {}, wrong)


def test_pairs_are_new_each_time_and_fit() -> None:
    assert len({new_pair() for _ in range(3)}) == 3
    public, private = new_pair()
    assert read_keys(replace(SET, vapid_public_key=public, vapid_private_key=private)) is not None
