"""Which settings can change while a gateway runs, and what is said of those that have."""

from typing import Any

import pytest

from gateway.main.reload_rules import LIVE_NAMES, LIVE_SECTIONS, changes, flat, is_live
from gateway.main.settings import Settings, load

TLS = {"http.tls_certificate": "a.pem", "http.tls_key": "a.key", "devices.tls_certificate": "b.pem"}


def changed(before: dict[str, Any], after: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found = changes(load(None, {}, before), load(None, {}, after))
    return found.live, found.restart


def test_every_live_name_is_a_setting() -> None:
    names = flat(Settings())
    assert LIVE_NAMES - names.keys() == set()
    assert [section for section in LIVE_SECTIONS if not any(name.startswith(f"{section}.") for name in names)] == []


def test_nothing_changed_is_nothing_to_tell() -> None:
    assert changed({}, {}) == ((), ())
    assert changes(Settings(), Settings()).effective == Settings()


@pytest.mark.parametrize("name", sorted(name for name in flat(Settings()) if is_live(name) and ".tls_" not in name))
def test_live_setting_holds_from_now_on(name: str) -> None:
    before = flat(Settings())[name]
    value = type(before)(before / 2) or 7
    found = changes(Settings(), load(None, {}, {name: value}))
    assert (found.live, found.restart) == ((name,), ())
    assert flat(found.effective) == {**flat(Settings()), name: value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data", "elsewhere"),
        ("http.listen", "127.0.0.1:1"),
        ("http.public_url", "https://gw.example"),
        ("http.trusted_proxies", ["10.0.0.0/8"]),
        ("listener.backlog", 1),
        ("listener.strangers_per_address_max", 1),
        ("door.connections_max", 1),
        ("audit.enabled", False),
        ("echo.enabled", True),
        ("log.target", "stdout"),
        ("projects.api_bearer_token", "x" * 40),
        ("governance.policy", "other.toml"),
    ],
)
def test_any_other_waits_for_a_restart_and_does_not_hold(name: str, value: Any) -> None:
    found = changes(Settings(), load(None, {}, {name: value}))
    assert (found.live, found.restart) == ((), (name,))
    assert found.effective == Settings()


def test_section_that_comes_or_goes_waits_for_a_restart() -> None:
    s3 = {
        "endpoint": "http://127.0.0.1:9",
        "bucket": "bucket",
        "region": "eu-1",
        "access_key": "SECRET",
        "secret_key": "SECRET",
    }
    bucket = {f"echo.s3.{name}": value for name, value in s3.items()}
    live, restart = changed({}, bucket)
    assert live == ()
    assert "echo.s3.bucket" in restart
    assert "SECRET" not in str(restart)
    assert changed(bucket, {})[0] == ()


def test_both_kinds_at_once() -> None:
    before = {"stream.ping_s": 25.0}
    after = {
        "stream.ping_s": 5.0,
        "node.silence_s_max": 9.0,
        "listener.sockets.close_s_max": 2.0,
        "door.head_s_max": 1.0,
    }
    found = changes(load(None, {}, before), load(None, {}, after))
    assert found.live == ("listener.sockets.close_s_max", "node.silence_s_max", "stream.ping_s")
    assert found.restart == ("door.head_s_max",)
    assert found.effective.listener.sockets.close_s_max == 2.0
    assert found.effective.door == Settings().door


def test_certificate_may_lie_elsewhere_but_tls_neither_begins_nor_ends() -> None:
    moved = {**TLS, "http.tls_certificate": "c.pem", "devices.tls_certificate": "d.pem"}
    assert changed(TLS, moved) == (("devices.tls_certificate", "http.tls_certificate"), ())
    assert changed({}, TLS) == ((), tuple(sorted(TLS)))
    assert changed(TLS, {}) == ((), tuple(sorted(TLS)))
    assert changed(TLS, {"http.tls_key": "a.key"})[0] == ()


def test_key_may_move_out_of_the_file_of_its_certificate_and_back() -> None:
    split = {**TLS, "devices.tls_certificate": "c.pem", "devices.tls_key": "c.key"}
    names = ("devices.tls_certificate", "devices.tls_key")
    assert changed(TLS, split) == changed(split, TLS) == (names, ())
    assert changes(load(None, {}, TLS), load(None, {}, split)).effective.devices.tls_key == "c.key"
