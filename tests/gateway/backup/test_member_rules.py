"""Which names a backup has: a closed set, none of which leads out of a folder."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.backup.member_rules import MANIFEST, Part, is_known, part_of

KID, SPACE, FILE = "a1" * 32, "01m7q96emf8a3t440md936y6xm", "01m7q96emf8a3t440md936y6xn"
NAMES = {
    "token.key": Part.KEYS,
    "ca.key": Part.KEYS,
    "ca.crt": Part.KEYS,
    "echo.key": Part.KEYS,
    "token.jwks": Part.KEYS,
    "operator-scopes.since": Part.KEYS,
    "log.sqlite": Part.LOG,
    f"leafs/{KID}.crt": Part.NODES,
    "revoked": Part.REVOCATIONS,
    "audit/0000000000000001.sqlite": Part.AUDIT,
    "processes/7/audit/0000000000000001.sqlite": Part.AUDIT,
    f"sites/a1/{KID}": Part.SITES,
    "spaces.sqlite": Part.SPACES,
    f"spaces/keys/{SPACE}": Part.SPACES,
    f"spaces/{SPACE}/{FILE}": Part.SPACES,
    "projects/spaces.sqlite": Part.PROJECTS,
    f"projects/spaces/keys/{SPACE}": Part.PROJECTS,
    f"projects/spaces/{SPACE}/{FILE}": Part.PROJECTS,
}
OF_A_PROCESS = [
    "lock", "running.json", "running.json.new", "log.sqlite-wal", "log.sqlite-shm", "audit/0000000000000001.sqlite-wal",
    "projects/spaces.sqlite-shm", "sites/incoming/3", f"spaces/keys/{SPACE}.new", f"spaces/{SPACE}/{FILE}.part",
    "ca.crt.new", "backup.tmp/log.sqlite", "backup.tmp.7/log.sqlite", "restoring/ca.crt",
    "processes/0.lock", "processes/12.sock", "processes/7/audit/0000000000000001.sqlite-wal",
]  # fmt: skip
NEITHER = [
    "", ".", "..", "../token.key", "/token.key", "leafs", "leafs/", f"leafs/{KID}", f"leafs/../{KID}.crt",
    f"leafs/{KID.upper()}.crt", f"sites/b1/{KID}", f"sites/a1/../a1/{KID}", f"spaces/{SPACE}",
    f"spaces/{SPACE}/{SPACE}/x",
    "spaces/keys/x", "audit/1.sqlite", "token.key\n", "token.key\0", "thesis.txt", "demo-policy.toml", MANIFEST,
    "processes/0/audit/0000000000000001.sqlite", "processes/../audit/0000000000000001.sqlite", "processes/7/token.key",
    f"projects/projects/spaces/keys/{SPACE}", "projects/log.sqlite", f"leafs/{'１' * 64}.crt",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_name_of_a_member_says_what_it_is_a_part_of(name: str) -> None:
    assert part_of(name) is NAMES[name]
    assert is_known(name)


@pytest.mark.parametrize("name", OF_A_PROCESS)
def test_what_ends_with_a_process_is_known_and_in_no_backup(name: str) -> None:
    assert part_of(name) is None
    assert is_known(name)


@pytest.mark.parametrize("name", NEITHER)
def test_any_other_name_is_no_members(name: str) -> None:
    assert part_of(name) is None
    assert not is_known(name)


@given(st.lists(st.sampled_from(["..", ".", "", "leafs", "spaces", "keys", SPACE, "sites", "a1", KID, f"{KID}.crt"])))
def test_no_member_leads_out_of_the_folder(pieces: list[str]) -> None:
    name = "/".join(pieces)
    if part_of(name) is not None:
        path = PurePosixPath(name)
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert str(path) == name
