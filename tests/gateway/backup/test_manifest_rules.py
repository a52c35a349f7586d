"""Whether what was read is a whole backup that this version can restore."""

import json
from typing import Any

import pytest

from gateway.backup.manifest_rules import FORM, Manifest, Member, NotRestorable, judge

KNOWN = {"log": 4, "audit": 1, "spaces": 1}
MEMBERS = tuple(
    Member(name, size, f"{size:064x}") for size, name in enumerate(("ca.crt", "ca.key", "token.key", "revoked"))
)
SEEN = {member.name: member for member in MEMBERS}
MANIFEST = Manifest(FORM, "0.1.0", 1_795_000_000_000, None, {"log": 4}, False, True, 0, MEMBERS)


def judged(seen: dict[str, Member] | None = None, **changes: Any) -> Manifest | NotRestorable:
    document = {**json.loads(MANIFEST.encoded()), **changes}
    return judge(json.dumps(document).encode(), SEEN if seen is None else seen, KNOWN)


def why(verdict: Manifest | NotRestorable) -> str:
    assert isinstance(verdict, NotRestorable)
    return verdict.why


def test_whole_backup_is_restorable() -> None:
    assert judged() == MANIFEST
    assert judge(MANIFEST.encoded(), SEEN, KNOWN) == MANIFEST
    assert MANIFEST.size_bytes == 0 + 1 + 2 + 3


def test_field_of_a_later_version_of_the_same_form_is_passed_over() -> None:
    assert judged(more="x") == MANIFEST


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "not whole"),
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"{}", "cannot be read"),
        (b'{"form": 1}', "cannot be read"),
        (b'{"form": "1"}', "cannot be read"),
        (b'{"\xff": 1}', "cannot be read"),
        (b'{"form": 1, "version": "\xff"}', "cannot be read"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "cannot be read"),
    ],
)
def test_without_a_manifest_there_is_no_backup(found: bytes | None, said: str) -> None:
    verdict = judge(found, SEEN, KNOWN)
    assert said in why(verdict)
    assert "use another one" in why(verdict)


@pytest.mark.parametrize("made_at_ms", [-1, 10**15])
def test_moment_that_has_no_date_is_none(made_at_ms: int) -> None:
    assert "cannot be read" in why(judged(made_at_ms=made_at_ms))


@pytest.mark.parametrize("form", [2**31, -(2**31), 10**4_000])
def test_form_that_no_version_will_have_is_damage_and_not_repeated(form: int) -> None:
    assert "cannot be read" in why(judged(forms={"log": form}))
    assert len(why(judge(b'{"form": %d}' % form, {}, KNOWN))) < 200


def test_form_of_before_the_first_is_none() -> None:
    assert "never was" in why(judged(form=0))


def test_backup_of_a_newer_form_names_the_version_to_install() -> None:
    told = why(judge(b'{"form": 2, "version": "3.1.4", "all": "else"}', {}, KNOWN))
    assert "heliograph 3.1.4" in told
    assert "up to 1" in told


@pytest.mark.parametrize("version", [None, 7, "x" * 64, "\x1b[2J"])
def test_version_that_is_none_is_not_repeated(version: object) -> None:
    told = why(judge(json.dumps({"form": 2, "version": version}).encode(), {}, KNOWN))
    assert "(one)" in told
    assert "\x1b" not in told


@pytest.mark.parametrize("part", ["log", "audit", "spaces"])
def test_database_of_a_newer_form_is_refused_and_of_an_older_one_taken(part: str) -> None:
    assert isinstance(judged(forms={part: KNOWN[part]}), Manifest)
    assert isinstance(judged(forms={part: KNOWN[part] - 1}), Manifest)
    assert isinstance(judged(forms={part: -KNOWN[part]}), Manifest), "one whose move was cut short"
    assert f"{part} of form {KNOWN[part] + 1}" in why(judged(forms={part: KNOWN[part] + 1}))


def test_database_that_this_version_does_not_have_is_a_newer_ones() -> None:
    assert "a newer version" in why(judged(forms={"engine": 1}))


def test_missing_file_is_noticed() -> None:
    assert "missing" in why(judged({name: member for name, member in SEEN.items() if name != "revoked"}))


def test_file_too_many_is_noticed() -> None:
    assert "one too many" in why(judged({**SEEN, "echo.key": Member("echo.key", 1, "0" * 64)}))


@pytest.mark.parametrize("changed", [Member("revoked", 4, f"{3:064x}"), Member("revoked", 3, f"{4:064x}")])
def test_file_that_is_another_is_noticed(changed: Member) -> None:
    assert "not as it was written" in why(judged({**SEEN, "revoked": changed}))


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "thesis.txt", "lock"])
def test_file_that_no_backup_has_is_refused(name: str) -> None:
    stranger = Member(name, 1, "0" * 64)
    listed = [*json.loads(MANIFEST.encoded())["members"], {"name": name, "size": 1, "sha256": "0" * 64}]
    for verdict in (judged({**SEEN, name: stranger}, members=listed), judged({**SEEN, name: stranger})):
        assert "no backup has" in why(verdict)
        assert name not in why(verdict)


def test_name_that_is_listed_twice_is_refused() -> None:
    listed = json.loads(MANIFEST.encoded())["members"]
    assert "no backup has" in why(judged(members=[*listed, listed[0]]))


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "token.key"])
def test_backup_without_keys_is_none(name: str) -> None:
    members = [member for member in json.loads(MANIFEST.encoded())["members"] if member["name"] != name]
    assert "keys" in why(judged({k: v for k, v in SEEN.items() if k != name}, members=members))
