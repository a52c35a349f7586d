"""Settings: from file, environment and flags, the last one wins; a mistake says what it is."""

from dataclasses import is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest

from actors.space.store import DEFAULT_LIMITS, SpaceStoreLimits
from gateway.main.command_variables import FOR_COMMANDS
from gateway.main.settings import Address, Settings, SettingsError, UnixAddress, load
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


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("a = " + "[" * 5_000 + "]" * 5_000, "nested too deep"),
        ("[stream]\nstreams_max = " + "9" * 5_000, "thousands of digits"),
        ('data = "a\\u0000b"', "data has a NUL"),
        ('[http]\ntls_certificate = "a\\u0000b"', "http.tls_certificate has a NUL"),
        ("[stream]\nping_s = nan", "stream.ping_s is not a number"),
        ("[listener.sockets]\nclose_s_max = -nan", "listener.sockets.close_s_max is not a number"),
    ],
)
def test_file_made_to_upset_its_parser_is_a_mistake_like_others(tmp_path: Path, content: str, hint: str) -> None:
    file = tmp_path / "heliograph.toml"
    file.write_text(content)
    with pytest.raises(SettingsError, match=hint):
        load(file, {}, {})


@pytest.mark.parametrize("value", ["[" * 5_000, "9" * 5_000])
def test_variable_made_to_upset_its_parser_is_text(value: str) -> None:
    assert load(None, {"HELIOGRAPH_DATA": value}, {}).data == value


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        load(tmp_path / "nope.toml", {}, {})


def test_log_settings_come_from_the_environment_as_all_others() -> None:
    settings = load(None, {"HELIOGRAPH_LOG_TARGET": "/var/log/heliograph.log", "HELIOGRAPH_LOG_FORMAT": "json"}, {})
    assert settings.log == LogSettings(target="/var/log/heliograph.log", format="json")
    assert load(None, {}, {}).log == LogSettings(target="stderr", format="auto")


def numbers(kind: type) -> list[tuple[str, str]]:
    """Section and name of every setting of that kind."""
    sections = {name: section for name, section in get_type_hints(Settings).items() if is_dataclass(section)}
    hints = ((section, get_type_hints(made_of)) for section, made_of in sections.items())
    return [(section, name) for section, names in hints for name, hint in names.items() if hint is kind]


@pytest.mark.parametrize(("section", "name"), numbers(int))
def test_integer_is_an_integer_in_every_section_of_file_and_environment(
    tmp_path: Path, section: str, name: str
) -> None:
    file = tmp_path / "heliograph.toml"
    for value in ("1.5", "3.0", '"3"', "true", "nan"):
        file.write_text(f"[{section}]\n{name} = {value}\n")
        with pytest.raises(SettingsError, match=rf"Expected `int`.*{section}\.{name}"):
            load(file, {}, {})
        with pytest.raises(SettingsError, match=rf"Expected `int`.*{section}\.{name}"):
            load(None, {f"HELIOGRAPH_{section}_{name}".upper(): value}, {})


@pytest.mark.parametrize(("section", "name"), numbers(float))
def test_float_may_be_given_as_an_integer(tmp_path: Path, section: str, name: str) -> None:
    file = tmp_path / "heliograph.toml"
    file.write_text(f"[{section}]\n{name} = 7\n")
    for settings in (load(file, {}, {}), load(None, {f"HELIOGRAPH_{section}_{name}".upper(): "7"}, {})):
        given = getattr(getattr(settings, section), name)
        assert (given, type(given)) == (7.0, float)


def test_sections_with_numbers_are_all_held_to_that() -> None:
    assert {"door", "node", "listener", "mcp", "stream", "upstreams"} <= {section for section, _ in numbers(int)}


def test_limits_of_the_door_reach_it() -> None:
    settings = load(None, {"HELIOGRAPH_DOOR_HEAD_BYTES_MAX": "100"}, {})
    assert settings.door_settings.head_bytes_max == 100


