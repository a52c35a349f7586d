"""`heliograph space create | show | kv | put | get | files | close` against a gateway that runs."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from gateway.commands.space_link_rules import WHAT_A_LINK_IS
from schemas.echo.envelope import kv_kid, read_envelope, room_key, seal, unseal
from tests.gateway.commands.space_site import site

Capsys = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


async def test_a_space_is_made_shown_and_closed_with_the_link_alone(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        told = await here.space("create", "--url", here.base, "--ttl", "1h")
        facts = dict(line.split(maxsplit=1) for line in told.out.splitlines())
        link, claim = facts["link"], facts["claim"].split()[0]
        assert link.startswith(f"{here.base}/s/es_")
        assert claim.startswith("ei_")
        shown = await here.space("show", link, "--json")
        assert shown.json["dashboard_url"] == link
        assert "claim" not in shown.json
        assert f"expires_at          {shown.json['expires_at']}" in (await here.space("show", link)).out
        assert "encryption_enabled  off" in (await here.space("show", link)).out
        token = link.rpartition("/")[2]
        prompt = await here.space("show", token, "--url", here.base, "--prompt")
        assert prompt.out.startswith('<ECHO_PROMPT version="1">\n')
        refused = await here.space("close", link, stdin=b"ei_wrong\n")
        assert (refused.code, "unauthorized: " in refused.err) == (1, True)
        monkeypatch.setenv("HELIOGRAPH_SPACE_CLAIM", claim)
        assert (await here.space("close", link)).code == 0
        monkeypatch.setenv("HELIOGRAPH_SPACE", link)
        gone = await here.space("show")
        assert gone.code == 1
        assert gone.err.startswith("heliograph: space_not_found: No space has this token")
        assert "heliograph space create" in gone.err


async def test_the_creators_own_link_closes_its_space(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        made = await here.made()
        assert (await here.space("close", f"{made['dashboard_url']}#claim={made['claim']}")).code == 0
        assert (await here.space("show", made["dashboard_url"])).code == 1


@pytest.mark.parametrize("how", ["environment", "standard input"])
async def test_a_password_is_no_argument(how: str, tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    async with site(tmp_path, capsys, monkeypatch, **{"echo.create_password": "open sesame"}) as here:
        refused = await here.space("create", "--url", here.base)
        assert (refused.code, "unauthorized" in refused.err, "password" in refused.err) == (1, True, True)
        if how == "environment":
            monkeypatch.setenv("HELIOGRAPH_SPACE_PASSWORD", "open sesame")
            made = await here.space("create", "--url", here.base)
        else:
            made = await here.space("create", "--url", here.base, "--password", stdin=b"open sesame\n")
        assert made.code == 0, made


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [(), ("--encryption",), ("--protocol", "protobuf"), ("--encryption", "--protocol", "protobuf")]
)
async def test_values_go_in_and_out_as_they_are(
    options: tuple[str, ...], tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    value = 'ein "Wert"\n\twith \U0001f600 and \x1b[31m'
    async with site(tmp_path, capsys, monkeypatch) as here:
        made = await here.made(*options)
        monkeypatch.setenv("HELIOGRAPH_SPACE", made["dashboard_url"])
        assert (await here.space("kv", "set", "a", value, "--ttl", "10m")).out == "version 1\n"
        assert (await here.space("kv", "get", "a")).out == value
        assert (await here.space("kv", "get", "a", "--json")).json["value"] == value
        raw = (await here.space("kv", "get", "--raw", "a")).out
        if "--encryption" in options:
            envelope = read_envelope(raw)
            assert envelope is not None
            assert unseal(room_key(made["token"], made["space_id"]), "room#kv/a", envelope) == value.encode()
        else:
            assert raw == value
        written = await here.space("kv", "set", made["dashboard_url"], "b", "-", "--json", stdin="grün".encode())
        assert written.json["version"] == 2
        assert (await here.space("kv", "get", "b")).out == "grün"
        assert [key["key"] for key in (await here.space("kv", "ls", "--json")).json] == ["a", "b"]
        assert (await here.space("kv", "ls", "--prefix", "b")).out.splitlines()[1].startswith("b    2")
        assert (await here.space("kv", "set", "a", "x", "--if-match", "1")).code == 0
        late = await here.space("kv", "set", "a", "y", "--if-match", "1")
        assert (late.code, late.err.startswith("heliograph: version_conflict: ")) == (1, True)
        assert (await here.space("kv", "rm", "a")).out == "removed a\n"
        gone = await here.space("kv", "get", "a")
        assert (gone.code, gone.out, "key_not_found" in gone.err, "kv ls" in gone.err) == (1, "", True, True)


async def test_a_value_under_a_key_of_others_stays_closed(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        made = await here.made("--encryption")
        monkeypatch.setenv("HELIOGRAPH_SPACE", made["dashboard_url"])
        elsewhere = seal(room_key(made["token"], made["space_id"]), kv_kid("other"), b"moved", os.urandom(12))
        for envelope in (seal(os.urandom(32), "x:mine", b"secret", os.urandom(12)), elsewhere):
            assert (await here.space("kv", "set", "a", envelope, "--raw")).code == 0
            closed = await here.space("kv", "get", "a")
            assert (closed.code, closed.out, "--raw" in closed.err) == (1, "", True)
            assert (await here.space("kv", "get", "a", "--raw")).out == envelope
        plain = await here.space("kv", "set", "a", "plain", "--raw")
        assert (plain.code, "encryption_required" in plain.err) == (1, True)


async def test_keys_of_many_pages_are_listed(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    async with site(tmp_path, capsys, monkeypatch, **{"echo.rest_burst": 10_000, "echo.list_keys_max": 2}) as here:
        monkeypatch.setenv("HELIOGRAPH_SPACE", (await here.made())["dashboard_url"])
        for number in range(5):
            assert (await here.space("kv", "set", f"k{number}", "v")).code == 0
        keys = (await here.space("kv", "ls", "--json")).json
        assert [key["key"] for key in keys] == [f"k{number}" for number in range(5)]


# ---- files -----------------------------------------------------------------------------------------------------------


async def test_files_go_up_and_down_whole(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    content = os.urandom(300_000)
    (tmp_path / "grün & rot.png").write_bytes(content)
    (tmp_path / "empty").write_bytes(b"")
    async with site(tmp_path, capsys, monkeypatch) as here:
        monkeypatch.setenv("HELIOGRAPH_SPACE", (await here.made())["dashboard_url"])
        put = (await here.space("put", "grün & rot.png", "--json")).json
        assert (put["name"], put["content_type"], put["size"]) == ("grün & rot.png", "image/png", 300_000)
        assert put["sha256"] == hashlib.sha256(content).hexdigest()
        assert (await here.space("put", "empty")).out.endswith("  empty\n")
        piped = (await here.space("put", "-", "--name", "piped", "--type", "text/plain", "--json", stdin=content)).json
        assert (piped["name"], piped["content_type"], piped["sha256"]) == ("piped", "text/plain", put["sha256"])
        listed = await here.space("files", "--json")
        assert {file["name"] for file in listed.json} == {"grün & rot.png", "empty", "piped"}
        assert "grün & rot.png" in (await here.space("files")).out
        got = await here.space("get", "piped")
        assert (got.code, got.out, (tmp_path / "piped").read_bytes() == content) == (0, "piped\n", True)
        assert (await here.space("get", put["file_id"], "--out", "by-id")).code == 0
        assert (tmp_path / "by-id").read_bytes() == content
        assert (await here.space("get", "empty", "--out", "nothing")).code == 0
        assert (tmp_path / "nothing").read_bytes() == b""


def hidden_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


async def test_a_file_that_is_there_is_overwritten_only_with_force(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    (tmp_path / "a").write_text("mine")
    outside = tmp_path / "outside"
    outside.write_text("outside")
    (tmp_path / "link").symlink_to(outside)
    async with site(tmp_path, capsys, monkeypatch) as here:
        monkeypatch.setenv("HELIOGRAPH_SPACE", (await here.made())["dashboard_url"])
        await here.space("put", "-", "--name", "a", stdin=b"theirs")
        for target in ("a", "link"):
            refused = await here.space("get", "a", "--out", target)
            assert (refused.code, "--force" in refused.err) == (2, True)
        assert ((tmp_path / "a").read_text(), outside.read_text()) == ("mine", "outside")
        assert (await here.space("get", "a", "--force")).code == 0
        assert (await here.space("get", "a", "--force", "--out", "link")).code == 0
        assert ((tmp_path / "a").read_text(), outside.read_text()) == ("theirs", "outside")
        assert (await here.space("get", "a", "--out", "no/such/folder")).code == 2
    assert not hidden_in(tmp_path)


async def test_of_files_with_one_name_the_id_says_which(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        monkeypatch.setenv("HELIOGRAPH_SPACE", (await here.made())["dashboard_url"])
        ids = [
            (await here.space("put", "-", "--name", "a", "--json", stdin=text)).json["file_id"] for text in (b"1", b"2")
        ]
        both = await here.space("get", "a")
        assert (both.code, "several files" in both.err, (tmp_path / "a").exists()) == (2, True, False)
        assert (await here.space("get", ids[1])).code == 0
        assert (tmp_path / "a").read_bytes() == b"2"
        none = await here.space("get", "b")
        assert (none.code, "file_not_found" in none.err, "space files" in none.err) == (1, True, True)


async def test_a_file_that_is_too_large_is_refused_in_words(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    (tmp_path / "large").write_bytes(bytes(2_000_000))
    async with site(tmp_path, capsys, monkeypatch, **{"echo.file_bytes_max": 100_000}) as here:
        refused = await here.space("put", (await here.made())["dashboard_url"], "large")
        assert (refused.code, refused.err.startswith("heliograph: payload_too_large: ")) == (1, True)


# ---- wrong use -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["show"], WHAT_A_LINK_IS),
        (["show", "es_" + "S" * 43], WHAT_A_LINK_IS),
        (["create", "--url", "gw.example"], "--url is"),
        (["create", "--url", "{base}", "--ttl", "1"], "--ttl is"),
        (["kv", "get", "{link}", "ä"], "a key is"),
        (["kv", "get", "{link}"], "a space is named"),  # the one word is taken for the key
        (["kv", "set", "{link}", "k", "\udcff"], "not UTF-8"),
        (["put", "{link}", "nowhere"], "No such file"),
        (["put", "{link}", "/proc/self/mem"], "cannot read"),
        (["put", "{link}", "heliograph-file", "--type", "x"], "media type"),
        (["join", "{link}", "--uid", "ä"], "a uid"),
        (["join", "{link}", "--subs", ",".join(map(str, range(33)))], "at most 32"),
        (["close", "{link}"], "closed with the claim"),
        (["close", "01m7p6hqs2dzhfd9qxt48rxmgn", "--data", "nowhere"], "no gateway runs on nowhere"),
    ],
)
async def test_wrong_use_is_one_line_without_the_link(
    arguments: list[str], hint: str, tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        made = await here.made()
        given = [word.format(link=made["dashboard_url"], base=here.base) for word in arguments]
        said = await here.space(*given)
        assert (said.code, said.out) == (2, "")
        assert hint in said.err
        assert said.err.count("\n") == 1
        assert made["token"] not in said.err
        assert "SSSS" not in said.err


async def test_a_data_folder_is_neither_read_nor_made(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        monkeypatch.setenv("HELIOGRAPH_DATA", str(tmp_path / "of-somebody"))
        made = await here.made()
        assert (await here.space("kv", "set", made["dashboard_url"], "a", "b")).code == 0
        assert not (tmp_path / "of-somebody").exists()


async def test_documents_of_scripts_are_whole_lines(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        said = await here.space("create", "--url", here.base, "--json")
        assert said.out.count("\n") == 1
        assert json.loads(said.out)["claim"].startswith("ei_")
