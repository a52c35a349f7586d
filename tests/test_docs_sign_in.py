"""The explanations of sign-in and of threats: every kind of secret is named, and numbers are those of the code."""

import re
from pathlib import Path
from xml.etree import ElementTree

from actors.grants.grant_rules import GrantLimits
from actors.grants.grants import LAPSE_S, OVERLAP_MS
from actors.member.settings import MemberSettings
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.settings import OAuthSettings
from gateway.identity.passkeys.ceremony_rules import LIFE_S
from gateway.identity.tokens import OperatorScope, TokenClass
from gateway.main.data_folder import CA_KEY, ECHO_KEY, TOKEN_KEY
from schemas.echo.names import AUTH_CODE, CLAIM, IAM_ACCESS, IAM_REFRESH, ROOM_TOKEN

ROOT = Path(__file__).parent.parent
EXPLANATION = ROOT / "docs" / "explanation"
SIGN_IN = (EXPLANATION / "how-sign-in-works.md").read_text()
PICTURE = (EXPLANATION / "how-sign-in-works.svg").read_text()
THREATS = (EXPLANATION / "threat-model.md").read_text()
DAY_S = 86_400


def section(page: str, title: str) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_secrets_of_the_threat_model_are_all_there_are() -> None:
    table = section(THREATS, "Secrets")
    prefixes = (ROOM_TOKEN, IAM_ACCESS, IAM_REFRESH, CLAIM, AUTH_CODE)
    assert [prefix for prefix in prefixes if f"`{prefix}…`" not in table] == []
    assert [file for file in (TOKEN_KEY, CA_KEY, ECHO_KEY) if f"`{file}`" not in table] == []
    names = {"agent_runtime": "agent's JWT", "device_runtime": "device's JWT", "operator": "operator's JWT"}
    assert [names[kind] for kind in TokenClass if names[kind] not in table] == []
    assert [
        scope for scope in (OperatorScope.TOKENS_MINT, OperatorScope.FLEET_WRITE) if f"`{scope}`" not in table
    ] == []


def test_every_secret_that_can_leak_has_something_to_do_about_it() -> None:
    leaked = section(THREATS, "What to do if a secret leaks")
    for secret in (
        "room token",
        "claim",
        "invite",
        "`ea_`, `er_`",
        "passkey",
        "JWT",
        "API bearer",
        ECHO_KEY,
        TOKEN_KEY,
        CA_KEY,
    ):
        assert re.search(rf"^\|[^|]*{re.escape(secret)}", leaked, re.MULTILINE), secret


def test_every_row_of_an_attack_names_its_answer() -> None:
    rows = re.findall(r"^\| ([^|]+) \|(.*)\|$", section(THREATS, "Attackers"), re.MULTILINE)
    assert len(rows) > 15
    assert [tried for tried, answer in rows if not answer.strip()] == []


def test_numbers_of_sign_in_are_those_of_the_code() -> None:
    limits, oauth, members = GrantLimits(), OAuthSettings(), MemberSettings()
    assert f"| lives for | {limits.access_s:,} s | {members.access_s} s at most |" in SIGN_IN
    assert f"{members.refresh_s // DAY_S} days without use, {members.grant_s // DAY_S} days in all" in SIGN_IN
    assert f"one use; {members.invite_s // 3600} hours" in SIGN_IN
    assert members.grants_max == limits.member_grants_max, "one sentence speaks of both"
    assert f"`er_…`, {limits.refresh_s // DAY_S} days; neither beyond the space" in SIGN_IN
    assert f"| {LIFE_S / 60:.0f} minutes, one attempt |" in SIGN_IN
    assert f"| {oauth.code_s:.0f} s, one attempt; that it was used, {oauth.used_code_s / 3600:.0f} hour |" in SIGN_IN
    assert f"for {LAPSE_S} s at most without a valid token" in SIGN_IN
    assert f"within {OVERLAP_MS // 1000} s, while its successor is unused" in SIGN_IN
    assert f"a member's {limits.member_grants_max + 1}th grant" in SIGN_IN
    assert f"code: {oauth.code_s:.0f} s, one use" in PICTURE


def test_picture_of_sign_in_is_well_formed_and_says_in_words_what_it_shows() -> None:
    root = ElementTree.fromstring(PICTURE)
    title, words = (root.find(f"{{http://www.w3.org/2000/svg}}{name}") for name in ("title", "desc"))
    assert title is not None
    assert words is not None
    assert all(said in (words.text or "") for said in ("401", "passkey", "PKCE", "ea_", "gid"))


def test_refusals_after_the_passkey_are_in_the_table_of_troubles() -> None:
    page = (ROOT / "docs" / "how-to" / "connect-an-mcp-client.md").read_text()
    troubles = section(page, "If it does not connect")
    for error in (OAuthError.ACCESS_DENIED, OAuthError.INVALID_TARGET, OAuthError.INVALID_REDIRECT_URI):
        assert f"`{error.word}`" in troubles