def test_unknown_name_is_refused_with_what_there_is() -> None:
    with pytest.raises(SettingsError, match=r"there is no door.head_bytes; there are .*head_bytes_max, head_s_max"):
        load(None, {"HELIOGRAPH_DOOR_HEAD_BYTES": "100"}, {})


def test_variable_is_text_where_text_is_wanted_and_a_word_where_a_boolean_is() -> None:
    given = {"HELIOGRAPH_DATA": "2026", "HELIOGRAPH_HTTP_METRICS_OPEN": "1", "HELIOGRAPH_LOG_TARGET": '"a file"'}
    settings = load(None, given, {})
    assert (settings.data, settings.http.metrics_open, settings.log.target) == ("2026", True, "a file")


def test_empty_data_is_the_default_folder_and_never_the_current_one() -> None:
    assert load(None, {"HELIOGRAPH_DATA": ""}, {}).data_path == Path("heliograph-data")


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


@pytest.mark.parametrize("host", ["a..b", "a" * 64, ".a"])
def test_host_that_no_name_can_be_is_refused_where_it_is_read(host: str) -> None:
    with pytest.raises(SettingsError, match="more than 63"):
        Address.parse(f"{host}:80")


def test_path_of_a_unix_socket_that_the_kernel_would_not_take_is_refused_where_it_is_read() -> None:
    longest = "/" + "a" * 106
    assert UnixAddress.parse(f"unix:{longest}") == UnixAddress(Path(longest))
    with pytest.raises(SettingsError, match="at most 107 bytes"):
        UnixAddress.parse(f"unix:{longest}a")


def test_every_limit_of_the_contract_of_spaces_is_a_setting_with_its_default() -> None:
    """The table of the contract's §11, and the rates of its §3 but for upgrades."""
    expected = {
        "room_ttl_s": 604_800, "value_bytes_max": 262_144, "body_bytes_max": 294_912, "file_bytes_max": 10_485_760,
        "files_bytes_max": 104_857_600, "keys_max": 1_024, "kv_bytes_max": 16 * 2**20, "files_max": 1_000,
        "message_bytes_max": 65_536, "frames_per_s_max": 50, "room_frames_per_s_max": 500, "burst_factor": 2,
        "connections_max": 256, "spaces_max": 10_000, "enabled": False, "create_password": None,
        "total_bytes_max": 10 * 2**30, "disk_free_min": 0.1, "service_name": "kisko-echo",
        "rest_burst": 120, "rest_per_s": 20, "room_rest_burst": 600, "room_rest_per_s": 100, "creations_burst": 10,
        "creations_per_h": 10, "passwords_burst": 10, "passwords_per_min": 10, "unknown_tokens_burst": 30,
        "unknown_tokens_per_min": 30,
    }  # fmt: skip
    echo = load(None, {}, {}).echo
    assert {name: getattr(echo, name) for name in expected} == expected


def test_every_limit_of_the_store_of_spaces_that_is_a_setting_reaches_it() -> None:
    assert load(None, {}, {}).echo.store_limits == DEFAULT_LIMITS
    names = set(SpaceStoreLimits.__struct_fields__) - {"page_keys_max", "read_bytes_max"}  # each follows from another
    given = {f"HELIOGRAPH_ECHO_{name.upper()}": str(number) for number, name in enumerate(sorted(names), 101)}
    limits = load(None, {**given, "HELIOGRAPH_ECHO_LIST_KEYS_MAX": "7"}, {}).echo.store_limits
    assert {name: getattr(limits, name) for name in names} == {
        name: number for number, name in enumerate(sorted(names), 101)
    }
    assert limits.page_keys_max == 7


