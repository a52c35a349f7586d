"""The project API route by route: who may, what it takes, what it answers, and what is left of it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.projects.settings import ProjectsSettings
from schemas.echo.envelope import room_key, shown_key
from schemas.echo.names import is_ulid
from schemas.echo.times import rfc3339
from tests.actors.project.quarter import Quarter
from tests.actors.space.driver import World
from tests.gateway.projects.bureau import BEARER, SETTINGS, bureau
from tests.gateway.spaces.site import PLENTY

NOBODY = "01jd0000000000000000000000"
ROUTES: list[tuple[str, str, object]] = [
    ("GET", "", None),
    ("POST", "", {"name": "n"}),
    ("GET", "/{}", None),
    ("HEAD", "/{}", None),
    ("DELETE", "/{}", None),
    ("GET", "/{}/description", None),
    ("PUT", "/{}/prompt", {"system_prompt": None}),
    ("POST", "/{}/book", {}),
    ("POST", "/{}/spaces", {}),
    ("POST", "/{}/iam", {"enabled": True}),
    ("GET", "/{}/iam/tokens", None),
    ("POST", "/{}/iam/tokens", {"scope": "kv_read"}),
    ("DELETE", "/{}/iam/tokens/x", None),
    ("POST", "/{}/iam/invites", {"scope": "kv_read"}),
]


async def test_reference_has_these_routes_and_no_others() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "projects.md").read_text()
    table = page.partition("## Routes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([A-Z]+)` \| `/api/projects([^`]*)` \|", table, re.MULTILINE)
    served = {(method, path.replace("/x", "/:token_id")) for method, path, _ in ROUTES if method != "HEAD"}
    assert {(method, path.replace(":id", "{}")) for method, path in rows} == served


# ---- who may ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
async def test_every_route_takes_the_bearer_and_nothing_else(method: str, path: str, body: object) -> None:
    async with bureau() as site:
        made = await site.create(iam_enabled=True, multi_space=True)
        given = await site.call("POST", f"/{made['project_id']}/iam/tokens", {"scope": "echo.full"})
        target = path.format(made["project_id"])
        others = (None, "", BEARER[:-1], BEARER + "b", made["app_token"], given.json["access_token"], "é" * 40)
        for bearer in others:
            answer = await site.call(method, target, body, bearer)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["access-control-allow-origin"] == "*"
        assert (await site.call("GET", f"/{made['project_id']}")).json["spaces"] == made["spaces"]
        assert (await site.call(method, target, body)).status < 500


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
async def test_without_a_configured_bearer_every_route_says_so(method: str, path: str, body: object) -> None:
    async with bureau(ProjectsSettings()) as site:
        for bearer in (None, BEARER, ""):
            answer = await site.call(method, path.format(NOBODY), body, bearer)
            assert answer.status == 503
            if method != "HEAD":
                assert answer.json["error"] == "api_auth_not_configured"


@pytest.mark.parametrize(("method", "path", "body"), [route for route in ROUTES if "{}" in route[1]])
async def test_unknown_project_is_404(method: str, path: str, body: object) -> None:
    async with bureau() as site:
        for project_id in (NOBODY, NOBODY.upper(), "x", "..", "%00"):
            answer = await site.call(method, path.format(project_id), body)
            assert answer.status == 404
            if method != "HEAD":
                assert answer.json["error"] == "project_not_found"


async def test_address_has_the_rate_of_all_requests() -> None:
    async with bureau(echo=PLENTY.__class__(enabled=True, disk_free_min=0.0, rest_burst=2)) as site:
        assert [(await site.call("GET")).status for _ in range(3)] == [200, 200, 429]
        answer = await site.call("GET", bearer="wrong")
        assert (answer.status, "retry-after" in answer.headers) == (429, True)


@pytest.mark.parametrize("path", ["", f"/{NOBODY}", f"/{NOBODY}/book", f"/{NOBODY}/nowhere"])
async def test_browsers_ask_first_without_a_bearer(path: str) -> None:
    async with bureau() as site:
        answer = await site.call("OPTIONS", path, bearer=None)
        assert answer.status == 204
        assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST, PUT, PATCH, DELETE"
        assert answer.headers["access-control-allow-headers"] == "*, Authorization"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "//",
        "/P/",
        "/P//book",
        "/P/book/",
        "/P/nope",
        "/P/iam/tokens/",
        "/P/iam/tokens/a/b",
        "/P%2Fbook",
        "/P/push/no",
    ],
)
async def test_other_paths_are_not_there(path: str) -> None:
    async with bureau() as site:
        assert (await site.call("POST", path.replace("P", NOBODY), {})).error == (404, "not_found")


async def test_other_methods_are_named() -> None:
    async with bureau() as site:
        answer = await site.call("PATCH", f"/{NOBODY}", bearer=None)
        assert (answer.error, answer.headers["allow"]) == ((405, "method_not_allowed"), "GET, DELETE, HEAD")
        answer = await site.call("DELETE", "", bearer=None)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, POST, HEAD")


# ---- creating --------------------------------------------------------------------------------------------------------


async def test_project_is_told_with_everything_that_its_operator_needs() -> None:
    async with bureau() as site:
        made = await site.create("My Board", ttl_seconds=120)
        token, space_id = made["app_token"], made["space_id"]
        ends = rfc3339(site.world.now_ms + 120_000)
        prompt = made.pop("system_prompt")
        label = made["domain"].removesuffix(".localhost")
        assert label.startswith("my-board-")
        assert made == {
            "project_id": made["project_id"],
            "name": "My Board",
            "app_name": "My Board",
            "domain": f"{label}.localhost",
            "url": f"http://{label}.localhost:8420",
            "app_token": token,
            "space_id": space_id,
            "expires_at": ends,
            "websocket_url": f"ws://localhost:8420/ws/s/{token}",
            "protocol": "json",
            "encryption_enabled": False,
            "iam_enabled": False,
            "multi_space": False,
            "spaces": [{"space_token": token, "space_id": space_id, "name": None, "expires_at": ends}],
            "created_at": rfc3339(site.world.now_ms),
        }
        assert is_ulid(made["project_id"])
        assert prompt.startswith('<ECHO_PROMPT version="1">')
        assert "<APP_PROMPT>" not in prompt
        answer = await site.call("GET", f"/{made['project_id']}")
        assert answer.json == {**made, "system_prompt": prompt}
        assert answer.headers["cache-control"] == "no-store"
        assert (await site.put(token, "k")).status == 201


async def test_project_is_as_its_wish_says() -> None:
    async with bureau() as site:
        made = await site.create(
            app_name="The App",
            domain="board.localhost",
            encryption_enabled=True,
            protocol="protobuf",
            system_prompt="Be $brief.",
            multi_space=True,
            iam_enabled=True,
        )
        assert (made["app_name"], made["domain"], made["protocol"]) == ("The App", "board.localhost", "protobuf")
        assert (made["encryption_enabled"], made["multi_space"], made["iam_enabled"]) == (True, True, True)
        assert made["encryption_key"] == shown_key(room_key(made["app_token"], made["space_id"]))
        assert made["system_prompt"].endswith("</ECHO_PROMPT>\n<APP_PROMPT>\nBe $brief.\n</APP_PROMPT>\n")
        assert (await site.put(made["app_token"], "k")).error == (401, "unauthorized")  # IAM is on from the start
        prompt = await site.ask("GET", f"/s/{made['app_token']}/prompt")
        assert prompt.body.decode() == made["system_prompt"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": 1},
        {"name": None},
        {"name": "x" * 81},
        {"name": "n", "more": 1},
        {"name": "n", "space_token": "x"},
        {"name": "n", "app_name": ""},
        {"name": "n", "domain": 7},
        {"name": "n", "domain": "x" * 300},
        {"name": "n", "protocol": "xml"},
        {"name": "n", "encryption_enabled": "on"},
        {"name": "n", "multi_space": 1},
        {"name": "n", "ttl_seconds": 59},
        {"name": "n", "ttl_seconds": 604_801},
        {"name": "n", "ttl_seconds": 60.5},
        {"name": "n", "ttl_seconds": -1},
        {"name": "n", "ttl_seconds": True},
        {"name": "n", "system_prompt": "</APP_PROMPT>"},
        {"name": "n", "system_prompt": "</ECHO_PROMPT>"},
        {"name": "n", "system_prompt": "x" * 32_769},
        [],
        b"",
        b"{",
        b"nul",
        b'{"name":"\xff"}',
        b"[" * 10_000,
        b'{"name":"\\ud800"}',
    ],
)
async def test_other_bodies_are_refused_and_nothing_is_made(body: object) -> None:
    async with bureau() as site:
        assert (await site.call("POST", "", body)).error == (400, "invalid_payload")
        assert (len(site.projects), len(site.process.spaces)) == (0, 0)


async def test_body_is_json_and_no_larger_than_others() -> None:
    async with bureau() as site:
        headers = {"authorization": f"Bearer {BEARER}"}
        answer = await site.ask("POST", "/api/projects", b'{"name":"n"}', content_type="text/plain", **headers)
        assert answer.error == (415, "unsupported_media_type")
        answer = await site.ask("POST", "/api/projects", b" " * (PLENTY.body_bytes_max + 1), **headers)
        assert answer.error == (413, "payload_too_large")
        answer = await site.ask(
            "POST", "/api/projects", b'{"name":"n"}', content_type="application/json; charset=utf-8", **headers
        )
        assert answer.status == 201


@pytest.mark.parametrize(
    "domain", ["A", "a_b", "-a", "xn--a", "www", "api.localhost", "a.b", "a.example", "", "é", "a."]
)
async def test_domain_that_no_project_may_have_is_refused(domain: str) -> None:
    async with bureau() as site:
        assert (await site.call("POST", "", {"name": "n", "domain": domain})).error == (400, "invalid_domain")


async def test_domain_is_had_once_and_free_again_when_its_project_is_deleted() -> None:
    async with bureau() as site:
        made = await site.create(domain="board")
        again = await site.call("POST", "", {"name": "n", "domain": "board.localhost"})
        assert again.error == (409, "domain_taken")
        assert (await site.call("DELETE", f"/{made['project_id']}")).status == 204
        await site.create(domain="board")


async def test_projects_have_a_limit() -> None:
    async with bureau(ProjectsSettings(api_bearer_token=BEARER, projects_max=1)) as site:
        await site.create()
        assert (await site.call("POST", "", {"name": "n"})).error == (503, "overloaded")


# ---- what there is ---------------------------------------------------------------------------------------------------


async def test_projects_are_listed_in_pages_without_what_lets_somebody_in() -> None:
    async with bureau() as site:
        ids = [(await site.create(str(number), encryption_enabled=True))["project_id"] for number in range(3)]
        first = (await site.call("GET", "?limit=2")).json
        assert [one["project_id"] for one in first["projects"]] == ids[:2]
        assert first["next_cursor"] == ids[1]
        last = (await site.call("GET", f"?limit=2&cursor={ids[1]}")).json
        assert ([one["project_id"] for one in last["projects"]], last["next_cursor"]) == (ids[2:], None)
        listed = json.dumps(first)
        for secret in ('"es_', "encryption_key", "system_prompt"):
            assert secret not in listed


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=-1", "cursor=x", "limit=1&limit=2", "limit=1234567890"])
async def test_malformed_page_is_refused(query: str) -> None:
    async with bureau() as site:
        assert (await site.call("GET", f"?{query}")).error == (400, "invalid_payload")


async def test_description_has_the_secrets_and_is_kept_nowhere() -> None:
    async with bureau() as site:
        made = await site.create(
            "My $Board", encryption_enabled=True, multi_space=True, system_prompt="Be ```brief```."
        )
        answer = await site.call("GET", f"/{made['project_id']}/description")
        assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        text = answer.body.decode()
        assert text.startswith("# My $Board\n")
        for part in (made["app_token"], made["encryption_key"], made["url"], made["project_id"], "Be ```brief```."):
            assert part in text


async def test_room_that_is_over_has_no_token_and_the_rest_is_told() -> None:
    async with bureau() as site:
        made = await site.create(ttl_seconds=60, encryption_enabled=True, system_prompt="Be brief.")
        site.world.now_ms += 60_000
        now = (await site.call("GET", f"/{made['project_id']}")).json
        nothing = {"app_token": None, "expires_at": None, "websocket_url": None}
        space = {"space_token": None, "space_id": made["space_id"], "name": None, "expires_at": None}
        expected = {**made, **nothing, "spaces": [space], "system_prompt": "<APP_PROMPT>\nBe brief.\n</APP_PROMPT>\n"}
        del expected["encryption_key"]
        assert now == expected
        text = (await site.call("GET", f"/{made['project_id']}/description")).body.decode()
        assert made["app_token"] not in text
        assert (await site.call("POST", f"/{made['project_id']}/iam", {"enabled": True})).error == (
            404,
            "space_not_found",
        )
        booked = (await site.call("POST", f"/{made['project_id']}/book")).json
        assert booked["expires_at"] == rfc3339(site.world.now_ms + 604_800_000)


# ---- prompt ----------------------------------------------------------------------------------------------------------


async def test_prompt_is_set_and_taken_back() -> None:
    async with bureau() as site:
        made = await site.create()
        path = f"/{made['project_id']}/prompt"
        answer = await site.call("PUT", path, {"system_prompt": "Be <b>brief</b>."})
        assert answer.status == 200
        assert answer.json == {
            "system_prompt": made["system_prompt"] + "<APP_PROMPT>\nBe <b>brief</b>.\n</APP_PROMPT>\n"
        }
        prompt = await site.ask("GET", f"/s/{made['app_token']}/prompt")
        assert prompt.body.decode() == answer.json["system_prompt"]
        answer = await site.call("PUT", path, {"system_prompt": None})
        assert answer.json == {"system_prompt": made["system_prompt"]}


async def test_prompt_is_text_on_the_page_of_the_room() -> None:
    async with bureau() as site:
        made = await site.create(system_prompt="<script>alert(1)</script>")
        page = await site.ask("GET", f"/s/{made['app_token']}", accept="text/html")
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.body.decode()
        assert "<script>alert" not in page.body.decode()


@pytest.mark.parametrize(
    "body", [{}, {"system_prompt": 1}, {"system_prompt": "</app_prompt>"}, {"system_prompt": "x", "more": 1}, []]
)
async def test_other_prompts_are_refused(body: object) -> None:
    async with bureau() as site:
        made = await site.create(system_prompt="first")
        path = f"/{made['project_id']}"
        assert (await site.call("PUT", f"{path}/prompt", body)).error == (400, "invalid_payload")
        assert (await site.call("GET", path)).json["system_prompt"] == made["system_prompt"]


# ---- rooms -----------------------------------------------------------------------------------------------------------


async def test_booked_room_is_empty_and_the_old_token_is_unknown() -> None:
    async with bureau() as site:
        made = await site.create(system_prompt="Be brief.")
        await site.put(made["app_token"], "k", "old")
        answer = await site.call("POST", f"/{made['project_id']}/book", {})
        assert answer.status == 200
        booked = answer.json
        assert booked["app_token"] != made["app_token"]
        assert booked["space_id"] != made["space_id"]
        assert "Be brief." in booked["system_prompt"]
        changing = ("app_token", "space_id", "websocket_url", "spaces", "system_prompt", "expires_at")
        assert {key: booked[key] for key in booked if key not in changing} == {
            key: made[key] for key in made if key not in changing
        }
        old = await site.ask("GET", f"/api/s/{made['app_token']}/kv/k")
        assert old.error == (404, "space_not_found")
        assert (await site.ask("GET", f"/api/s/{booked['app_token']}/kv/k")).error == (404, "key_not_found")


async def test_further_rooms_are_for_projects_that_have_several() -> None:
    async with bureau() as site:
        one, several = await site.create(), await site.create(multi_space=True)
        refused = await site.call("POST", f"/{one['project_id']}/spaces", {})
        assert refused.error == (409, "multi_space_disabled")
        answer = await site.call("POST", f"/{several['project_id']}/spaces", {"name": "two", "ttl_seconds": 60})
        assert answer.status == 201
        first, second = answer.json["spaces"]
        assert first == several["spaces"][0]
        assert (second["name"], second["expires_at"]) == ("two", rfc3339(site.world.now_ms + 60_000))
        assert (await site.put(second["space_token"], "k")).status == 201
        token = second["space_token"]
        booked = await site.call("POST", f"/{several['project_id']}/book", {"space_token": token})
        assert booked.json["spaces"][0] == first
        assert booked.json["spaces"][1]["name"] == "two"
        assert booked.json["spaces"][1]["space_token"] != token
        site.world.now_ms += 604_800_000 - 1
        assert len((await site.call("GET", f"/{several['project_id']}")).json["spaces"]) == 2
        site.world.now_ms += 1
        assert len((await site.call("GET", f"/{several['project_id']}")).json["spaces"]) == 1  # its place waits


@pytest.mark.parametrize("body", [{"space_token": 1}, {"space_token": "x" * 129}, {"name": "x"}, [], b"{"])
async def test_other_bookings_are_refused(body: object) -> None:
    async with bureau() as site:
        made = await site.create()
        path = f"/{made['project_id']}"
        assert (await site.call("POST", f"{path}/book", body)).error == (400, "invalid_payload")
        assert (await site.call("GET", path)).json == made


async def test_rooms_of_others_are_not_booked() -> None:
    async with bureau() as site:
        made, other, loose = await site.create(), await site.create(), await site.make()
        path = f"/{made['project_id']}/book"
        for token in (other["app_token"], loose["token"], "es_x", ""):
            assert (await site.call("POST", path, {"space_token": token})).error == (404, "space_not_found")
        assert (await site.call("GET", f"/{other['project_id']}")).json == other


@pytest.mark.parametrize("body", [{"name": ""}, {"name": "x" * 81}, {"ttl_seconds": 1}, {"more": 1}])
async def test_other_rooms_are_refused(body: object) -> None:
    async with bureau() as site:
        made = await site.create(multi_space=True)
        answer = await site.call("POST", f"/{made['project_id']}/spaces", body)
        assert answer.error == (400, "invalid_payload")
        assert len(site.process.spaces) == 1


async def test_owner_of_a_room_cannot_claim_it_and_nobody_else_switches_its_iam_on() -> None:
    async with bureau() as site:
        made = await site.create()
        api = f"/api/s/{made['app_token']}"
        for bearer in (BEARER, "ei_" + "A" * 43):
            assert (await site.ask("DELETE", api, authorization=f"Bearer {bearer}")).error == (401, "unauthorized")


# ---- deletion and restarts -------------------------------------------------------------------------------------------


async def test_deleted_project_is_gone_with_its_rooms() -> None:
    async with bureau() as site:
        made = await site.create(multi_space=True)
        more = (await site.call("POST", f"/{made['project_id']}/spaces", {})).json
        answer = await site.call("DELETE", f"/{made['project_id']}")
        assert (answer.status, answer.body) == (204, b"")
        for space in more["spaces"]:
            assert (await site.ask("GET", f"/api/s/{space['space_token']}/kv")).error == (404, "space_not_found")
        assert (await site.call("DELETE", f"/{made['project_id']}")).error == (404, "project_not_found")
        assert (await site.call("GET")).json == {"projects": [], "next_cursor": None}


async def test_projects_are_as_before_after_a_restart() -> None:
    quarter = Quarter(World(PLENTY), SETTINGS)
    async with bureau(quarter=quarter) as site:
        made = await site.create(multi_space=True, encryption_enabled=True, system_prompt="Be brief.")
        await site.put(made["app_token"], "k")
        path = f"/{made['project_id']}"
        await site.call("POST", f"{path}/spaces", {"name": "two"})
        before = (await site.call("POST", f"{path}/book")).json
    async with bureau(quarter=quarter) as site:
        assert (await site.call("GET", path)).json == before
        await site.call("DELETE", path)
    async with bureau(quarter=quarter) as site:
        assert (await site.call("GET", path)).error == (404, "project_not_found")
        assert len(site.process.spaces) == 0


async def test_full_disk_is_said_and_nothing_is_half_made() -> None:
    async with bureau() as site:
        made = await site.create()
        site.world.log_disk.is_full = True
        path = f"/{made['project_id']}"
        bodies: list[tuple[str, str, Any]] = [
            ("POST", "", {"name": "n"}),
            ("POST", f"{path}/book", {}),
            ("PUT", f"{path}/prompt", {"system_prompt": "x"}),
            ("POST", f"{path}/iam", {"enabled": True}),
            ("DELETE", path, None),
        ]
        for method, target, body in bodies:
            assert (await site.call(method, target, body)).error == (503, "storage_not_ready")
        site.world.log_disk.is_full = False
        assert (await site.call("GET", path)).json == made


# ---- what others add -------------------------------------------------------------------------------------------------


async def test_other_parts_add_routes_below_a_project() -> None:
    seen: list[tuple[str, str, str]] = []

    def extend(feature: Any) -> None:
        def handler(what: str) -> Any:
            async def handle(exchange: Any, project_id: str, name: str) -> None:
                seen.append((what, project_id, name))
                await exchange.no_content()

            return handle

        feature.table.add(
            {
                "static": {"GET": handler("list")},
                "static/presign": {"POST": handler("presign")},
                "static/*": {"PUT": handler("put"), "DELETE": handler("delete")},
            }
        )
        with pytest.raises(ValueError, match="two parts"):
            feature.table.add({"book": {}})

    async with bureau(extend=extend) as site:
        for method, path in (
            ("GET", "static"),
            ("POST", "static/presign"),
            ("PUT", "static/presign"),
            ("PUT", "static/a/b%20c.html"),
            ("PUT", "static/a%2Fb"),
            ("DELETE", "static/"),
        ):
            assert (await site.call(method, f"/p/{path}")).status == 204
        assert seen == [
            ("list", "p", ""),
            ("presign", "p", ""),
            ("put", "p", "presign"),
            ("put", "p", "a/b c.html"),
            ("put", "p", "a/b"),
            ("delete", "p", ""),
        ]
        assert (await site.call("GET", "/p/static/x")).headers["allow"] == "PUT, DELETE"
        assert (await site.call("PUT", "/p/static/x", bearer=None)).status == 401
