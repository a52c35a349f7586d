"""The document itself: whole, held to its standard by a linter, and of what is served, no more and no less."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from gateway.api.operations import AGENTS, EVERYBODY
from gateway.identity.members.operations import JOINING
from gateway.identity.oauth.operations import OAUTH
from gateway.mcp.views import VIEWS
from gateway.net.error_forms import DEVICE
from gateway.net.operation import Operation, check, chosen
from gateway.projects.operations import PROJECTS
from gateway.push.operations import PROJECT_PUSH
from gateway.spaces.operations import ENTRANCE, REST, ROOM
from tests.gateway.api.client import new_id
from tests.gateway.openapi import reference
from tests.gateway.openapi.documented import operations
from tests.gateway.openapi.served import EVERYTHING, Served, served

_OF_MCP = [view.path for view in VIEWS]
SENTENCE = re.compile(r"[A-Z`/].*\.", re.DOTALL)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("gateway"), **EVERYTHING) as one:
        one.document = one.ask("GET", "/openapi.json").json
        yield one


def test_linter_finds_nothing(gateway: Served) -> None:
    assert [str(error) for error in OpenAPIV31SpecValidator(gateway.document).iter_errors()] == []


def test_style(gateway: Served) -> None:
    document = gateway.document
    every = list(operations(document))
    assert len({one.id for one in every}) == len(every)
    tags = {tag["name"] for tag in document["tags"]}
    for one in every:
        assert SENTENCE.fullmatch(one.operation["summary"]), one.id
        assert set(one.operation["tags"]) <= tags
        assert one.operation["security"], f"{one.id} does not say who may"
        assert any(int(status) < 400 for status in one.operation["responses"]), one.id
        for status, response in one.responses().items():
            assert SENTENCE.fullmatch(response["description"]), (one.id, status)
    used = re.findall(r"#/components/(\w+)/([\w.-]+)", repr(document))
    for kind in ("schemas", "responses"):
        assert {name for found, name in used if found == kind} == document["components"][kind].keys()


def test_every_description_is_used_where_everything_is_on(gateway: Served) -> None:
    served_here = {f"{one.method} {one.path}" for one in operations(gateway.document)}
    for described in (AGENTS, EVERYBODY, ROOM, REST, ENTRANCE, PROJECTS, PROJECT_PUSH, OAUTH, JOINING):
        assert {name.replace("*}", "}") for name in described} <= served_here


def test_methods_of_a_path_are_those_that_its_405_allows(gateway: Served) -> None:
    names, session = gateway.names(), gateway.session(gateway.operator())
    of_path: dict[str, set[str]] = {}
    for one in operations(gateway.document):
        of_path.setdefault(one.path, set()).add(one.method)
    for path, methods in of_path.items():
        target = path
        for name, value in {**names, "asset": _asset(gateway, path)}.items():
            target = target.replace(f"{{{name}}}", value)
        headers = {"Authorization": f"Bearer {gateway.operator()}", "Cookie": session, "Origin": gateway.origin}
        refused = gateway.ask("TRACE", target, headers)
        if path in _OF_MCP:  # who asks is looked at before what for
            assert refused.status == 401, path
            continue
        assert refused.status == 405, (path, refused)
        allowed = {word.strip() for word in refused.headers["allow"].split(",")}
        if path.startswith("/oauth/assets") or "/static/" in path:
            allowed &= methods
        assert allowed - {"HEAD"} == methods, path


def _asset(gateway: Served, path: str) -> str:
    for one in operations(gateway.document):
        if one.path == path and "asset" in one.parameters("path"):
            return str(one.parameters("path")["asset"]["enum"][0])
    return ""


@pytest.mark.parametrize(
    ("settings", "absent"),
    [
        (
            {"echo.enabled": False, "audit.enabled": False},
            ("/api/", "/s/", "/ws/", "/spaces", "/upload/", "/admin/spaces", "/admin/audit"),
        ),
        (
            {"admin.listen": "127.0.0.1:0", "oauth.registration": False},
            ("/admin/", "/console", "/metrics", "/oauth/register"),
        ),
        ({"mcp.enabled": False}, ("/oauth/authorize", "/join")),
    ],
    ids=str,
)
def test_what_is_off_is_not_in_the_document(tmp_path: Path, settings: dict[str, Any], absent: tuple[str, ...]) -> None:
    on = {name: value for name, value in EVERYTHING.items() if settings.get("echo.enabled", True)}
    with served(tmp_path, **{**on, **settings}) as one:
        document = one.ask("GET", "/openapi.json").json
        assert [path for path in document["paths"] if path.startswith(absent)] == []
        assert [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
        if "admin.listen" in settings:
            assert "http.listen" in document["servers"][0]["description"]
            one.port = int((one.live.gateway.admin or "").rpartition(":")[2])
            of_operators = one.ask("GET", "/openapi.json").json
            assert {"/admin/mint", "/console", "/metrics", "/openapi.json"} <= of_operators["paths"].keys()
            assert of_operators["paths"].keys() & document["paths"].keys() == {"/openapi.json"}
            assert "admin.listen" in of_operators["servers"][0]["description"]


def test_reference_of_http_has_the_tables_of_the_document(gateway: Served) -> None:
    assert reference.PAGE.read_text().partition(reference.MARK)[2] == "\n" + reference.tables(gateway.document)


def test_document_is_kept_by_its_tag_and_open_to_pages(gateway: Served) -> None:
    answer = gateway.ask("GET", "/openapi.json")
    assert answer.headers["access-control-allow-origin"] == "*"
    again = gateway.ask("GET", "/openapi.json", {"If-None-Match": answer.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert gateway.ask("POST", "/openapi.json").headers["allow"] == "GET, HEAD"


# ---- the join of routes and descriptions -----------------------------------------------------------------------------


def _of(name: str) -> dict[str, Operation]:
    return {name: Operation(summary="It.", tag="Any", form=DEVICE, answers={})}


async def _answer(_: object) -> None:
    raise NotImplementedError(new_id())


@pytest.mark.parametrize(
    ("routes", "described", "text"),
    [
        ({"/a": ("GET", _answer)}, {}, "/a is not described"),
        ({"/a": ("GET", _answer)}, _of("POST /a"), "/a is not described, or otherwise"),
        ({"/a/*": ("*", _answer)}, {}, "nothing below the route /a/"),
        ({}, _of("GET /a"), "there is no route /a"),
        ({"/a/{}": ("GET", _answer)}, {**_of("GET /a/{x}"), **_of("GET /a/{x}/b")}, "there is no route /a/{}/b"),
    ],
)
def test_route_without_description_and_description_without_route_stop_the_start(
    routes: Any, described: dict[str, Operation], text: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        check(routes, described)


def test_entry_of_a_table_without_description_stops_the_start() -> None:
    with pytest.raises(ValueError, match="POST /a is not described"):
        chosen([("POST", "/a")], _of("GET /a"))