@pytest.mark.parametrize("password", ["correct horse", "12345678", "true", "päss", '"', "[a]"])
def test_password_of_spaces_comes_from_the_environment_and_is_in_no_dump(password: str) -> None:
    settings = load(None, {"HELIOGRAPH_ECHO_CREATE_PASSWORD": password}, {})
    assert settings.echo.create_password == password
    for dump in (repr(settings), str(settings.echo), f"{settings}"):
        assert "create_password" not in dump


def test_empty_password_of_spaces_is_a_mistake_and_a_wrong_one_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="create_password"):
        load(None, {"HELIOGRAPH_ECHO_CREATE_PASSWORD": ""}, {})
    file = tmp_path / "heliograph.toml"
    file.write_text("[echo]\ncreate_password = 987654321\n")
    with pytest.raises(SettingsError, match="create_password") as error:
        load(file, {}, {})
    assert "987654321" not in str(error.value)


def test_redirects_of_sign_in_are_lists_of_schemes_and_hosts() -> None:
    given = {
        "HELIOGRAPH_OAUTH_REDIRECT_SCHEMES": '["cursor"]',
        "HELIOGRAPH_OAUTH_REDIRECT_HOSTS": '["claude.ai"]',
        "HELIOGRAPH_OAUTH_REGISTRATION": "false",
    }
    oauth = load(None, given, {}).oauth
    assert (oauth.redirect_schemes, oauth.redirect_hosts, oauth.registration) == (("cursor",), ("claude.ai",), False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SCHEMES", '["javascript"]'), ("SCHEMES", '["https"]'), ("SCHEMES", '["Cursor"]'), ("SCHEMES", '["cursor:"]'),
        ("HOSTS", '["https://claude.ai"]'), ("HOSTS", '["claude.ai:443"]'), ("HOSTS", '["Claude.ai"]'),
        ("HOSTS", '["*"]'),
    ],
)  # fmt: skip
def test_redirects_of_sign_in_that_could_never_be_meant_stop_the_start(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"oauth.redirect_{name.lower()}"):
        load(None, {f"HELIOGRAPH_OAUTH_REDIRECT_{name}": value}, {})


def test_variables_of_commands_are_no_settings() -> None:
    assert load(None, dict.fromkeys(FOR_COMMANDS, "x"), {}) == load(None, {}, {})


def test_bearer_of_the_project_api_is_shared_with_commands() -> None:
    bearers = {"API_BEARER_TOKEN": "a" * 32, "HELIOGRAPH_API_BEARER_TOKEN": "b" * 32}
    for environment in (bearers, dict(reversed(bearers.items()))):
        assert load(None, environment, {}).projects.api_bearer_token == "b" * 32
    by_section = {**bearers, "HELIOGRAPH_PROJECTS_API_BEARER_TOKEN": "c" * 32}
    assert load(None, by_section, {}).projects.api_bearer_token == "c" * 32
    assert load(None, {"API_BEARER_TOKEN": "a" * 32}, {}).projects.api_bearer_token == "a" * 32


def test_some_variables_go_by_bare_names_too_and_those_with_the_prefix_win() -> None:
    bare = {"MCP_ENABLED": "false", "MCP_RELAX_ORIGIN": "true", "LOG_MCP": "1", "MCP_SESSIONS_MAX": "3"}
    settings = load(None, bare, {})
    assert (settings.mcp.enabled, settings.mcp.relax_origin, settings.log.mcp) == (False, True, True)
    assert settings.mcp.sessions_max == 10_000  # not one of them
    prefixed = {"HELIOGRAPH_MCP_ENABLED": "true", "HELIOGRAPH_LOG_MCP": "false"}
    for environment in ({**bare, **prefixed}, {**prefixed, **bare}):
        settings = load(None, environment, {})
        assert (settings.mcp.enabled, settings.mcp.relax_origin, settings.log.mcp) == (True, True, False)
    assert load(None, bare, {"mcp.enabled": True}).mcp.enabled
    with pytest.raises(SettingsError, match="mcp"):
        load(None, {"MCP_ENABLED": "perhaps"}, {})
