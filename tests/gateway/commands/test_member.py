"""`heliograph member` and `members`, on the folder of a stopped gateway and over a running one."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from gateway.commands.cli import main
from gateway.main.data_folder import FOREIGN_FILE, DataFolder
from gateway.main.server import running
from gateway.main.settings import load
from tests.gateway.api.live import wall_ms
from tests.gateway.identity.members.person import Person, base_of

READ = "tools:call:read_only"
INVITE = ("member", "invite", "--tenant", "acme", "--scope", READ)


@pytest.fixture
def data(tmp_path: Path) -> str:
    with DataFolder.hold(tmp_path / "data", wall_ms()):
        pass
    return str(tmp_path / "data")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    code = main([*words, "--json"])
    said = capsys.readouterr()
    assert code == 0, said.err
    return json.loads(said.out)


def test_stopped_folder_takes_invitations_and_revocations(capsys: pytest.CaptureFixture[str], data: str) -> None:
    assert run(capsys, "members", "--data", data) == []
    made = run(capsys, *INVITE, "--label", "Ada", "--data", data)
    assert "url" not in made
    (shown,) = run(capsys, "members", "--data", data)
    assert (shown["member_id"], shown["label"], shown["scopes"]) == (made["member_id"], "Ada", [READ])
    again = run(capsys, "member", "invite", "--member", made["member_id"], "--data", data)
    assert (again["sub"], again["invite"] == made["invite"]) == (made["sub"], False)
    assert main(["members", "--data", data]) == 0
    table = capsys.readouterr().out
    assert made["member_id"] in table
    assert again["invite"] not in table
    assert main([*INVITE, "--data", data]) == 0
    assert "PUBLIC_URL/join#ei_" in capsys.readouterr().out
    assert main(["member", "revoke", made["member_id"], "--data", data]) == 0
    assert capsys.readouterr().out == f"revoked {made['member_id']}\n"
    assert main(["member", "revoke", made["member_id"], "--data", data]) == 2
    assert "No member has this id" in capsys.readouterr().err


async def test_invitation_of_a_stopped_folder_is_good_once_the_gateway_runs_and_commands_reach_it(
    capsys: pytest.CaptureFixture[str], data: str
) -> None:
    made = await trio.to_thread.run_sync(lambda: run(capsys, *INVITE, "--data", data))
    settings = load(None, {}, {"data": data, "http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"})
    with trio.fail_after(60), capture_logs():  # else they are in the output of commands
        async with running(settings) as gateway:
            ada = Person(gateway)
            assert (await ada.join(made["invite"])).status_code == 201
            await ada.sign_in()
            other = await trio.to_thread.run_sync(lambda: run(capsys, *INVITE, "--data", data))
            assert other["url"] == f"{base_of(gateway)}/join#{other['invite']}"
            assert await trio.to_thread.run_sync(main, ["member", "revoke", made["member_id"], "--data", data]) == 0
            assert (await ada.refresh()).json()["error"] == "invalid_grant"
            (left,) = await trio.to_thread.run_sync(lambda: run(capsys, "members", "--data", data))
            assert left["member_id"] == other["member_id"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("member", "invite", "--tenant", "acme"), "--tenant and --scope"),
        (("member", "invite", "--scope", READ), "--tenant and --scope"),
        (("member", "invite", "--member", "x"), "lower-case ULID"),
        (("member", "invite", "--member", "01jd" + "a" * 22, "--tenant", "acme"), "keeps its tenant"),
        (("member", "invite", "--member", "01jd" + "a" * 22), "No member has this id"),
        ((*INVITE, "--keep"), "--keep goes with --member"),
        ((*INVITE, "--label", "x" * 65), "label"),
        (("member", "invite", "--tenant", "a\nb", "--scope", READ), "printable"),
        (("member", "revoke", "x"), "lower-case ULID"),
    ],
)
def test_wrong_use_is_told(capsys: pytest.CaptureFixture[str], data: str, words: tuple[str, ...], why: str) -> None:
    assert main([*words, "--data", data]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("words", [INVITE, ("members",), ("member", "revoke", "01jd" + "a" * 22)])
def test_where_tokens_come_from_elsewhere_there_are_no_members(
    capsys: pytest.CaptureFixture[str], data: str, words: tuple[str, ...]
) -> None:
    (Path(data) / FOREIGN_FILE).write_text("/keys.json\n")
    assert main([*words, "--data", data]) == 2
    assert "cannot sign in here" in capsys.readouterr().err
