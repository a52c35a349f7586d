"""What pages load: all of it there, in the wheel too, and nothing from elsewhere."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gateway.identity.oauth
import gateway.pages
import gateway.spaces.pages
from gateway.identity.passkeys.page_script import PASSKEY_SCRIPT
from tests.gateway.spaces.site import site

ROOT = Path(__file__).parents[4]
FOLDER = Path(gateway.spaces.pages.__file__).parent
OF_ALL_PAGES = Path(gateway.pages.__file__).parent
OF_SIGN_IN = Path(gateway.identity.oauth.__file__).parent
FOLDERS = [folder / "static" for folder in (FOLDER, OF_ALL_PAGES)]
FILES = {path.name: path for path in (*(path for folder in FOLDERS for path in folder.iterdir()), PASSKEY_SCRIPT)}
NAMES = sorted(FILES)
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}


@pytest.mark.parametrize("name", NAMES)
async def test_every_asset_is_served_with_its_type_and_asked_for_again_only_when_it_changes(name: str) -> None:
    async with site() as here:
        answer = await here.ask("GET", f"/assets/{name}")
        content = FILES[name].read_bytes()
        assert (answer.status, answer.body) == (200, content)
        assert answer.headers == {
            "content-type": TYPES[Path(name).suffix],
            "content-length": str(len(content)),
            "x-content-type-options": "nosniff",
            "etag": answer.headers["etag"],
            "cache-control": "no-cache",
        }
        again = await here.ask("GET", f"/assets/{name}", if_none_match=answer.headers["etag"])
        assert (again.status, again.body) == (304, b"")
        assert (await here.ask("GET", f"/assets/{name}", if_none_match='"other"')).status == 200


async def test_nothing_but_assets_is_there() -> None:
    async with site() as here:
        for name in ("absent.js", "room.html", ".", "..", "%2e%2e", "__init__.py", "%00"):
            assert (await here.ask("GET", f"/assets/{name}")).error == (404, "not_found")
        for path in ("/assets/", "/assets/../room.js", "/assets/..%2frendering.py", "/assets"):
            assert (await here.ask("GET", path)).status == 404
        answer = await here.ask("POST", "/assets/room.js")
        assert (answer.error, answer.headers["allow"]) == ((405, "method_not_allowed"), "GET, HEAD")


def test_whatever_pages_and_modules_load_is_an_asset_of_ours() -> None:
    paths = [path for folder in (FOLDER, OF_ALL_PAGES) for path in (folder / "templates").iterdir()]
    templates = "".join(path.read_text() for path in paths)
    assert set(re.findall(r'"(?:/assets|{{ assets }})/([^"]+)"', templates)) <= set(NAMES)
    for path in (path for path in FILES.values() if path.suffix == ".js"):
        text = path.read_text()
        imported = re.findall(r'from "([^"]+)"', text)
        assert {f"./{name}" for name in NAMES} >= set(imported)
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in text, "what others wrote is text"
    style = FILES["echo.css"].read_text()
    assert not re.search(r"url\(|@import", style)


def test_the_modules_for_others_stand_alone() -> None:
    for name in ("room.js", "seal.js"):
        text = (FOLDER / "static" / name).read_text()
        assert not re.search(r"^import ", text, re.MULTILINE)
        assert "document" not in re.sub(r"/\*.*?\*/|//.*", "", text, flags=re.DOTALL).replace("documented", "")


def test_the_wheel_has_all_of_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    packages = (FOLDER, OF_ALL_PAGES, OF_SIGN_IN)
    folders = [folder / part for folder in packages for part in ("static", "templates")]
    files = {PASSKEY_SCRIPT, *(path for folder in folders for path in folder.iterdir())}
    assert {str(path.relative_to(ROOT)) for path in files} <= names
