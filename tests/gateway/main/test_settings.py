"""Settings: from file, environment and flags, the last one wins; a mistake says what it is."""

from pathlib import Path

import pytest

from gateway.main.settings import Address, SettingsError, load
from gateway.observe.log_output import LogSettings


def test_defaults_stand_alone() -> None:
    settings = load(None, {}, {})
    assert (settings.http.listen, settings.devices.listen) == ("127.0.0.1:8420", "127.0.0.1:8421")
    assert settings.node.silence_s_max == 60.0
    assert settings.listener.auth_s_max == 5.0
    assert settings.door_settings.head_bytes_max == 16 * 1024


def test_flags_win_over_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "heliograph.toml"
    file.write_text('data = "a"\n[http]\nlisten = "1.1.1.1:1"\n[node]\nsilence_s_max = 10.5\n[door]\nidle_s_max = 7\n')
    environment = {"HELIOGRAPH_HTTP_LISTEN": "2.2.2.2:2", "HELIOGRAPH_DATA": "b", "HELIOGRAPH_NODE_CADENCES_MAX": "3"}
    settings = load(file, environment, {"http.listen": "3.3.3.3:3", "data": None})
    assert (settings.data, settings.http.listen) == ("b", "3.3.3.3:3")
    assert (settings.node.silence_s_max, settings.node.cadences_max) == (10.5, 3)
    assert settings.door_settings.idle_s_max == 7


def test_trusted_proxies_are_networks() -> None:
    proxies = {
        "HELIOGRAPH_HTTP_TRUSTED_PROXIES": '["10.0.0.0/8", "::1/128"]',
        "HELIOGRAPH_DEVICES_TRUSTED_PROXIES": '["10.1.0.0/16"]',
    }
    settings = load(None, proxies, {})
    assert [str(network) for network in settings.door_settings.trusted_proxies] == ["10.0.0.0/8", "::1/128"]
    assert [str(network) for network in settings.device_settings.trusted_proxies] == ["10.1.0.0/16"]


@pytest.mark.parametrize("section", ["http", "devices"])
def test_trusted_proxies_that_are_no_networks_are_named(section: str) -> None:
    settings = load(None, {}, {f"{section}.trusted_proxies": ["10.0.0.1/8"]})
    with pytest.raises(SettingsError, match=f"{section}.trusted_proxies"):
        _ = (settings.door_settings, settings.device_settings)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("not toml", "not TOML"),
        ("surprise = 1", "surprise"),
        ("[http]\nport = 1", "port"),
        ('[node]\nsilence_s_max = "long"', "silence_s_max"),
        ("[node]\nsurprise = 1", "node.surprise"),
        ("[listener.sockets]\nsurprise = 1", "listener.sockets.surprise"),
        ("[log]\nlevel = 1", "log.level"),
        ('[log]\nformat = "xml"', "xml"),
    ],
)
def test_mistake_in_the_file_is_named(tmp_path: Path, content: str, hint: str) -> None:
    file = tmp_path / "heliograph.toml"
    file.write_text(content)
    with pytest.raises(SettingsError, match=hint):
        load(file, {}, {})


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        load(tmp_path / "nope.toml", {}, {})


def test_log_settings_come_from_the_environment_as_all_others() -> None:
    settings = load(None, {"HELIOGRAPH_LOG_TARGET": "/var/log/heliograph.log", "HELIOGRAPH_LOG_FORMAT": "json"}, {})
    assert settings.log == LogSettings(target="/var/log/heliograph.log", format="json")
    assert load(None, {}, {}).log == LogSettings(target="stderr", format="auto")


@pytest.mark.parametrize("door", [{"HELIOGRAPH_DOOR_SURPRISE": "1"}, {"HELIOGRAPH_DOOR_TRUSTED_PROXIES": "1"}])
def test_setting_that_the_door_does_not_have_is_refused(door: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="door"):
        _ = load(None, door, {}).door_settings


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8420", Address("127.0.0.1", 8420)),
        ("[::1]:0", Address("::1", 0)),
        ("host:65535", Address("host", 65535)),
    ],
)
def test_address_is_host_and_port(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["", "8420", ":8420", "host:", "host:x", "host:65536", "host:-1"])
def test_other_texts_are_no_address(text: str) -> None:
    with pytest.raises(SettingsError, match="HOST:PORT"):
        Address.parse(text)
