"""The section `[projects]`: which bearers stop a start, and that none is repeated anywhere."""

import re

import pytest

from gateway.main.settings import SettingsError, load
from gateway.projects.opening import host_of, is_same_site
from gateway.projects.service_text import service_text
from gateway.projects.settings import ProjectsSettings, bearer_fault
from schemas.echo.project_tools import PROJECT_TOOLS

GOOD = "0123456789abcdef" * 2


@pytest.mark.parametrize("token", [GOOD, "!" * 32, "~" * 500, f"{GOOD}.b", f"{GOOD}.b.c.d", f"x_{GOOD}", f"ES_{GOOD}"])
def test_bearer_has_32_visible_characters(token: str) -> None:
    assert bearer_fault(token) is None
    assert load(None, {"API_BEARER_TOKEN": token}, {}).projects.api_bearer_token == token


@pytest.mark.parametrize(
    "token",
    ["", "short", GOOD[:31], GOOD + " ", "é" * 40, GOOD + "\x7f", f"{GOOD}.b.c", ".." + GOOD]
    + [f"{prefix}_{GOOD}" for prefix in ("es", "ea", "er", "ei", "ec")],
)
def test_other_bearers_stop_the_start_and_are_not_repeated(token: str) -> None:
    with pytest.raises(SettingsError, match="API_BEARER_TOKEN") as stopped:
        load(None, {"API_BEARER_TOKEN": token}, {})
    assert len(token) < 6 or token not in str(stopped.value)


def test_variable_with_the_prefix_wins_and_digits_stay_text() -> None:
    digits = "1" * 40
    names = {"API_BEARER_TOKEN": GOOD, "HELIOGRAPH_PROJECTS_API_BEARER_TOKEN": digits}
    settings = load(None, names, {})
    assert settings.projects.api_bearer_token == digits
    assert digits not in repr(settings)


@pytest.mark.parametrize("name", ["presign_s", "list_projects_max", "projects_max", "objects_max", "site_bytes_max"])
def test_limits_are_at_least_one(name: str) -> None:
    with pytest.raises(SettingsError, match="at least 1"):
        load(None, {}, {f"projects.{name}": 0})


def test_suffix_is_a_hostname() -> None:
    assert load(None, {"HELIOGRAPH_PROJECTS_SITE_SUFFIX": "sites.example"}, {}).projects.site_suffix == "sites.example"
    with pytest.raises(SettingsError, match="site_suffix"):
        load(None, {}, {"projects.site_suffix": "https://sites.example"})
    assert ProjectsSettings().site_suffix == "localhost"


def test_description_of_the_service_says_whether_there_is_a_bearer_and_not_which() -> None:
    offered = service_text(ProjectsSettings(api_bearer_token=GOOD, site_suffix="sites.example"))
    assert "LABEL.sites.example" in offered
    assert "offers the project API" in offered
    assert GOOD not in offered
    assert "api_auth_not_configured" in service_text(ProjectsSettings())


def test_description_of_the_service_has_the_operators_tools_where_there_is_an_operator() -> None:
    settings = ProjectsSettings(api_bearer_token=GOOD)
    told = service_text(settings, "https://gw.example")
    assert "`https://gw.example/mcp` is an *operator session*" in told
    for name, tool in PROJECT_TOOLS.items():
        (arguments,) = re.findall(rf"^\| `{name}` \| [^|]* \| (.*) \|$", told, re.MULTILINE)
        needed, _, others = arguments.partition("; ")
        schema = tool.listed["inputSchema"]
        assert re.findall(r"`(\w+)`", needed) == schema["required"]
        assert re.findall(r"`(\w+)`", needed + others) == list(schema["properties"])
    for without in (service_text(settings, has_mcp=False), service_text(ProjectsSettings())):
        assert "echo_project_" not in without


@pytest.mark.parametrize(
    ("base", "suffix", "is_warned"),
    [
        ("https://gw.example", "gw.example", True),
        ("https://gw.example:8443", "sites.gw.example", True),
        ("https://GW.example", "example", True),
        ("https://gw.example", "sites.test", False),
        ("https://gw.example", "xgw.example", False),
        ("http://localhost:8420", "localhost", False),
    ],
)
def test_suffix_that_shares_a_domain_with_the_gateway_is_noticed(base: str, suffix: str, is_warned: bool) -> None:
    assert is_same_site(host_of(base), suffix) is is_warned
