"""`heliograph site` and `heliograph project` against a whole gateway."""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.commands import site_upload
from gateway.commands.project_client import ProjectApi
from gateway.commands.site_plan_rules import wait_s
from schemas.echo.names import is_ulid
from tests.certificates import write_certificate
from tests.gateway.commands.space_site import Said, Site
from tests.gateway.commands.space_site import site as space_site
from tests.gateway.commands.test_site_folder import put

BEARER = "a-bearer-of-the-project-api-that-is-long-enough"
Capsys = pytest.CaptureFixture[str]


class Studio:
    """Somebody with a folder, at a terminal where the bearer is in the environment."""

    def __init__(self, one: Site, folder: Path) -> None:
        self.one = one
        self.folder = folder
        self.pages = folder / "assets"

    async def run(self, *arguments: str, stdin: bytes = b"") -> Said:
        return await self.one.run(*arguments, stdin=stdin)

    async def deploy(self, *options: str) -> Said:
        return await self.run("site", "deploy", "assets", *options)

    async def listed(self) -> dict[str, str]:
        said = await self.run("site", "ls", "--json")
        assert said.code == 0, said
        return {file["path"]: file["sha256"] for file in said.json}

    @property
    def project_id(self) -> str:
        return (self.folder / ".echo-project").read_text().strip()


@asynccontextmanager
async def studio(
    folder: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> AsyncIterator[Studio]:
    more = {"projects.api_bearer_token": BEARER, "echo.rest_burst": 10_000, **settings}
    async with space_site(folder, capsys, monkeypatch, **more) as one:
        monkeypatch.setenv("API_BEARER_TOKEN", BEARER)
        monkeypatch.setenv("HELIOGRAPH_URL", one.base)
        put(folder / "assets", index_dot_html="<h1>hello</h1>", css__site_dot_css="h1 {}", logo_dot_svg="<svg/>")
        yield Studio(one, folder)


async def test_first_deploy_makes_a_project_and_later_ones_send_what_changed(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio(tmp_path, capsys, monkeypatch) as one:
        said = await one.deploy("--domain", "shop")
        assert (said.code, said.err) == (0, "")
        *uploaded, counts, url = said.out.splitlines()
        assert sorted(uploaded) == ["uploaded css/site.css", "uploaded index.html", "uploaded logo.svg"]
        assert uploaded[-1] == "uploaded index.html"
        assert counts == "3 uploaded, 0 unchanged"
        assert url == f"http://shop.localhost:{one.one.base.rpartition(':')[2]}"
        assert is_ulid(one.project_id)

        again = await one.deploy()
        assert again.out.splitlines() == ["0 uploaded, 3 unchanged", url]
        put(one.pages, index_dot_html="<h1>changed</h1>", new_dot_js="1")
        (one.pages / "logo.svg").unlink()
        third = await one.deploy()
        assert third.out.splitlines() == ["uploaded new.js", "uploaded index.html", "2 uploaded, 1 unchanged", url]
        assert set(await one.listed()) == {"css/site.css", "index.html", "logo.svg", "new.js"}
        pruned = await one.deploy("--prune")
        assert pruned.out.splitlines() == ["deleted logo.svg", "0 uploaded, 3 unchanged, 1 deleted", url]
        assert await one.listed() == {
            path: hashlib.sha256((one.pages / path).read_bytes()).hexdigest()
            for path in ("css/site.css", "index.html", "new.js")
        }
        assert len((await one.run("project", "ls", "--json")).json) == 1


async def test_what_stays_at_home_is_said_and_is_not_there(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio(tmp_path, capsys, monkeypatch) as one:
        put(tmp_path, _dot_gitignore="*.map\n", assets__a_dot_map="", assets__bin__deploy="", assets___dot_env="S=1")
        said = await one.deploy()
        assert "3 uploaded, 0 unchanged; left out: 1 hidden, 1 tools, 1 ignored by .gitignore" in said.out
        assert set(await one.listed()) == {"css/site.css", "index.html", "logo.svg"}


async def test_current_folder_is_published_without_the_file_that_names_its_project(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio(tmp_path, capsys, monkeypatch) as one:
        monkeypatch.chdir(one.pages)
        said = await one.run("site", "deploy", ".")
        assert said.code == 0, said
        assert (one.pages / ".echo-project").exists()
        assert set(await one.listed()) == {"css/site.css", "index.html", "logo.svg"}
        monkeypatch.chdir(tmp_path)
        assert "0 uploaded, 3 unchanged" in (await one.deploy()).out


async def test_dry_run_does_nothing(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    async with studio(tmp_path, capsys, monkeypatch) as one:
        said = await one.deploy("--dry-run")
        assert said.out.splitlines() == [
            "would create a project",
            "would upload css/site.css",
            "would upload logo.svg",
            "would upload index.html",
            "0 unchanged",
        ]
        assert not (tmp_path / ".echo-project").exists()
        assert (await one.run("project", "ls", "--json")).json == []
        await one.deploy()
        (one.pages / "logo.svg").unlink()
        put(one.pages, index_dot_html="new")
        before = await one.listed()
        said = await one.deploy("--dry-run", "--prune")
        assert said.out.splitlines() == ["would upload index.html", "would delete logo.svg", "1 unchanged"]
        assert await one.listed() == before
        assert (await one.deploy("--dry-run", "--json")).json["uploaded"] == ["index.html"]


async def test_room_of_the_project_can_be_published_for_its_pages(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio(tmp_path, capsys, monkeypatch) as one:
        put(one.pages, room_dot_json="mine, for development")
        said = await one.deploy("--room", "room.json", "--json")
        assert said.code == 0, said
        assert set(said.json["uploaded"]) == {"css/site.css", "index.html", "logo.svg", "room.json"}
        project = (await one.run("project", "show", "--json")).json
        told = {
            "base": one.one.base,
            "token": project["app_token"],
            "websocket_url": project["websocket_url"],
            "expires_at": project["expires_at"],
        }
        content = json.dumps(told, indent=2).encode() + b"\n"
        assert (await one.listed())["room.json"] == hashlib.sha256(content).hexdigest()
        assert (await one.deploy("--room", "room.json", "--json")).json["unchanged"] == 4
        await one.run("project", "book")
        assert (await one.deploy("--room", "room.json", "--json")).json["uploaded"] == ["room.json"]
        assert (await one.deploy("--room", "/room.json")).code == 2


async def test_deploy_that_broke_off_is_finished_by_the_next_one(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio(tmp_path, capsys, monkeypatch, **{"projects.object_bytes_max": 1000}) as one:
        put(one.pages, **{f"n{number}_dot_txt": str(number) for number in range(20)}, m_dot_txt="x" * 1001)
        said = await one.deploy()
        assert said.code == 1
        assert said.err.startswith("heliograph: m.txt: payload_too_large: ")
        some = set(await one.listed())
        assert "index.html" not in some  # pages are last
        assert len(some) < 23
        (one.pages / "m.txt").write_text("short")
        said = await one.deploy("--json")
        assert set(said.json["uploaded"]) | some == set(await one.listed())
        assert len(await one.listed()) == 24
        assert not set(said.json["uploaded"]) & some
        assert len((await one.run("project", "ls", "--json")).json) == 1


async def test_site_that_is_full_says_so(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    async with studio(tmp_path, capsys, monkeypatch, **{"projects.objects_max": 2}) as one:
        said = await one.deploy()
        assert (said.code, "space_full: " in said.err, "site rm" in said.err) == (1, True, True)


async def test_uploads_over_the_rate_wait_as_long_as_the_service_says(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio(tmp_path, capsys, monkeypatch, **{"echo.rest_burst": 5, "echo.rest_per_s": 20.0}) as one:
        put(one.pages, **{f"n{number}_dot_txt": str(number) for number in range(40)})
        waited: list[float] = []

        def noted(word: str, retry_after_ms: int | None, failures: int) -> float | None:
            waited.append(wait_s(word, retry_after_ms, failures) or 0.0)
            return waited[-1]

        monkeypatch.setattr(site_upload, "wait_s", noted)
        said = await one.deploy("--json")
        assert said.code == 0, said
        assert len(said.json["uploaded"]) == 43
        assert waited, "the burst is smaller than the site"


async def test_two_deploys_at_once_make_one_project(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio(tmp_path, capsys, monkeypatch) as one:
        create = ProjectApi.create
        raced: list[str] = []

        def create_late(api: ProjectApi, body: Any) -> Any:
            made = create(api, body)
            if not raced:  # another one was quicker
                raced.append(made["project_id"])
                (tmp_path / ".echo-project").write_text(create(api, {"name": "other"})["project_id"])
            return made

        monkeypatch.setattr(ProjectApi, "create", create_late)
        said = await one.deploy("--json")
        assert said.json["project_id"] == one.project_id != raced[0]
        assert [project["name"] for project in (await one.run("project", "ls", "--json")).json] == ["other"]


async def test_project_is_managed_from_its_beginning_to_its_end(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio(tmp_path, capsys, monkeypatch) as one:
        (tmp_path / "prompt.txt").write_text("Say hello.")
        options = ["--domain", "club", "--app-name", "The Club", "--multi-space", "--encryption", "--ttl", "1h"]
        said = await one.run("project", "create", "Club", *options, "--prompt", "prompt.txt")
        assert (said.code, said.err) == (0, "")
        facts = dict(line.split(None, 1) for line in said.out.splitlines())
        assert facts["url"].startswith("http://club.localhost:")
        assert (facts["app_name"], facts["encryption_enabled"], facts["multi_space"]) == ("The Club", "on", "on")
        project_id = facts["project_id"]

        shown = (await one.run("project", "show", project_id, "--json")).json
        assert (shown["app_token"], shown["name"]) == (facts["app_token"], "Club")
        assert "Say hello." in (await one.run("project", "show", project_id, "--prompt")).out
        booked = (await one.run("project", "book", project_id, "--json")).json
        assert booked["app_token"] != shown["app_token"]
        by_token = (await one.run("project", "book", project_id, "--space", booked["app_token"], "--json")).json
        assert by_token["app_token"] != booked["app_token"]
        refused = await one.run("project", "book", project_id, "--space", booked["app_token"])
        assert (refused.code, "space_not_found" in refused.err) == (1, True)

        (row,) = (await one.run("project", "ls")).out.splitlines()[1:]
        assert row.startswith(f"{project_id}  Club  http://club.localhost")
        await one.run("site", "deploy", "assets", "--project", project_id)
        assert not (tmp_path / ".echo-project").exists()
        said = await one.run("site", "ls", "--project", project_id, "--prefix", "css/")
        assert [line.split()[:3] for line in said.out.splitlines()] == [
            ["path", "size", "content_type"],
            ["css/site.css", "5", "text/css;"],
        ]
        assert (await one.run("site", "rm", "css/site.css", "--project", project_id)).out == "deleted css/site.css\n"
        gone = await one.run("site", "rm", "css/site.css", "--project", project_id)
        assert (gone.code, "object_not_found" in gone.err) == (1, True)
        deleted = await one.run("project", "rm", project_id)
        assert deleted.out.startswith(f"deleted {project_id}")
        assert (await one.run("project", "show", project_id)).code == 1
        assert (await one.run("project", "ls")).out == "none\n"


async def test_project_that_this_service_does_not_have_is_not_made_anew(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio(tmp_path, capsys, monkeypatch) as one:
        (tmp_path / ".echo-project").write_text("01j9zq8f3m5x7c2v4b6n8p0q1r\n")
        said = await one.deploy()
        assert said.code == 2
        assert "has no project 01j9zq8f3m5x7c2v4b6n8p0q1r" in said.err
        assert "remove that file" in said.err
        assert (await one.run("project", "ls", "--json")).json == []


async def test_gateway_of_the_data_folder_is_found_without_an_address(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio(tmp_path, capsys, monkeypatch) as one:
        monkeypatch.delenv("HELIOGRAPH_URL")
        said = await one.run("project", "create", "x", "--data", str(tmp_path / "data"))
        assert said.code == 0, said
        nowhere = await one.run("project", "ls", "--data", str(tmp_path / "nowhere"))
        assert nowhere.code == 2
        assert "no gateway runs on" in nowhere.err
        assert "--url" in nowhere.err


async def test_gateway_with_a_certificate_of_its_own_is_known_by_its_data_folder(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = str(write_certificate(tmp_path))
    async with studio(tmp_path, capsys, monkeypatch, **{"http.tls_certificate": pem, "http.tls_key": pem}) as one:
        monkeypatch.delenv("HELIOGRAPH_URL")
        said = await one.deploy("--domain", "shop", "--data", str(tmp_path / "data"))
        assert said.code == 0, said
        assert said.out.splitlines()[-1].startswith("https://shop.localhost:")
        untrusted = await one.run("project", "ls", "--url", one.one.gateway.http_url)
        assert (untrusted.code, "not one that this system trusts" in untrusted.err) == (2, True)


async def test_wrong_bearer_and_none_are_told_apart(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio(tmp_path, capsys, monkeypatch) as one:
        monkeypatch.setenv("API_BEARER_TOKEN", "another-bearer-that-is-long-enough-too")
        wrong = await one.run("project", "ls")
        assert (wrong.code, wrong.err.startswith("heliograph: unauthorized: ")) == (1, True)
        monkeypatch.setenv("HELIOGRAPH_API_BEARER_TOKEN", BEARER)  # which wins
        assert (await one.run("project", "ls")).code == 0
        for bearer in ("", "two words", "line\nbreak"):
            monkeypatch.setenv("HELIOGRAPH_API_BEARER_TOKEN", bearer)
            monkeypatch.setenv("API_BEARER_TOKEN", bearer)
            none = await one.run("project", "ls")
            assert (none.code, "put the bearer of the project API into" in none.err) == (2, True)


@pytest.mark.parametrize("what", ["nothing", "a file", "empty", "ignored"])
async def test_folder_without_a_site_makes_no_project(
    what: str, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio(tmp_path, capsys, monkeypatch) as one:
        place = tmp_path / "site"
        if what == "a file":
            place.write_text("")
        elif what != "nothing":
            place.mkdir()
        if what == "ignored":
            put(place, index_dot_html="", _dot_gitignore="*\n")
        said = await one.run("site", "deploy", "site")
        assert said.code == 2
        expected = {"nothing": "cannot read", "a file": "is no folder", "empty": "nothing to publish", "ignored": "!*"}
        assert expected[what] in said.err
        assert (await one.run("project", "ls", "--json")).json == []
